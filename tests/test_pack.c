/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_pack and qobs_unpack: all widths of codes and many lengths of streams against packing by single bits. */
#include "qobs/stateless.h"
#include "unit.h"

static uint32_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;
    state = state * UINT64_C(6364136223846793005) + 1;
    return (uint32_t)(state >> 33);
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

/* Packs by single bits, as the documentation says. */
static void slow_pack(const qobs_pack_args *a, unsigned char *packed)
{
    const int64_t length = a->dim == 1 ? a->columns : a->rows;
    const int64_t stream = (length * a->bits + a->word_bits - 1) / a->word_bits * (a->word_bits / 8);
    memset(packed, 0, a->packed_size);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->columns; c++)
            for (int b = 0; b < a->bits; b++) {
                const unsigned code = (unsigned)(((const unsigned char *)a->codes)[r * a->columns + c] + a->offset);
                const int64_t bit = (a->dim == 1 ? c : r) * a->bits + b;
                const int64_t byte =
                    a->dim == 1 ? r * stream + bit / 8 : (bit / 32 * a->columns + c) * 4 + bit % 32 / 8;
                packed[byte] |= (unsigned char)((code >> b & 1) << bit % 8);
            }
}

static void check_streams(qobs_pack_args *a)
{
    enum { MOST = 40000 };
    static unsigned char codes[MOST], packed[MOST + 1], expected[MOST + 1], back[MOST + 1];
    const int64_t length = a->dim == 1 ? a->columns : a->rows, streams = a->dim == 1 ? a->rows : a->columns;
    qobs_error error;
    a->struct_size = sizeof *a;
    a->codes_size = (size_t)(a->rows * a->columns);
    a->packed_size = (size_t)((length * a->bits + a->word_bits - 1) / a->word_bits * (a->word_bits / 8) * streams);
    assert_true(a->codes_size <= MOST && a->packed_size <= MOST);
    for (size_t i = 0; i < a->codes_size; i++)
        codes[i] = (unsigned char)(random_bits() % (1u << a->bits) - (unsigned)a->offset);
    memset(packed, 0x5a, sizeof packed);
    memset(back, 0x5a, sizeof back);
    a->codes = codes;
    a->packed = packed;
    slow_pack(a, expected);
    if (qobs_pack(a, &error) != QOBS_OK)
        fail_msg("%s", error.message);
    if (memcmp(packed, expected, a->packed_size) != 0 || packed[a->packed_size] != 0x5a)
        fail_msg("%d bits, dim %d, %lld x %lld: packed codes differ", a->bits, a->dim, (long long)a->rows,
                 (long long)a->columns);
    a->codes = back;
    assert_int_equal(qobs_unpack(a, &error), QOBS_OK);
    if (memcmp(back, codes, a->codes_size) != 0 || back[a->codes_size] != 0x5a)
        fail_msg("%d bits, dim %d, %lld x %lld: unpacked codes differ", a->bits, a->dim, (long long)a->rows,
                 (long long)a->columns);
}

static void test_streams(void **state)
{
    for (int bits = 1; bits <= 8; bits++)
        for (int offset = 0; offset < 2; offset++) {
            for (int64_t length = 0; length <= 140; length++)
                for (int kind = 0; kind < 3; kind++)
                    check_streams(&(qobs_pack_args){.bits = bits,
                                                    .dim = kind != 2,
                                                    .rows = kind == 2 ? length : 3,
                                                    .columns = kind == 2 ? 5 : length,
                                                    .word_bits = kind == 1 ? 8 : 32,
                                                    .offset = offset ? 1 << (bits - 1) : 0});
            check_streams(&(qobs_pack_args){
                .bits = bits, .dim = 1, .rows = 7, .columns = 4099, .word_bits = 32, .offset = offset << (bits - 1)});
            check_streams(&(qobs_pack_args){.bits = bits, .rows = 67, .columns = 129, .word_bits = 32});
        }
}

/* The example of compressed-tensors' documentation: eight codes of 4 bits fill a word from its low bits. */
static void test_known_stream(void **state)
{
    signed char codes[3] = {-8, 7, 1};
    unsigned char packed[4] = {0};
    const qobs_pack_args a = {sizeof a, 4, 1, 1, 3, 32, 8, codes, sizeof codes, packed, sizeof packed};
    assert_int_equal(qobs_pack(&a, NULL), QOBS_OK);
    assert_memory_equal(packed, ((const unsigned char[]){0xf0, 0x09, 0, 0}), 4);
}

#define REFUSED(call, words)                                                                                           \
    do {                                                                                                               \
        qobs_error refusal = {0};                                                                                      \
        assert_int_equal((call), QOBS_ERROR_INVALID_ARGUMENT);                                                         \
        if (!strstr(refusal.message, words))                                                                           \
            fail_msg("'%s' is not in: %s", words, refusal.message);                                                    \
    } while (0)

static void test_pack_refusals(void **state)
{
    unsigned char codes[6] = {0}, packed[8] = {7};
    const qobs_pack_args good = {sizeof good, 4, 1, 2, 3, 32, 8, codes, sizeof codes, packed, sizeof packed};
    qobs_pack_args a;
#define WRONG(member, value, words)                                                                                    \
    a = good;                                                                                                          \
    a.member = value;                                                                                                  \
    REFUSED(qobs_pack(&a, &refusal), words);                                                                           \
    REFUSED(qobs_unpack(&a, &refusal), words)
    WRONG(bits, 0, "bits: is 0, allowed are 1 to 8");
    WRONG(bits, 9, "bits: is 9");
    WRONG(dim, 2, "dim: is 2, allowed are 0 to 1");
    WRONG(rows, -1, "rows: is -1");
    WRONG(columns, INT64_MAX, "columns: is 9223372036854775807");
    WRONG(word_bits, 16, "word_bits: is 16, allowed are 32, and 8");
    WRONG(offset, 129, "offset: is 129, allowed are 0 and 8");
    WRONG(offset, 1, "offset: is 1, allowed are 0 and 8");
    WRONG(codes_size, 5, "codes: has 5 bytes, needed are 6");
    WRONG(packed_size, 4, "packed: has 4 bytes, needed are 8");
    a = good;
    a.dim = 0;
    a.word_bits = 8;
    REFUSED(qobs_pack(&a, &refusal), "word_bits: is 8");
    a = good;
    codes[4] = 8;
    REFUSED(qobs_pack(&a, &refusal), "codes: [4] is 8, allowed are -8 to 7");
    codes[4] = 0xf7;
    REFUSED(qobs_pack(&a, &refusal), "codes: [4] is -9, allowed are -8 to 7");
    a.offset = 0;
    codes[4] = 16;
    REFUSED(qobs_pack(&a, &refusal), "codes: [4] is 16, allowed are 0 to 15");
    assert_int_equal(packed[0], 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_streams), cmocka_unit_test(test_known_stream),
                                       cmocka_unit_test(test_pack_refusals)};
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL) != 0;
}

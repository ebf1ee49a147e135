/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Merge, save and load: sharding the batches over observers and merging is what upstream's distributed reduction is; a
 * saved state comes back bit for bit, and nothing that is not exactly one is taken. */
#include <math.h>

#include "observing.h"

enum { ROWS = 6, COLUMNS = 24, BATCHES = 5 };

static const struct {
    const char *preset, *settings;
} kinds[] = {
    {"llmc.memoryless_minmax", "base_name=input;strategy=group;group_size=8"},
    {"llmc.static_minmax", "base_name=input;strategy=group;group_size=8;symmetric=false"},
    {"llmc.minmax", "base_name=input;strategy=tensor;averaging_constant=0.25"},
    {"llmc.static_minmax",
     "strategy=tensor_group;group_size=8;type=float;num_bits=4;scale_dtype=float8_e4m3fn;version=2025-10"},
    {"llmc.memoryless_mse", "base_name=input;strategy=group;group_size=8;num_bits=4"},
    {"llmc.mse", "base_name=input;strategy=group;group_size=8;averaging_constant=0.5"},
    {"llmc.mse", "strategy=tensor_group;group_size=8;type=float;num_bits=4;version=2025-10"},
    {"llmc.imatrix_mse", "group_size=8;num_bits=4"},
    {"torch.MinMaxObserver", "dtype=qint8;qscheme=per_tensor_symmetric"},
    {"torch.MovingAverageMinMaxObserver", "averaging_constant=0.5"},
    {"torch.PerChannelMinMaxObserver", "ch_axis=1"},
    {"torch.MovingAveragePerChannelMinMaxObserver", "ch_axis=-1;averaging_constant=0.3"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static qobs_observer *make_kind(size_t kind) { return make(kinds[kind].preset, kinds[kind].settings); }

static float value_of(int batch, int i) { return (float)((batch * 7919 + i * 104729) % 1000 - 400) / 64; }

static void observe_batch(qobs_observer *o, int batch)
{
    float x[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = value_of(batch, i);
    assert_ok(observe(o, ROWS, COLUMNS, x));
}

/* Every result of both, bit for bit. */
static void expect_same(const qobs_observer *a, const qobs_observer *b)
{
    const size_t n = qobs_observer_result_count(a);
    assert_int_equal(n, qobs_observer_result_count(b));
    for (size_t i = 0; i < n; i++) {
        qobs_result ra = {.struct_size = sizeof ra}, rb = ra;
        unsigned char da[1024], db[1024];
        assert_ok(qobs_observer_result_info(a, i, &ra, &error));
        assert_ok(qobs_observer_result_info(b, i, &rb, &error));
        assert_string_equal(ra.name, rb.name);
        assert_int_equal(ra.size, rb.size);
        assert_true(ra.size <= sizeof da);
        assert_ok(qobs_observer_read(a, ra.name, da, ra.size, &error));
        assert_ok(qobs_observer_read(b, rb.name, db, rb.size, &error));
        assert_memory_equal(da, db, ra.size);
    }
}

static unsigned char *save(const qobs_observer *o, size_t *size)
{
    unsigned char *bytes = saved_state(o, size);
    assert_refused(qobs_observer_save(o, bytes, *size - 1, &error), QOBS_ERROR_INVALID_ARGUMENT, "size");
    return bytes;
}

static void test_round_trip(void **state)
{
    for (size_t k = 0; k < KINDS; k++)
        for (int batches = 0; batches <= 2; batches++) {
            qobs_observer *o = make_kind(k), *back = NULL;
            for (int b = 0; b < batches; b++)
                observe_batch(o, b);
            size_t size;
            unsigned char *bytes = save(o, &size);
            assert_ok(qobs_observer_load(&back, bytes, size, NULL, &error));
            expect_same(o, back);
            qobs_counts was = {.struct_size = sizeof was}, is = was;
            assert_ok(qobs_observer_counts(o, &was, &error));
            assert_ok(qobs_observer_counts(back, &is, &error));
            assert_memory_equal(&was, &is, sizeof was);
            /* and it goes on as if nothing had been */
            observe_batch(o, 4);
            observe_batch(back, 4);
            expect_same(o, back);
            qobs_observer_destroy(back);
            qobs_observer_destroy(o);
            free(bytes);
        }
}

static void test_damage(void **state)
{
    for (size_t k = 0; k < KINDS; k++) {
        qobs_observer *o = make_kind(k), *back = NULL;
        observe_batch(o, 0);
        size_t size;
        unsigned char *bytes = save(o, &size);
        for (size_t i = 0; i < size; i++)
            for (int bit = 0; bit < 8; bit++) {
                bytes[i] ^= (unsigned char)(1 << bit);
                assert_true(qobs_observer_load(&back, bytes, size, NULL, &error) < 0);
                assert_non_null(strstr(error.message, "buffer"));
                assert_null(back);
                bytes[i] ^= (unsigned char)(1 << bit);
            }
        for (size_t shorter = 0; shorter < size; shorter++)
            assert_true(qobs_observer_load(&back, bytes, shorter, NULL, &error) < 0);
        assert_refused(qobs_observer_load(&back, NULL, 0, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "buffer");
        free(bytes);
        qobs_observer_destroy(o);
    }
}

/* Observer i of three sees batches i and i + 3; the rule of the merge is rebuilt from their own ranges. */
static void test_merge(void **state)
{
    for (size_t k = 0; k < KINDS; k++) {
        qobs_observer *shards[3], *all = make_kind(k), *merged = make_kind(k);
        for (int i = 0; i < 3; i++)
            shards[i] = make_kind(k);
        for (int b = 0; b < BATCHES; b++) {
            observe_batch(shards[b % 3], b);
            observe_batch(all, b);
        }
        qobs_result range = {.struct_size = sizeof range};
        const char *names[2] = {strncmp(kinds[k].preset, "llmc", 4) == 0 ? "min_vals" : "min_val",
                                strncmp(kinds[k].preset, "llmc", 4) == 0 ? "max_vals" : "max_val"};
        float own[3][2][64], got[2][64];
        assert_ok(qobs_observer_result_find(all, names[0], &range, &error));
        for (int i = 0; i < 3; i++)
            for (int bound = 0; bound < 2; bound++)
                assert_ok(qobs_observer_read(shards[i], names[bound], own[i][bound], range.size, &error));
        assert_ok(qobs_observer_merge(merged, (const qobs_observer *const *)shards, 3, &error));
        assert_ok(qobs_observer_read(merged, names[0], got[0], range.size, &error));
        assert_ok(qobs_observer_read(merged, names[1], got[1], range.size, &error));
        const bool mean = strstr(kinds[k].preset, "MovingAverage") || strcmp(kinds[k].preset, "llmc.minmax") == 0 ||
                          strcmp(kinds[k].preset, "llmc.mse") == 0;
        const bool running = !mean && !strstr(kinds[k].preset, "memoryless") && !strstr(kinds[k].preset, "imatrix");
        for (size_t q = 0; q < range.size / sizeof(float); q++) {
            const float *lo[3] = {&own[0][0][q], &own[1][0][q], &own[2][0][q]};
            const float *hi[3] = {&own[0][1][q], &own[1][1][q], &own[2][1][q]};
            if (mean) {
                assert_true(got[0][q] == (float)(((double)*lo[0] + (double)*lo[1] + (double)*lo[2]) / 3));
                assert_true(got[1][q] == (float)(((double)*hi[0] + (double)*hi[1] + (double)*hi[2]) / 3));
            } else if (running) {
                assert_true(got[0][q] == fminf(*lo[0], fminf(*lo[1], *lo[2])));
                assert_true(got[1][q] == fmaxf(*hi[0], fmaxf(*hi[1], *hi[2])));
            } else {
                assert_true(got[0][q] == *lo[0] && got[1][q] == *hi[0]);
            }
        }
        if (running && !strstr(kinds[k].settings, "2025")) /* sharded or not, the same */
            expect_same(all, merged);
        qobs_counts counts = {.struct_size = sizeof counts};
        assert_ok(qobs_observer_counts(merged, &counts, &error));
        uint64_t batches = 0; /* of weights each shard takes one */
        for (int i = 0; i < 3; i++) {
            batches += counts_of(shards[i]).batches;
            qobs_observer_destroy(shards[i]);
        }
        assert_int_equal(counts.batches, batches);
        qobs_observer_destroy(all);
        qobs_observer_destroy(merged);
    }
}

static void test_refusals(void **state)
{
    qobs_observer *a = make_kind(1), *b = make_kind(2), *c = make_kind(1);
    observe_batch(a, 0);
    observe_batch(b, 0);
    const qobs_observer *others[] = {b};
    assert_refused(qobs_observer_merge(a, others, 1, &error), QOBS_ERROR_INVALID_ARGUMENT, "others[0]|preset is|llmc.static_minmax");
    others[0] = a;
    assert_refused(qobs_observer_merge(a, others, 1, &error), QOBS_ERROR_INVALID_ARGUMENT, "others[0]|itself");
    others[0] = NULL;
    assert_refused(qobs_observer_merge(a, others, 1, &error), QOBS_ERROR_INVALID_ARGUMENT, "others[0]|NULL");
    float x[2 * 16] = {1};
    assert_ok(observe(c, 2, 16, x));
    others[0] = c;
    assert_refused(qobs_observer_merge(a, others, 1, &error), QOBS_ERROR_INVALID_ARGUMENT, "others[0]|2 qparams|3");
    assert_ok(qobs_observer_merge(a, NULL, 0, &error));
    qobs_observer_destroy(a);
    qobs_observer_destroy(b);
    qobs_observer_destroy(c);
}

/* Size and checksum made right again. */
static void repair(unsigned char *bytes, size_t size)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < 8; i++)
        bytes[8 + i] = (unsigned char)((uint64_t)size >> 8 * i);
    for (size_t i = 0; i < size - 8; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < 8; i++)
        bytes[size - 8 + i] = (unsigned char)(h >> 8 * i);
}

/* A cut state and one with other bytes are named as that, with the sizes. */
static void test_words_of_damage(void **state)
{
    qobs_observer *o = make("llmc.minmax", "base_name=input"), *back = NULL;
    assert_ok(observe(o, 1, 2, F32(1, 2)));
    size_t size;
    unsigned char *bytes = save(o, &size), longer[2048] = {0};
    char words[64];
    assert_true(size < sizeof longer);
    memcpy(longer, bytes, size);
    snprintf(words, sizeof words, "buffer: is cut|%zu of the %zu bytes|again", size / 2, size);
    assert_refused(qobs_observer_load(&back, bytes, size / 2, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, words);
    assert_refused(qobs_observer_load(&back, longer, size + 1, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "buffer: is damaged|more bytes|again");
    bytes[size / 2] ^= 0x40;
    assert_refused(qobs_observer_load(&back, bytes, size, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "buffer: is damaged|checksum|again");
    assert_null(back);
    free(bytes);
    qobs_observer_destroy(o);
}

/* Settings a configuration would take are refused where they are not written as they are saved. */
static void test_texts(void **state)
{
    static const char *const texts[][2] = {{"num_bits=8\n", "num_bits=+8\n"},
                                           {"averaging_constant=0.01\n", "averaging_constant=1e-2\n"},
                                           {"dynamic=false\nscale_dtype=null\n", "scale_dtype=null\ndynamic=false\n"},
                                           {"dynamic=false\n", "dynamic=false\ndynamic=false\n"}};
    qobs_observer *o = make("llmc.minmax", "base_name=input"), *back = NULL;
    assert_ok(observe(o, 1, 2, F32(1, 2)));
    size_t size;
    unsigned char *bytes = save(o, &size);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        unsigned char changed[2048];
        const size_t old = strlen(texts[i][0]), new = strlen(texts[i][1]);
        size_t at = 20;
        while (memcmp(bytes + at, texts[i][0], old) != 0)
            at++;
        assert_true(size + new - old <= sizeof changed &&at + old < size);
        memcpy(changed, bytes, at);
        memcpy(changed + at, texts[i][1], new);
        memcpy(changed + at + new, bytes + at + old, size - at - old);
        const size_t length = (size_t)(bytes[16] | bytes[17] << 8) + new - old;
        changed[16] = (unsigned char)length;
        changed[17] = (unsigned char)(length >> 8);
        repair(changed, size + new - old);
        assert_refused(qobs_observer_load(&back, changed, size + new - old, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                       "buffer|saved");
        assert_null(back);
    }
    free(bytes);
    qobs_observer_destroy(o);
}

/* Ignored tensors are saved, loaded and merged. Format 2 has no such count. */
static void test_ignored(void **state)
{
    enum { LENGTH = 16, COUNTS = 6 * 8 };
    qobs_observer *o = make("llmc.static_minmax", "base_name=weight"), *same = NULL, *old = NULL;
    for (int i = 0; i < 4; i++)
        assert_ok(observe(o, 1, 2, F32(1, 2)));
    assert_true(counts_of(o).batches == 1 && counts_of(o).ignored == 3);
    size_t size;
    unsigned char *bytes = save(o, &size);
    assert_int_equal(bytes[4], 3);
    assert_ok(qobs_observer_load(&same, bytes, size, NULL, &error));
    assert_true(counts_of(same).batches == 1 && counts_of(same).ignored == 3);
    assert_ok(qobs_observer_merge(o, (const qobs_observer *const *)&same, 1, &error));
    assert_true(counts_of(o).batches == 2 && counts_of(o).ignored == 6);

    const size_t at = 20 + (size_t)(bytes[LENGTH] | bytes[LENGTH + 1] << 8) + COUNTS;
    memmove(bytes + at, bytes + at + 8, size - at - 8);
    size -= 8;
    bytes[4] = 2;
    repair(bytes, size);
    assert_ok(qobs_observer_load(&old, bytes, size, NULL, &error));
    assert_true(counts_of(old).batches == 1 && counts_of(old).ignored == 0);
    for (unsigned char format = 1; format < 5; format += 3) {
        bytes[4] = format;
        repair(bytes, size);
        assert_refused(qobs_observer_load(&same, bytes, size, NULL, &error), QOBS_ERROR_UNSUPPORTED, "format|2 to 3");
    }
    free(bytes);
    qobs_observer_destroy(o);
    qobs_observer_destroy(same);
    qobs_observer_destroy(old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_damage),   cmocka_unit_test(test_texts),
        cmocka_unit_test(test_words_of_damage),
        cmocka_unit_test(test_merge),      cmocka_unit_test(test_refusals), cmocka_unit_test(test_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

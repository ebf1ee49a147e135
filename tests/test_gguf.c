/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of GGUF types: hashes of ggml's bytes and numbers (tests/golden/gguf_blocks.txt, which tests/gguf_judge.py
 * records) on every usable instruction set, what is refused, dtypes and threads. */
#include "gguf_rows.h"
#include "kernels/dispatch.h"
#include "qobs/gguf.h"
#include "threads.h"
#include "unit.h"

enum { ROWS = 3, COLUMNS = 2304, ELEMENTS = ROWS * COLUMNS };

static float value[ELEMENTS], numbers[ELEMENTS], importance[COLUMNS];
static unsigned char blocks[4 * ELEMENTS];

static qobs_gguf_type described(const char *name)
{
    qobs_gguf_type type = {.struct_size = sizeof type};
    assert_int_equal(qobs_gguf_describe_type(name, &type, NULL), QOBS_OK);
    return type;
}

static qobs_gguf_quantize_args arguments(const char *name)
{
    const qobs_gguf_type type = described(name);
    return (qobs_gguf_quantize_args){.struct_size = sizeof(qobs_gguf_quantize_args),
                                     .type = name,
                                     .dtype = QOBS_F32,
                                     .rows = ROWS,
                                     .columns = COLUMNS,
                                     .value = value,
                                     .out = blocks,
                                     .out_size = (size_t)(ELEMENTS / type.block_elements) * type.block_size};
}

/* The hash of numbers as little-endian floats. */
static uint64_t hash_of_numbers(const char *name, size_t size)
{
    static unsigned char bytes[sizeof numbers];
    const qobs_gguf_dequantize_args a = {.struct_size = sizeof a,
                                         .type = name,
                                         .rows = ROWS,
                                         .columns = COLUMNS,
                                         .blocks = blocks,
                                         .blocks_size = size,
                                         .out = numbers,
                                         .out_size = sizeof numbers};
    assert_int_equal(qobs_gguf_dequantize(&a, NULL), QOBS_OK);
    for (size_t i = 0; i < ELEMENTS; i++)
        for (size_t k = 0; k < 4; k++)
            bytes[4 * i + k] = (unsigned char)(bits_of_float(numbers[i]) >> 8 * k);
    return gguf_hash(bytes, sizeof bytes);
}

/* Infinite scales are refused; NaN among them have the sign that the processor gives them. */
static void check_case(const char *name, int weights, int kind, uint64_t of_blocks, const char *of_numbers)
{
    const bool refused = strcmp(of_numbers, "refused") == 0;
    qobs_gguf_quantize_args a = arguments(name);
    qobs_error error;
    gguf_fill(value, ELEMENTS, kind);
    if (weights >= 0) {
        gguf_fill_importance(importance, COLUMNS, weights);
        a.importance = importance;
    }
    for (size_t i = 0; select_isa(&i); i++) {
        memset(blocks, 0x5a, sizeof blocks);
        const int status = qobs_gguf_quantize(&a, &error);
        const uint64_t got = gguf_hash(blocks, a.out_size),
                       got_numbers = refused ? 0 : hash_of_numbers(name, a.out_size);
        if (status != (refused ? QOBS_ERROR_NONFINITE : QOBS_OK) || (!refused && got != of_blocks) ||
            got_numbers != (refused ? 0 : strtoull(of_numbers, NULL, 16)))
            fail_msg("%s, importance %d, rows %d, %s: status %d, blocks %016llx", name, weights, kind, qobs_isa_name(i),
                     status, (unsigned long long)got);
    }
    qobs_isa_select(NULL, NULL);
}

static void test_golden(void **state)
{
    char name[16], of_numbers[20];
    int weights, cases = 0;
    unsigned long long of_blocks;
    FILE *const file = fopen(QOBS_GOLDEN_DIR "/gguf_blocks.txt", "r");
    assert_non_null(file);
    for (; fscanf(file, "%15s %d", name, &weights) == 2; cases++)
        for (int kind = 0; kind < GGUF_KINDS; kind++) {
            assert_int_equal(fscanf(file, "%llx %19s", &of_blocks, of_numbers), 2);
            check_case(name, weights, kind, of_blocks, of_numbers);
        }
    assert_true(feof(file) && cases > 50);
    fclose(file);
}

static void test_types(void **state)
{
    size_t made = 0, i = 0;
    qobs_error error;
    for (; qobs_gguf_type_name(i); i++)
        made += described(qobs_gguf_type_name(i)).made;
    assert_null(qobs_gguf_type_name(i + 9));
    assert_int_equal(made, 21);
    assert_int_equal(i, 35);
    assert_string_equal(described("q4_k").name, "Q4_K");
    assert_int_equal(described("Q6_K").number, 14);
    assert_int_equal(described("Q6_K").uses_importance, 1);
    assert_int_equal(described("Q8_0").uses_importance, 0);
    qobs_gguf_type type = {.struct_size = sizeof type};
    assert_int_equal(qobs_gguf_describe_type("Q4_KM", &type, &error), QOBS_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "name: 'Q4_KM'"));
    assert_non_null(strstr(error.message, "Q6_K"));
}

static void refused(const qobs_gguf_quantize_args *a, int status, const char *begins)
{
    qobs_error error;
    assert_int_equal(qobs_gguf_quantize(a, &error), status);
    if (strncmp(error.message, begins, strlen(begins)) != 0)
        fail_msg("'%s' does not begin with '%s'", error.message, begins);
}

static void test_refusals(void **state)
{
    qobs_gguf_quantize_args a = arguments("Q4_K");
    gguf_fill(value, ELEMENTS, 1);
    value[COLUMNS + 7] = NAN;
    refused(&a, QOBS_ERROR_NONFINITE, "value: row 1, column 7 is NaN");
    value[COLUMNS + 7] = -INFINITY;
    refused(&a, QOBS_ERROR_NONFINITE, "value: row 1, column 7 is infinite");
    value[COLUMNS + 7] = 3e38f;
    refused(&a, QOBS_ERROR_NONFINITE, "value: row 1 is too large for Q4_K");
    value[COLUMNS + 7] = 0;
    importance[5] = -1;
    a.importance = importance;
    refused(&a, QOBS_ERROR_INVALID_ARGUMENT, "importance: [5] is -1");
    importance[5] = INFINITY;
    refused(&a, QOBS_ERROR_INVALID_ARGUMENT, "importance: [5] is inf");
    a = arguments("Q4_K");
    a.columns = 2303;
    refused(&a, QOBS_ERROR_INVALID_ARGUMENT, "columns: is 2303, Q4_K needs a multiple of 256");
    a = arguments("Q4_K");
    a.out_size--;
    refused(&a, QOBS_ERROR_INVALID_ARGUMENT, "out: has 3887 bytes, expected 3888");
    a = arguments("Q4_K");
    a.rows = -1;
    refused(&a, QOBS_ERROR_INVALID_ARGUMENT, "rows: is -1");
    a.rows = INT64_C(1) << 50;
    refused(&a, QOBS_ERROR_INVALID_ARGUMENT, "rows: ");
    a = arguments("Q4_K");
    a.dtype = QOBS_F64;
    refused(&a, QOBS_ERROR_INVALID_ARGUMENT, "dtype: is F64");
    a = arguments("Q4_K");
    a.search = "best";
    refused(&a, QOBS_ERROR_INVALID_ARGUMENT, "search: is 'best', allowed are ggml and optimal");
    a.search = NULL;
    a.type = "IQ2_XS";
    refused(&a, QOBS_ERROR_UNSUPPORTED, "type: IQ2_XS");
    a.type = "Q4";
    refused(&a, QOBS_ERROR_INVALID_ARGUMENT, "type: 'Q4' is no type");
}

/* Any number of threads, and halves in place of the same floats. */
static void test_threads_and_halves(void **state)
{
    enum { MANY = 100 };
    static float many[MANY * COLUMNS];
    static uint16_t halves[MANY * COLUMNS];
    static unsigned char expected[MANY * COLUMNS], got[MANY * COLUMNS];
    qobs_gguf_quantize_args a = arguments("Q5_K");
    gguf_fill(many, MANY * COLUMNS, 0);
    gguf_fill_importance(importance, COLUMNS, 0);
    for (size_t i = 0; i < MANY * COLUMNS; i++)
        halves[i] = bf16_of_float(many[i]);
    a.importance = importance;
    a.rows = MANY;
    a.out_size = a.out_size / ROWS * MANY;
    a.value = many;
    a.out = expected;
    assert_int_equal(qobs_gguf_quantize(&a, NULL), QOBS_OK);
    a.value = halves;
    a.dtype = QOBS_BF16;
    a.out = got;
    for (size_t threads = 1; threads < 6; threads++) {
        const qobs_executor executor = {sizeof executor, threads, parallel_for, &threads};
        const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = &executor};
        a.runtime = &runtime;
        memset(got, 0, a.out_size);
        assert_int_equal(qobs_gguf_quantize(&a, NULL), QOBS_OK);
        assert_memory_equal(got, expected, a.out_size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_threads_and_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes of GGUF types by descent: scales and minima stay, the error of the outputs falls and is what the report says,
 * no single code lowers it further, and blocks have the same bytes on every instruction set, for every number of
 * threads and however rows come together. */
#include <math.h>

#include "kernels/dispatch.h"
#include "number/gguf_scales.h"
#include "qobs/gguf.h"
#include "quantize/gguf_numbers.h"
#include "threads.h"
#include "unit.h"

enum {
    ROWS = 6,
    COLUMNS = 512,
    ELEMENTS = ROWS * COLUMNS,
    INPUTS = 600,
    TIMES = 1024,
    TOKENS = INPUTS * TIMES,
    PASSES = 50
};

static float value[ELEMENTS], numbers[ELEMENTS], importance[COLUMNS];
static double hessian[COLUMNS][COLUMNS];
static unsigned char nearest[4 * ELEMENTS], blocks[4 * ELEMENTS], other[4 * ELEMENTS];
static int64_t tokens = TOKENS; /* that a call is told */

/* The mean of H as the descent counts it: products of two columns are shrunk. */
static double mean_of(int j, int k)
{
    const double few = 2 * sqrt((double)COLUMNS / TOKENS);
    return hessian[j][k] / TOKENS * (j == k ? 1 : 1 - few / (1 + few));
}

static size_t bytes_of(const struct gguf_type *type, int64_t rows)
{
    return (size_t)(rows * COLUMNS / type->elements) * type->bytes;
}

static float random_number(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
        sum += (float)(*state >> 40) * 0x1p-24f - 0.5f;
    }
    return sum;
}

/* Rows with outliers, and a Hessian of inputs whose columns go together, each seen several times. */
static int fill(void **unused)
{
    static float input[COLUMNS];
    uint64_t state = 1;
    for (int i = 0; i < ELEMENTS; i++)
        value[i] = random_number(&state) * (i % 97 == 0 ? 0.3f : 0.05f);
    for (int t = 0; t < INPUTS; t++) {
        const float common = 2 * random_number(&state);
        for (int j = 0; j < COLUMNS; j++)
            input[j] = random_number(&state) * (j % 31 == 0 ? 4 : 1) + common;
        for (int j = 0; j < COLUMNS; j++)
            for (int k = 0; k < COLUMNS; k++)
                hessian[j][k] += TIMES * (double)input[j] * (double)input[k];
    }
    for (int j = 0; j < COLUMNS; j++)
        importance[j] = (float)(hessian[j][j] / TOKENS);
    return 0;
}

static int quantize(const struct gguf_type *type, int64_t first, int64_t rows, int64_t n, const qobs_runtime *runtime,
                    unsigned char *out, qobs_round_report *report, qobs_error *error)
{
    static double part[COLUMNS][COLUMNS]; /* n: columns of a block of H; 0: without */
    const int64_t shape[3] = {n > 0 ? COLUMNS / n : 0, n, n};
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t j = 0; j < n; j++)
            memcpy((double *)part + (b * n + j) * n, &hessian[b * n + j][b * n], (size_t)n * sizeof(double));
    const qobs_tensor h = {.struct_size = sizeof h, .data = part, .dtype = QOBS_F64, .ndim = 3, .shape = shape};
    const qobs_gguf_quantize_args a = {.struct_size = sizeof a,
                                       .type = type->name,
                                       .dtype = QOBS_F32,
                                       .rows = rows,
                                       .columns = COLUMNS,
                                       .value = value + first * COLUMNS,
                                       .importance = importance,
                                       .out = out + bytes_of(type, first),
                                       .out_size = bytes_of(type, rows),
                                       .runtime = runtime,
                                       .hessian = n > 0 ? &h : NULL,
                                       .hessian_count = tokens,
                                       .passes = report ? PASSES : 2,
                                       .report = report};
    return qobs_gguf_quantize(&a, error);
}

/* d H d^T of a row, d to `d` and d H to `product`. */
static double row_error(int64_t row, double d[COLUMNS], double product[COLUMNS])
{
    double sum = 0;
    for (int j = 0; j < COLUMNS; j++)
        d[j] = (double)value[row * COLUMNS + j] - (double)numbers[row * COLUMNS + j];
    for (int j = 0; j < COLUMNS; j++) {
        double whole = 0;
        product[j] = 0;
        for (int k = 0; k < COLUMNS; k++) {
            product[j] += d[k] * mean_of(k, j);
            whole += d[k] * hessian[k][j] / TOKENS;
        }
        sum += d[j] * whole;
    }
    return sum;
}

static double read_error(const struct gguf_type *type, const unsigned char *from)
{
    static double d[COLUMNS], product[COLUMNS];
    const qobs_gguf_dequantize_args a = {.struct_size = sizeof a,
                                         .type = type->name,
                                         .rows = ROWS,
                                         .columns = COLUMNS,
                                         .blocks = from,
                                         .blocks_size = bytes_of(type, ROWS),
                                         .out = numbers,
                                         .out_size = sizeof numbers};
    double sum = 0;
    assert_int_equal(qobs_gguf_dequantize(&a, NULL), QOBS_OK);
    for (int64_t row = 0; row < ROWS; row++)
        sum += row_error(row, d, product);
    return sum;
}

/* Scales and minima are what is left of blocks whose codes are 0. */
static void check_scales(const struct gguf_type *type)
{
    static const unsigned char zeros[GGUF_MOST_ELEMENTS];
    memcpy(other, blocks, bytes_of(type, ROWS));
    for (int64_t at = 0; at < ELEMENTS / type->elements; at++) {
        qobs_gguf_put_codes(type, zeros, nearest + (size_t)at * type->bytes);
        qobs_gguf_put_codes(type, zeros, other + (size_t)at * type->bytes);
    }
    assert_memory_equal(nearest, other, bytes_of(type, ROWS));
}

/* Any other code of an element of the blocks, alone, has no smaller error. */
static void check_codes(const struct gguf_type *type, double error)
{
    static double d[COLUMNS], product[COLUMNS];
    const int top = type->plane[0].bits == 8 ? 255 : type->top;
    float scale[GGUF_MOST_RUNS], minimum[GGUF_MOST_RUNS];
    for (int64_t row = 0; row < ROWS; row++) {
        row_error(row, d, product);
        for (int j = 0; j < COLUMNS; j++) {
            const int64_t element = row * COLUMNS + j, block = element / type->elements;
            const double h = mean_of(j, j);
            gguf_run_scales(type, blocks + (size_t)block * type->bytes, scale, minimum);
            const double s = (double)scale[element % type->elements / type->run];
            const double m = (double)minimum[element % type->elements / type->run];
            for (int code = 0; code <= top; code++) {
                const float n = qobs_gguf_number(type, (unsigned char)code);
                const double step = (double)value[element] - ((double)n * s - m) - d[j];
                const double rise = step * (2 * product[j] + h * step);
                if (n > -128 && rise < -1e-5 * error)
                    fail_msg("%s: row %d, column %d: code %d lowers %g by %g", type->name, (int)row, j, code, error,
                             -rise);
            }
        }
    }
}

static void test_types(void **unused)
{
    size_t count = 0;
    for (const struct gguf_type *type = qobs_gguf_types; type->name; type++) {
        qobs_gguf_type about = {.struct_size = sizeof about};
        qobs_round_report report = {.struct_size = sizeof report};
        assert_int_equal(qobs_gguf_describe_type(type->name, &about, NULL), QOBS_OK);
        if (!about.rounds)
            continue;
        count++;
        assert_int_equal(quantize(type, 0, ROWS, 0, NULL, nearest, NULL, NULL), QOBS_OK);
        assert_int_equal(quantize(type, 0, ROWS, COLUMNS, NULL, blocks, &report, NULL), QOBS_OK);
        const double before = read_error(type, nearest), after = read_error(type, blocks);
        if (!(fabs(report.error_before - before) <= 1e-4 * before) || !(fabs(report.error - after) <= 1e-3 * after))
            fail_msg("%s: reported %g to %g, found %g to %g", type->name, report.error_before, report.error, before,
                     after);
        if (!(after < 0.75 * before) || report.changed == 0 || report.passes < 2)
            fail_msg("%s: %g of %g, %d passes", type->name, after, before, report.passes);
        double energy = 0;
        for (int i = 0; i < ELEMENTS; i++)
            energy += (double)value[i] * (double)value[i];
        assert_true(fabs(report.energy - energy) <= 1e-9 * energy);
        check_codes(type, after);
        check_scales(type);
    }
    assert_int_equal(count, 14);
}

/* Fewer tokens change fewer codes; products of columns count as if the caller had shrunk them. One token
 * says that their number is not known. */
static void test_tokens(void **unused)
{
    static const int64_t counts[] = {2, COLUMNS / 16, COLUMNS, 64 * COLUMNS, 1};
    static double saved[COLUMNS][COLUMNS];
    const struct gguf_type *type = qobs_find_gguf_type("Q4_K");
    qobs_round_report report = {.struct_size = sizeof report};
    uint64_t changed = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++, changed = report.changed) {
        tokens = counts[i];
        assert_int_equal(quantize(type, 0, ROWS, COLUMNS, NULL, other, &report, NULL), QOBS_OK);
        assert_true(report.changed > changed);
    }
    memcpy(saved, hessian, sizeof saved);
    for (int j = 0; j < COLUMNS; j++)
        for (int k = 0; k < COLUMNS; k++)
            hessian[j][k] *= j == k ? 1 : 1 - 2.0 / 3; /* of a token a column */
    const int status = quantize(type, 0, ROWS, COLUMNS, NULL, other, NULL, NULL);
    memcpy(hessian, saved, sizeof saved);
    assert_int_equal(status, QOBS_OK);
    tokens = COLUMNS;
    assert_int_equal(quantize(type, 0, ROWS, COLUMNS, NULL, blocks, NULL, NULL), QOBS_OK);
    assert_memory_equal(blocks, other, bytes_of(type, ROWS));
    tokens = TOKENS;
}

/* Blocks of H, rows in parts, threads, instruction sets. */
static void test_same_bytes(void **unused)
{
    static const char *const names[] = {"Q4_K", "Q8_0", "IQ4_XS"};
    size_t threads = 3;
    const qobs_executor executor = {sizeof executor, threads, parallel_for, &threads};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = &executor};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct gguf_type *type = qobs_find_gguf_type(names[i]);
        for (int64_t n = COLUMNS / 4; n <= COLUMNS; n *= 4) {
            assert_int_equal(quantize(type, 0, ROWS, n, NULL, blocks, NULL, NULL), QOBS_OK);
            for (size_t isa = 0; select_isa(&isa); isa++) {
                assert_int_equal(quantize(type, 0, ROWS, n, &runtime, other, NULL, NULL), QOBS_OK);
                assert_memory_equal(blocks, other, bytes_of(type, ROWS));
            }
            qobs_isa_select(NULL, NULL);
            assert_int_equal(quantize(type, 0, 4, n, NULL, other, NULL, NULL), QOBS_OK);
            assert_int_equal(quantize(type, 4, 2, n, NULL, other, NULL, NULL), QOBS_OK);
            assert_memory_equal(blocks, other, bytes_of(type, ROWS));
        }
    }
}

static void test_refused(void **unused)
{
    static const char *const without[] = {"F16", "F32", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0"};
    qobs_error error = {0};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        assert_int_equal(quantize(qobs_find_gguf_type(without[i]), 0, ROWS, COLUMNS, NULL, blocks, NULL, &error),
                         QOBS_ERROR_UNSUPPORTED);
        assert_memory_equal(error.message, "hessian: ", 9);
    }
    const struct gguf_type *type = qobs_find_gguf_type("Q4_K");
    hessian[5][9] = NAN;
    assert_int_equal(quantize(type, 0, ROWS, COLUMNS, NULL, blocks, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.message, "hessian: [0][5][9] is nan, allowed are finite numbers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_tokens),
                                       cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, fill, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The Gram of activations as an observer of qobs.local_hessian collects it: sums as the specification orders them, with
 * the same bits on every instruction set and number of threads; merged, saved and cloned; unusable ones. */
#include <math.h>

#include "check/fused.h"
#include "number/number.h"
#include "qobs/qobs.h"
#include "threads.h"
#include "unit.h"

enum { MOST_COLUMNS = 300, MOST_TOKENS = 150, CHUNK = 64 };

static float activations[MOST_TOKENS * MOST_COLUMNS];

static void make_activations(size_t n)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        activations[i] = (float)(int32_t)state * 0x1p-30f;
    }
}

static qobs_observer *open_observer(const char *text, const qobs_runtime *runtime)
{
    qobs_observer *o;
    qobs_error error;
    if (qobs_observer_open(&o, text, runtime, &error) != QOBS_OK)
        fail_msg("%s: %s", text, error.message);
    return o;
}

static void add(qobs_observer *o, const void *data, qobs_dtype dtype, int64_t tokens, int64_t columns)
{
    qobs_error error;
    const qobs_tensor x = {
        .struct_size = sizeof x, .data = data, .dtype = dtype, .ndim = 2, .shape = (const int64_t[]){tokens, columns}};
    if (qobs_observer_observe_importance(o, &x, &error) != QOBS_OK)
        fail_msg("%s", error.message);
}

/* Reads hessian_sum, which the caller frees. */
static double *read_sums(const qobs_observer *o, qobs_result *info)
{
    qobs_error error;
    *info = (qobs_result){.struct_size = sizeof *info};
    if (qobs_observer_result_find(o, "hessian_sum", info, &error) != QOBS_OK)
        fail_msg("%s", error.message);
    double *sums = malloc(info->size);
    assert_non_null(sums);
    assert_int_equal(qobs_observer_read(o, "hessian_sum", sums, info->size, &error), QOBS_OK);
    return sums;
}

static int64_t read_count(const qobs_observer *o)
{
    int64_t count = -1;
    assert_int_equal(qobs_observer_read(o, "hessian_count", &count, sizeof count, NULL), QOBS_OK);
    return count;
}

/* Adds a batch to the sum of two columns. */
static double add_pair(double sum, const float *x, int64_t tokens, int64_t columns, int64_t j, int64_t k)
{
    for (int64_t first = 0; first < tokens; first += CHUNK) {
        float chunk = 0;
        for (int64_t t = first; t < tokens && t < first + CHUNK; t++)
            chunk = fused(x[t * columns + j], x[t * columns + k], chunk);
        sum += (double)chunk;
    }
    return sum;
}

/* Blocks of `block` columns that start at every multiple of `period`. */
static void check_sums(const char *text, int64_t columns, int64_t block, int64_t period, const qobs_runtime *runtime)
{
    const int64_t first = 70, second = 13;
    qobs_observer *o = open_observer(text, runtime);
    add(o, activations, QOBS_F32, first, columns);
    add(o, activations + first * columns, QOBS_F32, second, columns);
    qobs_result info;
    double *const sums = read_sums(o, &info), *at = sums;
    assert_int_equal(info.ndim, 3);
    assert_int_equal(info.shape[1], block);
    assert_int_equal(info.shape[2], block);
    assert_int_equal(read_count(o), first + second);
    int64_t blocks = 0;
    for (int64_t start = 0; start < columns; start += period)
        for (int64_t b = start; b < start + period && b < columns; b += block, at += block * block, blocks++) {
            const int64_t limit = start + period < columns ? start + period : columns;
            const int64_t width = limit - b < block ? limit - b : block;
            for (int64_t j = 0; j < block; j++)
                for (int64_t k = 0; k < block; k++) {
                    double expected = 0;
                    if (j < width && k < width) {
                        expected = add_pair(0, activations, first, columns, b + j, b + k);
                        expected = add_pair(expected, activations + first * columns, second, columns, b + j, b + k);
                    }
                    assert_true(at[j * block + k] == expected);
                }
        }
    assert_int_equal(info.shape[0], blocks);
    free(sums);
    qobs_observer_destroy(o);
}

static void order_of_sums(void **state)
{
    size_t three = 3;
    const qobs_executor executor = {
        .struct_size = sizeof executor, .context = &three, .parallel_for = parallel_for, .threads = three};
    const qobs_runtime threaded = {.struct_size = sizeof threaded, .executor = &executor};
    make_activations(MOST_TOKENS * MOST_COLUMNS);
    for (size_t i = 0; select_isa(&i); i++) {
        for (int t = 0; t < 2; t++) {
            const qobs_runtime *runtime = t ? &threaded : NULL;
            check_sums("qobs.local_hessian group_size=16", 64, 16, 16, runtime);
            check_sums("qobs.local_hessian group_size=24", 100, 24, 24, runtime);
            check_sums("qobs.local_hessian group_size=64 hessian_block_size=24", 100, 24, 64, runtime);
            check_sums("qobs.local_hessian group_size=32 hessian_block_size=160", 300, 160, 160, runtime);
            check_sums("qobs.local_hessian", 260, 260, 260, runtime);
            check_sums("qobs.local_hessian group_size=128 hessian_block_size=1024", 40, 40, 40, runtime);
        }
    }
    qobs_isa_select(NULL, NULL);
}

/* Half floats and strides give what their numbers give as float. */
static void layouts(void **state)
{
    enum { TOKENS = 6 * 11, COLUMNS = 48 };
    static uint16_t bf16[TOKENS * COLUMNS], f16[TOKENS * COLUMNS];
    static float exact[TOKENS * COLUMNS], turned[TOKENS * COLUMNS];
    make_activations(TOKENS * COLUMNS);
    for (int i = 0; i < TOKENS * COLUMNS; i++) {
        exact[i] = rintf(activations[i] * 64) / 64; /* exact in all */
        bf16[i] = bf16_of_float(exact[i]);
        f16[i] = f16_of_float(exact[i]);
        turned[i % COLUMNS * TOKENS + i / COLUMNS] = exact[i];
    }
    const void *const data[] = {exact, bf16, f16};
    const qobs_dtype dtypes[] = {QOBS_F32, QOBS_BF16, QOBS_F16};
    double *expected = NULL;
    qobs_result info;
    for (int i = 0; i < 4; i++) {
        qobs_observer *o = open_observer("qobs.local_hessian group_size=32", NULL);
        const int64_t shape[] = {6, 11, COLUMNS}, strides[] = {11 * 4, 4, TOKENS * 4};
        const qobs_tensor x = {.struct_size = sizeof x,
                               .data = i == 3 ? turned : data[i],
                               .dtype = i == 3 ? QOBS_F32 : dtypes[i],
                               .ndim = 3,
                               .shape = shape,
                               .strides = i == 3 ? strides : NULL};
        assert_int_equal(qobs_observer_observe_importance(o, &x, NULL), QOBS_OK);
        double *sums = read_sums(o, &info);
        if (expected)
            assert_memory_equal(sums, expected, info.size);
        free(expected);
        expected = sums;
        qobs_observer_destroy(o);
    }
    free(expected);
}

static qobs_observer *saved_and_loaded(const qobs_observer *o)
{
    const size_t size = qobs_observer_save_size(o);
    unsigned char *bytes = malloc(size);
    qobs_observer *loaded;
    qobs_error error;
    assert_non_null(bytes);
    assert_int_equal(qobs_observer_save(o, bytes, size, &error), QOBS_OK);
    if (qobs_observer_load(&loaded, bytes, size, NULL, &error) != QOBS_OK)
        fail_msg("%s", error.message);
    bytes[size / 2] ^= 1;
    qobs_observer *none;
    assert_int_not_equal(qobs_observer_load(&none, bytes, size, NULL, &error), QOBS_OK);
    free(bytes);
    return loaded;
}

static void assert_same_sums(const qobs_observer *a, const qobs_observer *b)
{
    qobs_result x, y;
    double *p = read_sums(a, &x), *q = read_sums(b, &y);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(p, q, x.size);
    assert_int_equal(read_count(a), read_count(b));
    free(p);
    free(q);
}

static void merging_and_saving(void **state)
{
    const char *const text = "qobs.local_hessian group_size=32 hessian_block_size=64";
    qobs_observer *parts[2] = {open_observer(text, NULL), open_observer(text, NULL)};
    qobs_observer *whole = open_observer(text, NULL), *merged = open_observer(text, NULL), *clone;
    make_activations(128 * 96);
    for (int i = 0; i < 2; i++) {
        add(parts[i], activations + i * 64 * 96, QOBS_F32, 64, 96);
        add(whole, activations + i * 64 * 96, QOBS_F32, 64, 96);
    }
    assert_int_equal(qobs_observer_merge(merged, (const qobs_observer *const *)parts, 2, NULL), QOBS_OK);
    assert_same_sums(merged, whole);
    qobs_observer *loaded = saved_and_loaded(merged);
    assert_same_sums(loaded, whole);
    assert_int_equal(qobs_observer_clone(&clone, loaded, NULL, NULL), QOBS_OK);
    assert_same_sums(clone, whole);
    qobs_observer_reset(clone);
    assert_int_not_equal(qobs_observer_result_find(clone, "hessian_sum", &(qobs_result){.struct_size = sizeof(qobs_result)},
                                                   NULL), QOBS_OK);
    qobs_observer *other = open_observer(text, NULL);
    add(other, activations, QOBS_F32, 3, 64);
    const qobs_observer *const others[] = {other};
    assert_int_not_equal(qobs_observer_merge(merged, others, 1, NULL), QOBS_OK);
    assert_same_sums(merged, whole);
    qobs_observer *const all[] = {parts[0], parts[1], whole, merged, loaded, clone, other};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        qobs_observer_destroy(all[i]);
}

/* Bad activations change nothing; sums that are not finite make errors count alike, or fail. */
static void unusable(void **state)
{
    const int64_t shape[] = {2, 32}, wrong[] = {2, 16}, weight_shape[] = {4, 32};
    qobs_error error;
    make_activations(4 * 32);
    static float spoilt[2 * 32];
    memcpy(spoilt, activations, sizeof spoilt);
    spoilt[3] = 1e30f; /* its square is infinite in float only */
    const qobs_tensor bad = {.struct_size = sizeof bad, .data = spoilt, .dtype = QOBS_F32, .ndim = 2, .shape = shape};
    const qobs_tensor narrow = {.struct_size = sizeof bad, .data = spoilt, .dtype = QOBS_F32, .ndim = 2, .shape = wrong};
    const qobs_tensor weight = {
        .struct_size = sizeof bad, .data = activations, .dtype = QOBS_F32, .ndim = 2, .shape = weight_shape};
    for (int strict = 0; strict < 2; strict++) {
        qobs_observer *o = open_observer(strict ? "qobs.local_hessian group_size=16 strict=true"
                                                : "qobs.local_hessian group_size=16", NULL);
        qobs_search_report report = {.struct_size = sizeof report};
        assert_int_equal(qobs_observer_observe_importance(o, &bad, &error), QOBS_OK);
        assert_int_equal(qobs_observer_observe_importance(o, &narrow, &error), QOBS_ERROR_INVALID_ARGUMENT);
        assert_int_equal(read_count(o), 2);
        assert_int_equal(qobs_observer_observe(o, &weight, NULL, &error),
                         strict ? QOBS_ERROR_INVALID_ARGUMENT : QOBS_OK);
        if (!strict) {
            assert_int_equal(qobs_observer_search_report(o, &report, &error), QOBS_OK);
            assert_false(report.weighted);
            assert_non_null(report.fallback);
        }
        qobs_observer_destroy(o);
    }
}

/* The search has the same bits for every number of threads. */
static void threads_of_the_search(void **state)
{
    enum { ROWS = 130, COLUMNS = 96 };
    size_t three = 3;
    const qobs_executor executor = {
        .struct_size = sizeof executor, .context = &three, .parallel_for = parallel_for, .threads = three};
    const qobs_runtime threaded = {.struct_size = sizeof threaded, .executor = &executor};
    static float weights[ROWS * COLUMNS];
    make_activations(ROWS * COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        weights[i] = activations[i] * activations[(i + 7) % (ROWS * COLUMNS)];
    const int64_t shape[] = {ROWS, COLUMNS};
    const qobs_tensor w = {.struct_size = sizeof w, .data = weights, .dtype = QOBS_F32, .ndim = 2, .shape = shape};
    static const char *const texts[] = {"qobs.local_hessian num_bits=4 group_size=32",
                                        "qobs.local_hessian num_bits=3 group_size=16 hessian_block_size=48 symmetric=false"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        unsigned char scales[2][ROWS * COLUMNS];
        size_t size[2];
        for (int t = 0; t < 2; t++) {
            qobs_observer *o = open_observer(texts[i], t ? &threaded : NULL);
            qobs_result info = {.struct_size = sizeof info};
            add(o, activations, QOBS_F32, 100, COLUMNS);
            assert_int_equal(qobs_observer_observe(o, &w, NULL, NULL), QOBS_OK);
            assert_int_equal(qobs_observer_result_find(o, "scale", &info, NULL), QOBS_OK);
            size[t] = info.size;
            assert_true(size[t] <= sizeof scales[t]);
            assert_int_equal(qobs_observer_read(o, "scale", scales[t], size[t], NULL), QOBS_OK);
            qobs_observer_destroy(o);
        }
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(scales[0], scales[1], size[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_sums), cmocka_unit_test(layouts),           cmocka_unit_test(merging_and_saving),
        cmocka_unit_test(unusable),      cmocka_unit_test(threads_of_the_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

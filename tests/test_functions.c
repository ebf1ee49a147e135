/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The functions of the observers' documentation, each by its own public function: docs/functions.md is the list. */
#include "bits.h"
#include "every_preset.h"
#include "observing.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "calls.h"
#include "number/convert.h"

#include <math.h>
#include <stdlib.h>

static const float two_rows[] = {-1, 2, -3, 4, 5, -6, 7, -8}; /* 2 x 4 */
static const float more[] = {-2, 2, -5, 4, 9, -6, 7, -8};

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

static void test_get_current_min_max(void **state)
{
    qobs_config *config = make_config("llmc.minmax", "base_name=weight;group_size=2", NULL);
    const qobs_tensor value = tensor(QOBS_F32, two_rows, 2, 4);
    float min[4], max[4];
    for (int again = 0; again < 2; again++) { /* nothing is kept */
        assert_ok(call_minmax(config, &value, NULL, min, max, NULL, NULL, &error));
        assert_memory_equal(min, F32(-1, -3, -6, -8), sizeof min);
        assert_memory_equal(max, F32(2, 4, 5, 7), sizeof max);
    }
    qobs_config_destroy(config);
}

static void test_get_current_global_min_max(void **state)
{
    qobs_config *config = make_config("llmc.minmax", "base_name=weight;group_size=2", NULL);
    const qobs_tensor value = tensor(QOBS_F32, two_rows, 2, 4), none = tensor(QOBS_F32, two_rows, 0, 4);
    float min, max;
    qobs_counts counts = {.struct_size = sizeof counts};
    assert_ok(call_global_minmax(config, &value, &min, &max, &counts, NULL, &error));
    assert_true(min == -8 && max == 7 && counts.tokens == 2 && counts.elements == 8);
    assert_refused(call_global_minmax(config, &none, &min, &max, NULL, NULL, &error), QOBS_ERROR_NO_DATA, "value");
    assert_refused(call_global_minmax(config, &value, &min, NULL, NULL, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "max|NULL");
    qobs_config_destroy(config);
}

/* The moving averages of both are kept apart. */
static void test_get_min_max(void **state)
{
    static const char settings[] = "base_name=weight;version=2025-10;averaging_constant=0.5;strategy=channel";
    qobs_observer *o = make("llmc.minmax", settings);
    const qobs_tensor a = tensor(QOBS_F32, two_rows, 2, 4), b = tensor(QOBS_F32, more, 2, 4);
    float min[2], max[2];
    assert_ok(call_update_min_max(o, &a, NULL, min, max, sizeof min, &error));
    assert_memory_equal(min, F32(-3, -8), sizeof min);
    assert_ok(call_update_min_max(o, &b, NULL, min, max, sizeof min, &error));
    assert_memory_equal(min, F32(-4, -8), sizeof min);
    assert_memory_equal(max, F32(4, 8), sizeof max);
    assert_result(o, "max_vals", 4, 8);
    assert_true(counts_of(o).tokens == 0); /* that is record_observed_tokens' */
    assert_refused(call_update_min_max(o, &b, NULL, min, max, 4, &error), QOBS_ERROR_INVALID_ARGUMENT, "size|4|8");
    assert_refused(call_update_min_max(NULL, &b, NULL, min, max, 8, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "observer|NULL");
    assert_result(o, "min_vals", -4, -8);
    qobs_observer_destroy(o);
}

static void test_get_global_min_max(void **state)
{
    qobs_observer *o = make("llmc.minmax", "base_name=weight;version=2025-10;averaging_constant=0.5;group_size=2;"
                                           "strategy=tensor_group;type=float;num_bits=4");
    const qobs_tensor a = tensor(QOBS_F32, two_rows, 2, 4), b = tensor(QOBS_F32, more, 2, 4);
    float min, max, groups_min[4], groups_max[4];
    assert_ok(call_update_min_max(o, &a, NULL, groups_min, groups_max, sizeof groups_min, &error));
    /* As upstream: no scale before there is a global one. */
    qobs_result result = {.struct_size = sizeof result};
    assert_refused(qobs_observer_result_find(o, "scale", &result, &error), QOBS_ERROR_NO_DATA, "global scale");
    assert_ok(call_update_global_min_max(o, &a, &min, &max, sizeof min, &error));
    assert_true(min == -8 && max == 7);
    assert_ok(call_update_global_min_max(o, &b, &min, &max, sizeof min, &error));
    assert_true(min == -8 && max == 8);
    assert_result(o, "global_max", 8);
    assert_result(o, "global_scale", 336); /* 2688 / 8 */
    assert_result(o, "max_vals", 2, 4, 5, 7);
    assert_ok(qobs_observer_result_find(o, "scale", &result, &error));
    qobs_observer_destroy(o);
    o = make("llmc.minmax", "");
    assert_refused(call_update_global_min_max(o, &a, &min, &max, 4, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "version|2025-10");
    qobs_observer_destroy(o);
}

static void test_global_scale(void **state)
{
    qobs_config *config = make_config("llmc.memoryless_minmax", "strategy=tensor_group;group_size=16", NULL);
    const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    float g = 5;
    for (size_t i = 0; i < 3; i++) {
        char words[64];
        snprintf(words, sizeof words, "min|%g|finite", bad[i]);
        assert_refused(qobs_global_scale(config, QOBS_F32, bad[i], 1, &g, &error), QOBS_ERROR_INVALID_ARGUMENT, words);
        memcpy(words, "max", 3);
        assert_refused(qobs_global_scale(config, QOBS_F32, -1, bad[i], &g, &error), QOBS_ERROR_INVALID_ARGUMENT, words);
    }
    assert_refused(qobs_global_scale(config, QOBS_F64, -1e300, 1, &g, &error), QOBS_ERROR_NO_RESULT,
                   "global_scale|1e+300");
    assert_true(g == 5);
    assert_ok(qobs_global_scale(config, QOBS_F32, -3, 4, &g, &error));
    assert_true(g == 672);
    qobs_config_destroy(config);
}

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

static void test_get_qparams(void **state)
{
    qobs_observer *o = make("llmc.minmax", "version=2025-09;averaging_constant=1;strategy=channel;num_bits=4");
    const qobs_tensor a = tensor(QOBS_F32, two_rows, 2, 4), b = tensor(QOBS_F32, more, 2, 4);
    float scale[2];
    int8_t zero_point[2];
    assert_refused(call_update_qparams(o, NULL, NULL, scale, sizeof scale, NULL, 0, &error), QOBS_ERROR_NO_DATA,
                   "observed");
    assert_ok(call_update_qparams(o, &a, NULL, scale, sizeof scale, zero_point, sizeof zero_point, &error));
    assert_memory_equal(scale, F32(4 / 7.5f, 8 / 7.5f), sizeof scale);
    assert_ok(call_update_qparams(o, &b, NULL, NULL, 0, zero_point, sizeof zero_point, &error));
    scale[0] = 0;
    assert_ok(call_update_qparams(o, NULL, NULL, scale, sizeof scale, NULL, 0, &error)); /* the latest */
    assert_memory_equal(scale, F32(5 / 7.5f, 9 / 7.5f), sizeof scale);
    /* A size that is wrong is found before anything changes. */
    assert_refused(call_update_qparams(o, &a, NULL, scale, 4, NULL, 0, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "scale|4|8");
    assert_refused(call_update_qparams(o, &a, NULL, scale, 8, zero_point, 1, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "zero_point|1|2");
    assert_result(o, "scale", 5 / 7.5f, 9 / 7.5f);
    assert_true(counts_of(o).tokens == 0 && counts_of(o).batches == 2);
    /* forward counts tokens, too */
    assert_ok(qobs_observer_observe(o, &a, NULL, &error));
    assert_true(counts_of(o).tokens == 2);
    qobs_observer_destroy(o);
}

/* Every set of kept axes of a 3-dimensional tensor. */
static void test_get_qparams_along_dim(void **state)
{
    float data[2 * 3 * 4];
    for (int i = 0; i < 24; i++)
        data[i] = (float)((i * 7 + 5) % 24) - 11;
    const qobs_tensor value = tensor(QOBS_F32, data, 2, 3, 4);
    const int64_t shape[3] = {2, 3, 4};
    for (int set = 0; set < 8; set++) {
        qobs_observer *o = make("llmc.minmax", "version=2025-09;strategy=channel");
        int dim[3];
        size_t count = 0, n = 1;
        float amax[24] = {0}, scale[24], want[24];
        for (int d = 0; d < 3; d++)
            if (set >> d & 1) {
                dim[count++] = d - (set % 2 ? 3 : 0); /* from the end, at times */
                n *= (size_t)shape[d];
            }
        n = set == 7 ? 1 : n; /* nothing left to reduce is everything reduced, as in torch */
        for (int i = 0; i < 24; i++) {
            const int at[3] = {i / 12, i / 4 % 3, i % 4};
            size_t q = 0;
            for (int d = 0; d < 3 && set != 7; d++)
                q = set >> d & 1 ? q * (size_t)shape[d] + (size_t)at[d] : q;
            amax[q] = fmaxf(amax[q], fabsf(data[i]));
        }
        for (size_t q = 0; q < n; q++)
            want[q] = amax[q] / 127.5f;
        assert_ok(call_update_qparams_along_dim(o, &value, dim, count, scale, n * 4, NULL, 0, &error));
        assert_memory_equal(scale, want, n * 4);
        qobs_result result = {.struct_size = sizeof result};
        assert_ok(qobs_observer_result_find(o, "min_val[default]", &result, &error));
        assert_int_equal(result.ndim, set == 0 || set == 7 ? 0 : 3); /* reduced dimensions stay, with size 1 */
        for (int d = 0; d < result.ndim; d++)
            assert_int_equal(result.shape[d], set >> d & 1 ? shape[d] : 1);
        qobs_observer_destroy(o);
    }
    qobs_observer *o = make("llmc.minmax", "version=2025-09"), *now = make("llmc.minmax", "");
    assert_refused(call_update_qparams_along_dim(o, &value, (const int[]){3}, 1, NULL, 0, NULL, 0, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "dim|3|3 dimensions");
    assert_refused(call_update_qparams_along_dim(o, &value, NULL, 1, NULL, 0, NULL, 0, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "dim|NULL");
    assert_refused(call_update_qparams_along_dim(now, &value, NULL, 0, NULL, 0, NULL, 0, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "2025-09");
    qobs_observer_destroy(o);
    qobs_observer_destroy(now);
}

static void test_calculate_qparams(void **state)
{
    qobs_config *config = make_config("llmc.minmax", "num_bits=4;symmetric=false", NULL);
    float scale[2];
    int8_t zero_point[2];
    assert_ok(call_calculate_qparams(config, QOBS_F32, 2, F32(-1, 1), F32(2, 3), NULL, scale, zero_point, &error));
    assert_memory_equal(scale, F32(0.2f, 0.2f), sizeof scale);
    assert_true(zero_point[0] == -3 && zero_point[1] == -8);
    qobs_config_destroy(config);
}

/* The dtype of a global scale: what has none, what is no number of it, and presets that take another one or none. */
static void test_global_scale_dtype(void **state)
{
    static const char fp4[] = "dtype=fp4;ch_axis=1;group_size=8;scale_format=float32";
    static const struct {
        const char *preset, *settings;
        float global_scale; /* 0: none */
        int dtype;
        const char *words; /* of the message; NULL: accepted */
    } cases[] = {
        {"llmc.minmax", "num_bits=4", 1.5f, 0, NULL},
        {"llmc.minmax", "num_bits=4", 1.5f, QOBS_F32, NULL},
        {"llmc.minmax", "num_bits=4", 1.5f, QOBS_BF16, NULL},
        {"llmc.minmax", "num_bits=4", 1.001f, QOBS_BF16, "global_scale|1.00100005|BF16"},
        {"llmc.minmax", "num_bits=4", 70000, QOBS_F16, "global_scale|70000|F16"},
        {"llmc.minmax", "num_bits=4", 1.5f, QOBS_F64, "global_scale_dtype|F64|BF16, F16"},
        {"llmc.minmax", "num_bits=4", 1.5f, -1, "global_scale_dtype|unknown (-1)"},
        {"llmc.minmax", "num_bits=4", 0, QOBS_F32, "global_scale_dtype|global_scale is NULL"},
        {"llmc.minmax", "version=2025-10;num_bits=4", 1.5f, QOBS_BF16, "global_scale_dtype|BF16|allowed are F32"},
        {"quark.PerBlockMXObserver", fp4, 1.5f, 0, NULL},
        {"quark.PerBlockMXObserver", fp4, 1.5f, QOBS_BF16, "global_scale_dtype|BF16|allowed are F32"},
        {"quark.PerTensorMinMaxObserver", "dtype=fp8_e4m3", 1.5f, 0, "global_scale|fp4"},
        {"quark.PerTensorMinMaxObserver", "dtype=int8", 1.5f, 0, "global_scale|has none"},
        {"torch.MinMaxObserver", "", 1.5f, 0, "global_scale|has none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qobs_config *config = make_config(cases[i].preset, cases[i].settings, NULL);
        const float range = 3;
        float scale = -1;
        const qobs_qparams_from_ranges_args args = {.struct_size = sizeof args,
                                                    .config = config,
                                                    .dtype = QOBS_F32,
                                                    .count = 1,
                                                    .min = &range,
                                                    .max = &range,
                                                    .size = sizeof range,
                                                    .global_scale =
                                                        cases[i].global_scale != 0 ? &cases[i].global_scale : NULL,
                                                    .scale = &scale,
                                                    .scale_size = sizeof scale,
                                                    .global_scale_dtype = (qobs_dtype)cases[i].dtype};
        const int status = qobs_qparams_from_ranges(&args, &error);
        if (cases[i].words)
            assert_refused(status, QOBS_ERROR_INVALID_ARGUMENT, cases[i].words);
        else
            assert_ok(status);
        assert_true((scale == -1) == (cases[i].words != NULL));
        qobs_config_destroy(config);
    }
}

/* Quark's block scales: e4m3 numbers times the global scale, 1 in place of 0, at most 448. */
static void test_realigned_scales(void **state)
{
    static const float magnitudes[] = {0, 0.001f, 6, 1344, 1500, INFINITY};
    static const float wanted[] = {0.5f, 0.5f, 1, 224, 224, 224};
    static const float global = 0.5f;
    qobs_config *config =
        make_config("quark.PerBlockMXObserver", "dtype=fp4;ch_axis=1;group_size=8;scale_format=float32", NULL);
    float scale[6];
    const qobs_qparams_from_ranges_args args = {.struct_size = sizeof args,
                                                .config = config,
                                                .dtype = QOBS_F32,
                                                .count = 6,
                                                .min = magnitudes,
                                                .max = magnitudes,
                                                .size = sizeof magnitudes,
                                                .global_scale = &global,
                                                .scale = scale,
                                                .scale_size = sizeof scale};
    assert_ok(qobs_qparams_from_ranges(&args, &error));
    for (size_t i = 0; i < 6; i++)
        if (scale[i] != wanted[i])
            fail_msg("scale %zu is %g, expected %g", i, (double)scale[i], (double)wanted[i]);
    qobs_config_destroy(config);
}

/* The scales of [-1.5, 3] in a dtype, as numbers; 0: the preset has none. Memory has the exact size for the sanitizer. */
static double scale_of(const struct every_preset *p, qobs_dtype dtype)
{
    static const double limits[2] = {-1.5, 3};
    const size_t size = qobs_dtype_size(dtype);
    qobs_config *config = make_config(p->preset, p->settings, NULL);
    qobs_dtype of_scale = QOBS_F32, of_zero_point = QOBS_F32;
    double scale = 0;
    if (qobs_config_qparam_dtypes(config, dtype, &of_scale, &of_zero_point, &error) == QOBS_OK) {
        void *min = malloc(size), *max = malloc(size), *out = malloc(qobs_dtype_size(of_scale)),
             *zero_point = malloc(qobs_dtype_size(of_zero_point));
        qobs_store_doubles(min, dtype, 0, 1, &limits[0]);
        qobs_store_doubles(max, dtype, 0, 1, &limits[1]);
        if (call_calculate_qparams(config, dtype, 1, min, max, NULL, out, zero_point, &error) == QOBS_OK)
            scale = qobs_element(out, of_scale);
        free(min);
        free(max);
        free(out);
        free(zero_point);
    }
    qobs_config_destroy(config);
    return scale;
}

/* A range that is exact in every dtype has the same scale in each, but for the rounding of three operations. */
static void test_calculate_in_every_dtype(void **state)
{
    static const struct {
        qobs_dtype dtype;
        double rounding;
    } dtypes[] = {{QOBS_BF16, 0x1p-8}, {QOBS_F16, 0x1p-11}, {QOBS_F64, 0x1p-24}};
    size_t compared = 0;
    for (size_t i = 0; preset_at(i); i++) {
        const double expected = scale_of(preset_at(i), QOBS_F32);
        for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
            const double scale = scale_of(preset_at(i), dtypes[k].dtype);
            if (scale == 0 || expected == 0)
                continue;
            if (fabs(scale - expected) > 3 * dtypes[k].rounding * fabs(expected))
                fail_msg("%s, %s: scale is %g, in F32 %g", preset_at(i)->preset, qobs_dtype_name(dtypes[k].dtype),
                         scale, expected);
            compared++;
        }
    }
    assert_true(compared > 60);
}

/* ---- Tokens and reset -------------------------------------------------------------------------------------------- */

static void test_record_observed_tokens(void **state)
{
    qobs_observer *o = make("llmc.minmax", "version=2025-09;strategy=tensor"),
                  *quark = make("quark.PerTensorMinMaxObserver", "");
    const float rows[] = {0, 0, -0.0f, 0, 1, 0, NAN, 0};
    const qobs_tensor matrix = tensor(QOBS_F32, rows, 4, 2), cube = tensor(QOBS_F32, rows, 2, 2, 2);
    int64_t tokens;
    qobs_result result = {.struct_size = sizeof result};
    assert_ok(qobs_observer_record_tokens(o, &cube, &error)); /* upstream counts matrices only */
    assert_refused(qobs_observer_result_find(o, "num_observed_tokens", &result, &error), QOBS_ERROR_NO_DATA,
                   "num_observed_tokens");
    assert_ok(qobs_observer_record_tokens(o, &matrix, &error));
    assert_ok(qobs_observer_record_tokens(o, &matrix, &error));
    assert_ok(qobs_observer_read(o, "num_observed_tokens", &tokens, sizeof tokens, &error));
    assert_int_equal(tokens, 8);
    assert_ok(qobs_observer_record_tokens(quark, &cube, &error)); /* Quark: rows with a non-zero element */
    assert_ok(qobs_observer_read(quark, "num_observed_tokens", &tokens, sizeof tokens, &error));
    assert_int_equal(tokens, 2);
    assert_true(counts_of(quark).nonzero_tokens == 2 && counts_of(o).batches == 0);
    qobs_observer_reset(o);
    assert_refused(qobs_observer_result_find(o, "num_observed_tokens", &result, &error), QOBS_ERROR_NO_DATA,
                   "num_observed_tokens");
    qobs_observer_destroy(o);
    qobs_observer_destroy(quark);
}

static void expect_tokens(qobs_observer *o, const qobs_tensor *value, uint64_t tokens, uint64_t nonzero)
{
    const qobs_counts before = counts_of(o);
    assert_ok(qobs_observer_record_tokens(o, value, &error));
    const qobs_counts after = counts_of(o);
    assert_true(after.tokens - before.tokens == tokens && after.nonzero_tokens - before.nonzero_tokens == nonzero);
}

/* Non-zero rows of every length, at every offset of the one element that is not 0, with and without gaps, in every
 * dtype. */
static void test_count_tokens(void **state)
{
    static const qobs_dtype all[] = {QOBS_F32, QOBS_BF16, QOBS_F16, QOBS_F64};
    qobs_observer *o = make("quark.PerTensorMinMaxObserver", "");
    for (size_t d = 0; d < 4; d++) {
        const size_t size = qobs_dtype_size(all[d]);
        for (int64_t length = 1; length < 1400; length += length < 40 ? 1 : 171)
            for (int64_t at = 0; at < length; at += length < 40 ? 1 : 97)
                for (int64_t gap = 1; gap <= 2; gap++) {
                    const size_t row = (size_t)(length * gap) * size;
                    unsigned char *x = malloc(3 * row + 1), *data = x + 1; /* misaligned */
                    memset(data, gap > 1 ? 0xff : 0, 3 * row);
                    for (int64_t i = 0; i < 3 * length; i++)
                        memset(data + (size_t)(i * gap) * size, 0, size);
                    put_bits(data + (size_t)(at * gap) * size, UINT64_C(1) << (8 * size - 1),
                             size);                                            /* -0 in the first row */
                    put_bits(data + row + (size_t)(at * gap) * size, 1, size); /* the least subnormal in the second */
                    const int64_t shape[] = {3, length}, strides[] = {(int64_t)row, gap * (int64_t)size};
                    const qobs_tensor value = {sizeof value, data, all[d], 2, shape, strides};
                    expect_tokens(o, &value, 3, 1);
                    free(x);
                }
    }
    const qobs_tensor scalar = tensor_of(QOBS_F32, 0, NULL, two_rows), integers = tensor(QOBS_I32, two_rows, 2, 2);
    expect_tokens(o, &scalar, 0, 1);
    assert_refused(qobs_observer_record_tokens(o, &integers, &error), QOBS_ERROR_INVALID_ARGUMENT, "value|I32");
    qobs_observer_destroy(o);
}

static void test_reset(void **state)
{
    qobs_observer *o = make("llmc.minmax", "version=2025-09;averaging_constant=0.5;strategy=tensor");
    assert_ok(observe(o, 2, 4, two_rows));
    qobs_observer_reset(o);
    assert_int_equal(qobs_observer_result_count(o), 0);
    assert_ok(observe(o, 2, 4, more));
    assert_result(o, "min_val[default]", -8);
    assert_result(o, "max_val[default]", 9);
    qobs_observer_destroy(o);
}

/* torch's is_dynamic: MovingAverage takes it with averaging_constant 1 only; MinMax takes it and still keeps all
 * batches. */
static void test_is_dynamic(void **state)
{
    qobs_observer *o = NULL;
    qobs_config *config = make_config("torch.MovingAverageMinMaxObserver", "is_dynamic=true", NULL);
    assert_refused(qobs_observer_create(&o, config, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "is_dynamic|averaging_constant 1");
    assert_ok(qobs_config_set(config, "averaging_constant", "1", &error));
    assert_ok(qobs_observer_create(&o, config, NULL, &error));
    assert_ok(observe(o, 2, 4, more));
    assert_ok(observe(o, 2, 4, two_rows));
    assert_result(o, "max_val", 7); /* the last batch */
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
    o = make("torch.MinMaxObserver", "is_dynamic=true");
    assert_ok(observe(o, 2, 4, more));
    assert_ok(observe(o, 2, 4, two_rows));
    assert_result(o, "max_val", 9);
    qobs_observer_destroy(o);
}

/* ---- What is new in states and merging --------------------------------------------------------------------------- */

static void test_save_and_merge(void **state)
{
    static const char settings[] = "version=2025-09;averaging_constant=0.5;group_size=3;strategy=group";
    qobs_observer *a = make("llmc.minmax", settings), *b = make("llmc.minmax", settings), *loaded = NULL;
    assert_ok(observe(a, 2, 4, two_rows));
    assert_ok(observe(b, 2, 4, more));
    assert_ok(observe(b, 2, 4, two_rows));
    assert_result(b, "max_val[default]", 2, 8);
    size_t size;
    unsigned char *bytes = saved_state(b, &size);
    assert_ok(qobs_observer_load(&loaded, bytes, size, NULL, &error));
    assert_result(loaded, "max_val[default]", 2, 8);
    assert_result(loaded, "min_val[1]", 4, -8);
    assert_true(counts_of(loaded).tokens == 4);
    assert_ok(qobs_observer_merge(a, (const qobs_observer *const[]){loaded}, 1, &error));
    assert_result(a, "max_val[default]", 2, 7.5f); /* the mean */
    assert_true(counts_of(a).tokens == 6);
    free(bytes);
    qobs_observer_destroy(a);
    qobs_observer_destroy(b);
    qobs_observer_destroy(loaded);
    /* The range of the whole. */
    static const char grouped[] = "version=2025-10;strategy=tensor_group;group_size=2;type=float;num_bits=4";
    a = make("llmc.static_minmax", grouped), b = make("llmc.static_minmax", grouped);
    assert_ok(observe(a, 2, 4, two_rows));
    assert_ok(qobs_observer_merge(b, (const qobs_observer *const[]){a}, 1, &error));
    assert_result(b, "global_min", -8);
    bytes = saved_state(b, &size);
    assert_ok(qobs_observer_load(&loaded, bytes, size, NULL, &error));
    assert_result(loaded, "global_max", 7);
    free(bytes);
    qobs_observer_destroy(a);
    qobs_observer_destroy(b);
    qobs_observer_destroy(loaded);
}

/* ---- Bad input --------------------------------------------------------------------------------------------------- */

/* No observer, no configuration, no plan: an error, not a crash. */
static void test_nothing(void **state)
{
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_result result = {.struct_size = sizeof result};
    qobs_run run;
    char text[64];
    float out[4];
    qobs_search_report report = {.struct_size = sizeof report};
    const qobs_tensor value = tensor(QOBS_F32, two_rows, 2, 4);
    const int wrong = QOBS_ERROR_INVALID_ARGUMENT;
    assert_refused(qobs_observer_counts(NULL, &counts, &error), wrong, "observer|NULL");
    assert_refused(qobs_observer_result_info(NULL, 0, &result, &error), wrong, "observer|NULL");
    assert_refused(qobs_observer_result_find(NULL, "scale", &result, &error), wrong, "observer|NULL");
    assert_refused(qobs_observer_read(NULL, "scale", out, 4, &error), wrong, "observer|NULL");
    assert_refused(call_qparams(NULL, out, 4, NULL, 0, &error), wrong, "observer|NULL");
    assert_refused(call_update_qparams(NULL, NULL, NULL, out, 4, NULL, 0, &error), wrong, "observer|NULL");
    assert_refused(qobs_observer_record_tokens(NULL, &value, &error), wrong, "observer|NULL");
    assert_refused(qobs_observer_search_report(NULL, &report, &error), wrong, "observer|NULL");
    assert_refused(qobs_observer_save(NULL, out, 4, &error), wrong, "observer|NULL");
    assert_refused(qobs_observer_create(NULL, NULL, NULL, &error), wrong, "observer|NULL");
    assert_refused(qobs_config_get(NULL, "num_bits", text, sizeof text, &error), wrong, "config|NULL");
    assert_refused(qobs_config_create(NULL, "llmc.minmax", NULL, &error), wrong, "config|NULL");
    assert_refused(qobs_plan_run(NULL, 0, &run, &error), wrong, "plan|NULL");
    assert_refused(qobs_plan_copy(NULL, &value, out, 4, &error), wrong, "plan|NULL");
    assert_int_equal(qobs_observer_result_count(NULL), 0);
    assert_int_equal(qobs_observer_save_size(NULL), 0);
    assert_int_equal(qobs_config_key_count(NULL), 0);
    assert_null(qobs_config_key(NULL, 0));
    assert_int_equal(qobs_plan_run_count(NULL), 0);
    qobs_observer_reset(NULL);
    qobs_observer *o = make("llmc.minmax", "");
    assert_ok(qobs_observer_observe(o, &value, NULL, &error));
    assert_refused(qobs_observer_read(o, "scale", NULL, 4, &error), wrong, "out|NULL");
    assert_refused(qobs_observer_result_find(o, "scale", NULL, &error), wrong, "result");
    qobs_observer_destroy(o);
}

/* A caller built when qobs_counts ended with `inf`. */
static void test_older_counts(void **state)
{
    qobs_observer *o = make("llmc.minmax", "");
    assert_ok(observe(o, 2, 4, two_rows));
    struct {
        qobs_counts counts;
    } memory;
    memset(&memory, 0x5a, sizeof memory);
    memory.counts.struct_size = offsetof(qobs_counts, tokens);
    assert_ok(qobs_observer_counts(o, &memory.counts, &error));
    assert_true(memory.counts.elements == 8 && memory.counts.tokens == UINT64_C(0x5a5a5a5a5a5a5a5a));
    assert_int_equal(memory.counts.struct_size, offsetof(qobs_counts, tokens));
    qobs_observer_destroy(o);
}

/* f64 that only f32 cannot hold is infinite to a torch preset, and told as such. */
static void test_beyond_f32(void **state)
{
    const double data[] = {1, -1e300, 2, 0x1.ffffffp127, 0x1.fffffefffp127, 3};
    const qobs_tensor value = tensor(QOBS_F64, data, 2, 3);
    qobs_observer *o = make("torch.MinMaxObserver", "");
    assert_refused(qobs_observer_observe(o, &value, NULL, &error), QOBS_ERROR_NONFINITE,
                   "2 infinite of 6|beyond F32 at [0, 1]");
    assert_true(counts_of(o).batches == 0);
    qobs_observer_destroy(o);
    o = make("torch.MinMaxObserver", "nonfinite=ignore");
    assert_ok(qobs_observer_observe(o, &value, NULL, &error));
    assert_result(o, "min_val", 1);
    assert_result(o, "max_val", 0x1.fffffep127f);
    assert_true(counts_of(o).inf == 2);
    qobs_observer_destroy(o);
}

static void test_own_name(void **state)
{
    qobs_config *config = make_config("llmc.minmax", "observer=minmax", NULL);
    char text[64];
    bool listed = false;
    for (size_t i = 0; i < qobs_config_key_count(config); i++)
        listed |= strcmp(qobs_config_key(config, i), "observer") == 0;
    assert_true(listed);
    assert_ok(qobs_config_get(config, "observer", text, sizeof text, &error));
    assert_string_equal(text, "minmax");
    assert_refused(qobs_config_set(config, "observer", "mse", &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "observer|mse|llmc.minmax");
    qobs_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get_current_min_max),
        cmocka_unit_test(test_get_current_global_min_max),
        cmocka_unit_test(test_get_min_max),
        cmocka_unit_test(test_get_global_min_max),
        cmocka_unit_test(test_global_scale),
        cmocka_unit_test(test_get_qparams),
        cmocka_unit_test(test_get_qparams_along_dim),
        cmocka_unit_test(test_calculate_qparams),
        cmocka_unit_test(test_global_scale_dtype),
        cmocka_unit_test(test_realigned_scales),
        cmocka_unit_test(test_calculate_in_every_dtype),
        cmocka_unit_test(test_record_observed_tokens),
        cmocka_unit_test(test_count_tokens),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_is_dynamic),
        cmocka_unit_test(test_save_and_merge),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_older_counts),
        cmocka_unit_test(test_beyond_f32),
        cmocka_unit_test(test_own_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

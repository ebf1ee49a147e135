/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The life of an observer: batches in, results out, and what it refuses on the way. */
#include <math.h>

#include "bits.h"
#include "observing.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "calls.h"

/* ---- Numbers, written without the library's help ----------------------------------------------------------------- */

static const struct format {
    qobs_dtype dtype;
    size_t size;
    int precision, least_exponent; /* digits with the leading one; exponent of the smallest normal number */
    double quant_max, eps;
} formats[] = {{QOBS_F32, 4, 24, -126, 0x1.fffffep127, 0x1p-23},
               {QOBS_BF16, 2, 8, -126, 0x1.fep127, 0x1p-7},
               {QOBS_F16, 2, 11, -14, 65504, 0x1p-10},
               {QOBS_F64, 8, 53, -1022, 0x1.fffffffffffffp1023, 0x1p-52}};
enum { FORMATS = 4 };

/* The nearest number of the format, ties to even. */
static double nearest(const struct format *f, double x)
{
    int exponent;
    if (!isfinite(x) || x == 0 || f->dtype == QOBS_F64)
        return x;
    frexp(x, &exponent);
    const int unit = (exponent - 1 > f->least_exponent ? exponent - 1 : f->least_exponent) - f->precision + 1;
    const double rounded = ldexp(nearbyint(ldexp(x, -unit)), unit);
    return fabs(rounded) > f->quant_max ? copysign((double)INFINITY, x) : rounded;
}

static void encode(const struct format *f, double x, void *out)
{
    const float single = (float)x;
    uint32_t bits;
    uint16_t half;
    int exponent;
    memcpy(&bits, &single, sizeof bits);
    half = (uint16_t)(bits >> 16);
    if (f->dtype == QOBS_F16) {
        const double magnitude = fabs(x);
        frexp(magnitude, &exponent);
        const int magnitude_bits = isnan(x)            ? 0x7e00
                                   : magnitude > 65504 ? 0x7c00
                                   : magnitude < 0x1p-14
                                       ? (int)ldexp(magnitude, 24)
                                       : ((exponent + 14) << 10) + (int)ldexp(magnitude, 11 - exponent) - 1024;
        half = (uint16_t)(magnitude_bits | (signbit(x) ? 0x8000 : 0));
    }
    memcpy(out, f->size == 8 ? (const void *)&x : f->size == 4 ? (const void *)&single : (const void *)&half, f->size);
}

static double decode(const struct format *f, const void *p)
{
    uint16_t half;
    float single;
    double x;
    memcpy(&half, p, sizeof half);
    if (f->dtype == QOBS_F64) {
        memcpy(&x, p, sizeof x);
        return x;
    }
    if (f->dtype == QOBS_F16) {
        const int exponent = half >> 10 & 31, fraction = half & 1023;
        x = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
            : exponent     ? ldexp(1024 + fraction, exponent - 25)
                           : ldexp(fraction, -24);
        return half & 0x8000 ? -x : x;
    }
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&single, f->dtype == QOBS_BF16 ? (const void *)&bits : p, sizeof single);
    return (double)single;
}

/* One operation of native arithmetic: in float, or in double for F64, and rounded to the format. */
static double multiply(const struct format *f, double a, double b)
{
    return f->dtype == QOBS_F64 ? a * b : nearest(f, (double)((float)a * (float)b));
}

static double divide(const struct format *f, double a, double b)
{
    return f->dtype == QOBS_F64 ? a / b : nearest(f, (double)((float)a / (float)b));
}

static double add(const struct format *f, double a, double b)
{
    return f->dtype == QOBS_F64 ? a + b : nearest(f, (double)((float)a + (float)b));
}

/* ---- Statistics -------------------------------------------------------------------------------------------------- */

static void test_updates(void **state)
{
    static const struct {
        const char *preset, *settings;
        float min[3], max[3];
    } expected[] = {
        {"llmc.memoryless_minmax", "base_name=input", {-1, -0.5f, -3}, {2, 4, 1}},
        {"llmc.static_minmax", "base_name=input", {-1, -1, -3}, {2, 4, 4}},
        {"llmc.minmax", "base_name=input;averaging_constant=0.25", {-1, -0.875f, -1.40625f}, {2, 2.5f, 2.125f}},
        {"llmc.minmax", "base_name=input;averaging_constant=1", {-1, -0.5f, -3}, {2, 4, 1}},
        {"llmc.minmax", "base_name=output;averaging_constant=0", {-1, -1, -1}, {2, 2, 2}},
        {"torch.MinMaxObserver", "", {-1, -1, -3}, {2, 4, 4}},
        {"torch.MovingAverageMinMaxObserver", "averaging_constant=0.25", {-1, -0.875f, -1.40625f}, {2, 2.5f, 2.125f}},
        /* 2 + 0.01f * (4 - 2), then + 0.01f * (1 - that), rounded by hand */
        {"torch.MovingAverageMinMaxObserver", "", {-1, -0.995f, -1.01505f}, {2, 2.02f, 2.0098f}},
    };
    const float batches[3][4] = {{-1, 0.5f, 2, 0}, {4, -0.5f, 1, 3}, {1, -3, 0, 0.25f}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        qobs_observer *o = make(expected[i].preset, expected[i].settings);
        const bool torch = expected[i].preset[0] == 't';
        for (size_t k = 0; k < 3; k++) {
            assert_ok(observe(o, 2, 2, batches[k]));
            assert_result(o, torch ? "min_val" : "min_vals", expected[i].min[k]);
            assert_result(o, torch ? "max_val" : "max_vals", expected[i].max[k]);
        }
        const qobs_counts counts = counts_of(o);
        assert_true(counts.batches == 3 && counts.elements == 12 && counts.nan == 0 && counts.inf == 0);
        qobs_observer_destroy(o);
    }
    qobs_observer_destroy(NULL);
    qobs_config_destroy(NULL);
    qobs_plan_destroy(NULL);
}

/* Moving averages in every dtype, against the same written with one rounding an operation. */
static void test_averages(void **state)
{
    static const double constants[] = {0.01, 0.1, 1.0 / 3, 0.5, 0.999};
    uint32_t random = 1;
    for (size_t k = 0; k < FORMATS * 5; k++) {
        const struct format *f = &formats[k % FORMATS], *f32 = &formats[0];
        const double c = constants[k / FORMATS];
        char settings[96];
        snprintf(settings, sizeof settings, "base_name=input;averaging_constant=%.17g", c);
        qobs_observer *llmc = make("llmc.minmax", settings),
                      *torch = make("torch.MovingAverageMinMaxObserver", settings);
        double lerp[2] = {0}, towards[2] = {0};
        for (int batch = 0; batch < 60; batch++) {
            unsigned char data[16], got[16];
            double x[2];
            for (int i = 0; i < 2; i++) {
                random = random * 1664525 + 1013904223;
                const double draw = (double)random / 0x1p32 * (batch % 3 == 0 ? 1e-5 : 100.0);
                x[i] = nearest(f, i ? draw : -draw);
                encode(f, x[i], data + (size_t)i * f->size);
                const double keep = f->dtype == QOBS_F64 ? 1 - c : (double)(float)(1 - c), rate = (double)(float)c;
                const double narrow = (double)(float)x[i];
                lerp[i] = batch ? add(f, multiply(f, lerp[i], keep), multiply(f, x[i], f->dtype == QOBS_F64 ? c : rate))
                                : x[i];
                towards[i] = batch ? add(f32, towards[i], multiply(f32, rate, add(f32, narrow, -towards[i]))) : narrow;
            }
            const qobs_tensor value = tensor(f->dtype, data, 2, 1);
            assert_ok(qobs_observer_observe(llmc, &value, NULL, &error));
            assert_ok(qobs_observer_observe(torch, &value, NULL, &error));
            assert_ok(qobs_observer_read(llmc, "min_vals", got, f->size, &error));
            assert_ok(qobs_observer_read(llmc, "max_vals", got + f->size, f->size, &error));
            assert_true(decode(f, got) == lerp[0] && decode(f, got + f->size) == lerp[1]);
            assert_result(torch, "min_val", (float)towards[0]);
            assert_result(torch, "max_val", (float)towards[1]);
        }
        qobs_observer_destroy(llmc);
        qobs_observer_destroy(torch);
    }
}

static void test_nonfinite(void **state)
{
    const float good[] = {-1, 2, 0.5f, 1, 1, 1}, bad[] = {3, -4, 5, 6, NAN, INFINITY},
                negative[] = {3, -4, -INFINITY, 6, 7, 8};
    qobs_observer *o = make("llmc.static_minmax", "base_name=input");
    assert_refused(observe(o, 2, 3, bad), QOBS_ERROR_NONFINITE, "1 NaN and 1 infinite of 6|first is NaN at [1, 1]");
    assert_int_equal(qobs_observer_result_count(o), 0);
    assert_ok(observe(o, 3, 2, good)); /* nothing of the refused one stays, not its shape either */
    assert_refused(observe(o, 2, 3, bad), QOBS_ERROR_NONFINITE, "1 NaN|[1, 1]");
    assert_refused(observe(o, 3, 2, negative), QOBS_ERROR_NONFINITE,
                   "0 NaN and 1 infinite of 6|first is -infinity at [1, 0]");
    assert_result(o, "min_vals", -1);
    assert_result(o, "max_vals", 2);
    qobs_counts counts = counts_of(o);
    assert_true(counts.batches == 1 && counts.elements == 6 && counts.nan == 0 && counts.inf == 0);
    const qobs_tensor deep = tensor(QOBS_F32, bad, 1, 3, 1, 2);
    assert_refused(qobs_observer_observe(o, &deep, NULL, &error), QOBS_ERROR_NONFINITE, "[0, 2, 0, 0]");
    qobs_observer_destroy(o);

    float wide[100] = {1}; /* a refused first batch leaves no room of its size */
    o = make("llmc.minmax", "base_name=input;strategy=group;group_size=1");
    assert_refused(observe(o, 1, 1, bad + 4), QOBS_ERROR_NONFINITE, "[0, 0]");
    assert_ok(observe(o, 1, 100, wide));
    assert_ok(observe(o, 1, 100, wide));
    qobs_observer_destroy(o);

    o = make("llmc.minmax", "base_name=input;averaging_constant=1;nonfinite=propagate"); /* the last batch as it is */
    assert_ok(observe(o, 2, 3, negative));
    assert_ok(observe(o, 3, 2, good));
    assert_result(o, "min_vals", -1);
    qobs_observer_destroy(o);

    o = make("llmc.static_minmax", "base_name=input;nonfinite=ignore");
    assert_ok(observe(o, 2, 3, bad));
    assert_result(o, "min_vals", -4);
    assert_result(o, "max_vals", 6);
    assert_ok(observe(o, 1, 2, bad + 4)); /* nothing finite: as zeros */
    assert_result(o, "min_vals", -4);
    counts = counts_of(o);
    assert_true(counts.batches == 2 && counts.elements == 8 && counts.nan == 2 && counts.inf == 2);
    qobs_observer_destroy(o);

    o = make("llmc.static_minmax", "base_name=input;nonfinite=propagate");
    assert_ok(observe(o, 2, 3, negative));
    assert_result(o, "min_vals", -INFINITY);
    assert_result(o, "scale", INFINITY);
    assert_ok(observe(o, 2, 3, bad));
    assert_ok(observe(o, 2, 3, good)); /* NaN stays */
    float got;
    assert_ok(qobs_observer_read(o, "max_vals", &got, sizeof got, &error));
    assert_true(isnan(got));
    assert_ok(qobs_observer_read(o, "scale", &got, sizeof got, &error));
    assert_true(isnan(got));
    qobs_observer_destroy(o);

    o = make("torch.MinMaxObserver", "nonfinite=propagate"); /* upstream has a range then, but raises for the scale */
    assert_ok(observe(o, 2, 3, bad));
    assert_int_equal(qobs_observer_result_count(o), 2);
    assert_refused(qobs_observer_read(o, "scale", &got, sizeof got, &error), QOBS_ERROR_NO_RESULT, "min|max");
    qobs_observer_destroy(o);
}

/* ---- What a batch may be ----------------------------------------------------------------------------------------- */

static void test_weights(void **state)
{
    qobs_observer *o = make("llmc.static_minmax", "base_name=weight");
    assert_ok(observe(o, 2, 2, F32(-1, 2, 0, 1)));
    assert_int_equal(counts_of(o).ignored, 0);
    assert_ok(observe(o, 2, 2, F32(-9, 9, 0, NAN))); /* is not even looked at */
    assert_result(o, "min_vals", -1);
    assert_int_equal(counts_of(o).batches, 1);
    assert_int_equal(counts_of(o).ignored, 1);
    const int64_t shape[1] = {1}, number = 0;
    const qobs_dtype wrong[] = {QOBS_I64, QOBS_I8, QOBS_U8, (qobs_dtype)0, (qobs_dtype)-1, (qobs_dtype)99};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) { /* its dtype is checked nevertheless */
        const qobs_tensor x = {sizeof x, &number, wrong[i], 1, shape, NULL};
        assert_refused(qobs_observer_observe(o, &x, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "value|dtype");
    }
    assert_int_equal(counts_of(o).ignored, 1);
    assert_ok(observe(o, 0, 2, F32(0))); /* an empty tensor is not counted */
    assert_int_equal(counts_of(o).ignored, 1);
    qobs_observer_reset(o);
    assert_int_equal(counts_of(o).batches, 0);
    assert_int_equal(counts_of(o).ignored, 0);
    assert_int_equal(qobs_observer_result_count(o), 0);
    assert_ok(observe(o, 2, 2, F32(-9, 9, 0, 0)));
    assert_result(o, "max_vals", 9);
    qobs_observer_destroy(o);

    o = make("llmc.static_minmax", "base_name=weight;version=2025-10"); /* took every one */
    assert_ok(observe(o, 1, 2, F32(-1, 2)));
    assert_ok(observe(o, 1, 2, F32(-9, 0)));
    assert_result(o, "min_vals", -9);
    assert_int_equal(counts_of(o).batches, 2);
    qobs_observer_destroy(o);
}

static void test_empty(void **state)
{
    float min, max;
    const qobs_tensor empty = tensor(QOBS_F32, NULL, 4, 0);
    qobs_config *config = make_config("llmc.minmax", "base_name=input", NULL);
    assert_refused(call_minmax(config, &empty, NULL, &min, &max, NULL, NULL, &error), QOBS_ERROR_NO_DATA,
                   "value|no elements");
    qobs_config_destroy(config);
    static const char *const presets[] = {"llmc.minmax", "torch.MovingAverageMinMaxObserver"};
    for (size_t i = 0; i < 2; i++) {
        qobs_observer *o = make(presets[i], "averaging_constant=0.5;base_name=input");
        assert_ok(qobs_observer_observe(o, &empty, NULL, &error));
        assert_int_equal(counts_of(o).batches, 0);
        assert_ok(observe(o, 1, 2, F32(-1, 1)));
        assert_ok(qobs_observer_observe(o, &empty, NULL, &error));
        assert_int_equal(counts_of(o).batches, 1);
        assert_result(o, i ? "min_val" : "min_vals", -1);
        qobs_observer_destroy(o);
    }
}

static void test_changes(void **state)
{
    const double wide[] = {-0.1, 3};
    const qobs_tensor f64 = tensor(QOBS_F64, wide, 1, 2), integers = tensor(QOBS_I32, wide, 1, 2);
    qobs_observer *o = make("llmc.static_minmax", "base_name=input;strategy=group;group_size=2");
    assert_ok(observe(o, 1, 4, F32(-1, 1, -2, 2)));
    assert_ok(observe(o, 2, 4, F32(0, 0, 0, 0, 0, 0, 0, 4))); /* more observations are no change */
    assert_refused(observe(o, 1, 6, F32(9, 9, 9, 9, 9, 9)), QOBS_ERROR_INVALID_ARGUMENT, "value|3 qparams|2");
    assert_refused(observe(o, 1, 5, F32(9, 9, 9, 9, 9)), QOBS_ERROR_INVALID_ARGUMENT, "group_size|2|5");
    assert_refused(qobs_observer_observe(o, &integers, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "value|I32|BF16");
    assert_result(o, "min_vals", -1, -2);
    assert_result(o, "max_vals", 1, 4);
    qobs_observer_destroy(o);

    o = make("llmc.static_minmax", "base_name=input");
    assert_ok(observe(o, 1, 2, F32(-1, 1)));
    assert_refused(qobs_observer_observe(o, &f64, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "dtype|F64|F32");
    assert_result(o, "max_vals", 1);
    qobs_observer_reset(o); /* anything goes again */
    assert_ok(qobs_observer_observe(o, &f64, NULL, &error));
    qobs_observer_destroy(o);

    o = make("torch.MinMaxObserver", ""); /* keeps f32, and any shape is one range */
    assert_ok(observe(o, 1, 2, F32(-1, 1)));
    assert_ok(qobs_observer_observe(o, &f64, NULL, &error));
    const float scalar = -7;
    const qobs_tensor none = {.struct_size = sizeof none, .data = &scalar, .dtype = QOBS_F32};
    assert_ok(qobs_observer_observe(o, &none, NULL, &error));
    assert_result(o, "min_val", -7);
    assert_result(o, "max_val", 3);
    qobs_observer_destroy(o);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static void test_results(void **state)
{
    static const char *const names[] = {"min_vals", "max_vals", "scale", "zero_point"};
    qobs_observer *o = make("llmc.memoryless_minmax", "strategy=channel;symmetric=false");
    qobs_result r = {.struct_size = sizeof r};
    float scale[3];
    int8_t zero_point[3];
    assert_int_equal(qobs_observer_result_count(o), 0);
    assert_refused(qobs_observer_read(o, "scale", scale, 4, &error), QOBS_ERROR_NO_DATA, "observed");
    assert_refused(qobs_observer_result_find(o, "min_vals", &r, &error), QOBS_ERROR_NO_DATA, "min_vals");
    assert_refused(call_qparams(o, scale, 4, zero_point, 1, &error), QOBS_ERROR_NO_DATA, "observed");
    assert_refused(call_qparams(o, scale, sizeof scale, NULL, 0, &error), QOBS_ERROR_NO_DATA, "observed");
    assert_refused(qobs_observer_result_info(o, 0, &r, &error), QOBS_ERROR_INVALID_ARGUMENT, "index|0");

    assert_ok(observe(o, 3, 2, F32(-1, 2, 0, 0, 3, 255))); /* scales 3/255, eps and 1 */
    assert_int_equal(qobs_observer_result_count(o), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_ok(qobs_observer_result_info(o, i, &r, &error));
        assert_string_equal(r.name, names[i]);
        assert_true(r.dtype == (i == 3 ? QOBS_I8 : QOBS_F32) && r.ndim == 2 && r.shape[0] == 3 && r.shape[1] == 1);
        assert_int_equal(r.size, i == 3 ? 3 : 12);
    }
    assert_result(o, "min_vals", -1, 0, 3);
    assert_result(o, "max_vals", 2, 0, 255);
    assert_result(o, "scale", 3.0f / 255, 0x1p-23f, 1);
    assert_ok(call_qparams(o, NULL, 0, zero_point, sizeof zero_point, &error));
    assert_memory_equal(zero_point, ((int8_t[]){-43, 0, -128}), 3);
    assert_ok(call_qparams(o, scale, sizeof scale, zero_point, sizeof zero_point, &error));
    assert_true(scale[0] == 3.0f / 255);

    assert_refused(qobs_observer_result_info(o, 4, &r, &error), QOBS_ERROR_INVALID_ARGUMENT, "index|4");
    assert_refused(qobs_observer_result_find(o, "min_val", &r, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "min_val'|min_vals, max_vals, scale");
    assert_refused(qobs_observer_result_find(o, NULL, &r, &error), QOBS_ERROR_INVALID_ARGUMENT, "name");
    assert_refused(qobs_observer_read(o, "scale", scale, 11, &error), QOBS_ERROR_INVALID_ARGUMENT, "size|11|12|scale");
    assert_refused(call_qparams(o, scale, 12, zero_point, 4, &error), QOBS_ERROR_INVALID_ARGUMENT, "zero_point|4|3");
    qobs_observer_destroy(o);
}

static void test_no_data(void **state)
{
    static const char *const schemes[] = {"qscheme=per_tensor_affine", "qscheme=per_tensor_symmetric"};
    for (size_t i = 0; i < 2; i++) {
        qobs_observer *o = make("torch.MinMaxObserver", schemes[i]);
        qobs_result r = {.struct_size = sizeof r};
        int64_t zero_point = 5;
        float scale;
        assert_int_equal(qobs_observer_result_count(o), 2);
        assert_ok(qobs_observer_result_find(o, "zero_point", &r, &error));
        assert_true(r.dtype == QOBS_I64 && r.size == 8);
        assert_result(o, "scale", 1);
        assert_ok(call_qparams(o, &scale, sizeof scale, &zero_point, sizeof zero_point, &error));
        assert_true(scale == 1 && zero_point == 0);
        assert_refused(qobs_observer_result_find(o, "min_val", &r, &error), QOBS_ERROR_NO_DATA, "min_val");
        qobs_observer_destroy(o);
    }
}

/* ---- Conventions ------------------------------------------------------------------------------------------------- */

static void expect_qparams(const struct format *f, int bits, bool symmetric, double min, double max, double *scale,
                           int *zero_point)
{
    const double quant_min = -ldexp(1, bits - 1), quant_max = -quant_min - 1, range = quant_max - quant_min;
    const double a = min < 0 ? min : 0, b = max > 0 ? max : 0;
    if (symmetric) {
        *scale = divide(f, -a > b ? -a : b, range / 2);
        *zero_point = 0;
    } else {
        *scale = divide(f, add(f, b, -a), range);
        const double z = add(f, quant_min, -divide(f, a, *scale)); /* 0 / 0 is upstream's cast of NaN: 0 */
        *zero_point = isnan(z) ? 0 : (int)nearbyint(z < quant_min ? quant_min : z > quant_max ? quant_max : z);
    }
    *scale = *scale == 0 ? f->eps : *scale;
}

static void test_compressed_tensors(void **state)
{
    static const double ranges[][2] = {{0, 0},     {-1, 2},       {-3, 0},       {0, 5},        {1, 9},
                                       {-7, -2},   {-0.1, 0.1},   {-100, 0.001}, {-1e-7, 1e-7}, {-0.001, 65000},
                                       {-1e-3, 1}, {-6e-8, 6e-8}, {-12.7, 55}};
    enum { RANGES = sizeof ranges / sizeof *ranges };
    for (int k = 0; k < FORMATS * 8 * 2; k++) {
        const struct format *f = &formats[k % FORMATS];
        const int bits = k / FORMATS % 8 == 7 ? 16 : k / FORMATS % 8 + 2;
        const bool symmetric = k / FORMATS / 8;
        unsigned char min[8 * RANGES], max[8 * RANGES], scale[8 * RANGES];
        int16_t zero_points[RANGES];
        qobs_dtype scale_dtype, zero_point_dtype;
        char settings[64];
        for (size_t i = 0; i < RANGES; i++) {
            encode(f, nearest(f, ranges[i][0]), min + i * f->size);
            encode(f, nearest(f, ranges[i][1]), max + i * f->size);
        }
        snprintf(settings, sizeof settings, "num_bits=%d;symmetric=%s", bits, symmetric ? "true" : "false");
        qobs_config *config = make_config("llmc.minmax", settings, NULL);
        assert_ok(qobs_config_qparam_dtypes(config, f->dtype, &scale_dtype, &zero_point_dtype, &error));
        assert_true(scale_dtype == f->dtype && zero_point_dtype == (bits > 8 ? QOBS_I16 : QOBS_I8));
        assert_ok(call_calculate_qparams(config, f->dtype, RANGES, min, max, NULL, scale, zero_points, &error));
        for (size_t i = 0; i < RANGES; i++) {
            double want;
            int zero_point;
            expect_qparams(f, bits, symmetric, decode(f, min + i * f->size), decode(f, max + i * f->size), &want,
                           &zero_point);
            const int got = bits > 8 ? zero_points[i] : ((const int8_t *)zero_points)[i];
            if (decode(f, scale + i * f->size) != want || got != zero_point)
                fail_msg("%s, %d bits, symmetric %d, %g to %g: scale %.17g and zero point %d, expected %.17g and %d",
                         qobs_dtype_name(f->dtype), bits, symmetric, ranges[i][0], ranges[i][1],
                         decode(f, scale + i * f->size), got, want, zero_point);
        }
        assert_ok(call_calculate_qparams(config, f->dtype, RANGES, min, max, NULL, NULL, NULL, &error));
        assert_refused(call_calculate_qparams(config, f->dtype, 1, NULL, max, NULL, scale, NULL, &error),
                       QOBS_ERROR_INVALID_ARGUMENT, "min");
        assert_refused(call_calculate_qparams(config, QOBS_I8, 1, min, max, NULL, scale, NULL, &error),
                       QOBS_ERROR_INVALID_ARGUMENT, "dtype|I8|F64");
        qobs_config_destroy(config);
    }
}

static void test_torch(void **state)
{
    static const struct {
        const char *settings;
        float min, max, scale;
        int64_t zero_point;
    } cases[] = {
        {"", -1, 2, 3.0f / 255, 85},
        {"dtype=qint8", -1, 2, 3.0f / 255, -43},
        {"dtype=torch.quint4x2", -1, 2, 3.0f / 15, 5},
        {"reduce_range=true", -1, 2, 3.0f / 127, 42},
        {"", 0, 0, 0x1p-23f, 0},
        {"eps=0.5", -1, 2, 0.5f, 2},
        {"", 3, 4, 4.0f / 255, 0},
        {"", -4, -3, 4.0f / 255, 255},
        {"quant_min=-8;quant_max=7;dtype=qint8", -1, 2, 3.0f / 15, -3},
        {"quant_min=-9;quant_max=7;dtype=qint8;reduce_range=true", -1, 2, 3.0f / 8, -2},
        {"qscheme=per_tensor_symmetric", -1, 2, 2 / 127.5f, 128},
        {"qscheme=per_tensor_symmetric;dtype=qint8", -3, 2, 3 / 127.5f, 0},
        {"qscheme=per_tensor_symmetric;eps=0.5", -3, 2, 0.5f, 128},
        {"qscheme=torch.per_tensor_symmetric;dtype=uint16", -3, 2, 3 / 32767.5f, 32768},
        {"qscheme=per_tensor_symmetric;quant_min=0;quant_max=15", -3, 2, 3 / 7.5f, 7},
        {"dtype=qint32", 0, 1, 0x1p-23f, INT32_MIN},
        {"", INFINITY, -INFINITY, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qobs_config *config = make_config("torch.MinMaxObserver", cases[i].settings, NULL);
        qobs_dtype dtypes[2];
        int64_t zero_point = 0;
        float scale;
        assert_ok(qobs_config_qparam_dtypes(config, QOBS_F32, &dtypes[0], &dtypes[1], &error));
        assert_ok(call_calculate_qparams(config, QOBS_F32, 1, &cases[i].min, &cases[i].max, NULL, &scale, &zero_point,
                                         &error));
        if (dtypes[1] == QOBS_I32)
            zero_point = (int32_t)get_bits(&zero_point, sizeof(int32_t));
        if (scale != cases[i].scale || zero_point != cases[i].zero_point)
            fail_msg("'%s': scale %.9g and zero point %lld, expected %.9g and %lld", cases[i].settings, (double)scale,
                     (long long)zero_point, (double)cases[i].scale, (long long)cases[i].zero_point);
        assert_refused(call_calculate_qparams(config, QOBS_F32, 1, F32(2), F32(1), NULL, &scale, NULL, &error),
                       QOBS_ERROR_NO_RESULT, "2|1");
        assert_refused(call_calculate_qparams(config, QOBS_BF16, 1, F32(1), F32(2), NULL, &scale, NULL, &error),
                       QOBS_ERROR_INVALID_ARGUMENT, "dtype|BF16|F32");
        qobs_config_destroy(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates), cmocka_unit_test(test_averages), cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_weights), cmocka_unit_test(test_empty),    cmocka_unit_test(test_changes),
        cmocka_unit_test(test_results), cmocka_unit_test(test_no_data),  cmocka_unit_test(test_compressed_tensors),
        cmocka_unit_test(test_torch),
    };
    return cmocka_run_group_tests_name("observer", tests, NULL, NULL) != 0;
}

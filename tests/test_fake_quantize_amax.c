/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Fake-quantize by magnitudes, as Model-Optimizer: rows, columns and whole tensors of every dtype, in place, with strides
 * and on threads, against a slow computation; and what is refused. */
#include "observing.h"

#include <math.h>

#include "number/convert.h"
#include "qobs/stateless.h"
#include "threads.h"

enum { ROWS = 37, COLUMNS = 211, LARGE = 1 << 18 };

static const qobs_dtype dtypes[] = {QOBS_F32, QOBS_BF16, QOBS_F16, QOBS_F64};

/* Upstream's operations in float, one rounding each. */
static double slow(bool e4m3, double quant_min, double quant_max, double x, double amax, qobs_dtype dtype)
{
    const volatile float a = (float)amax, number = (float)x;
    float result;
    if (e4m3) {
        const volatile float inverse = 1 / (a <= 0x1p-24f ? 1 : a), scale = inverse * 448, back = 1 / scale;
        const volatile float v = number * scale;
        result = qobs_format_round(qobs_format_find("fp8_e4m3"), v, true) * back;
    } else {
        const volatile float scale = a <= 0x1p-24f ? 0 : (float)quant_max / a, v = number * scale;
        const double rounded = rint((double)v), low = rounded < quant_min ? quant_min : rounded;
        const volatile float limited = (float)(low > quant_max ? quant_max : low);
        result = limited / (scale == 0 ? 1 : scale);
    }
    return qobs_round_to(dtype, (double)result);
}

static struct {
    const char *preset, *settings;
    bool e4m3;
    double quant_min, quant_max;
} formats[] = {
    {"modelopt.MaxCalibrator", "num_bits=8", false, -128, 127},
    {"modelopt.MaxCalibrator", "num_bits=16", false, -32768, 32767},
    {"modelopt.MaxCalibrator", "num_bits=4;unsigned=true", false, 0, 15},
    {"modelopt.MseCalibrator", "num_bits=4;narrow_range=true", false, -7, 7},
    {"modelopt.MaxCalibrator", "num_bits=[4, 3]", true, -448, 448},
};

/* Numbers of all sizes, ties and zeros among them; `sign`: below 0, too. */
static double number(size_t i, bool sign)
{
    const double x = (double)(i * 7919 % 1021) / 128;
    return ldexp(sign && i % 3 == 1 ? -x : x, (int)(i % 5) - 2);
}

/* Axis 0, 1 or none (-1) of the transposed or the plain tensor. */
static void compare(size_t format, qobs_dtype dtype, int axis, bool transposed, bool in_place)
{
    static double amax[COLUMNS], value[ROWS * COLUMNS], out[ROWS * COLUMNS];
    const size_t size = qobs_dtype_size(dtype), count = axis < 0 ? 1 : axis == 0 ? ROWS : COLUMNS;
    const int64_t shape[] = {ROWS, COLUMNS}, amax_shape[] = {(int64_t)count};
    const int64_t strides[] = {transposed ? (int64_t)size : (int64_t)(COLUMNS * size),
                               transposed ? (int64_t)(ROWS * size) : (int64_t)size};
    char text[64];
    snprintf(text, sizeof text, axis < 0 ? "%s" : "%s;axis=%d", formats[format].settings, axis);
    qobs_config *config = make_config(formats[format].preset, text, NULL);
    for (size_t i = 0; i < count; i++)
        amax[i] = (double)(float)(i % 7 == 3 ? 0x1p-24 : i % 7 == 5 ? 0 : 0.3 + (double)i * 0.37);
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        const double x = number(i, formats[format].quant_min < 0);
        qobs_store_doubles(value, dtype, i, 1, &x);
    }
    unsigned char *before = malloc(sizeof value);
    memcpy(before, value, sizeof value);
    const qobs_tensor tensor = {sizeof tensor, value, dtype, 2, shape, strides};
    const qobs_tensor magnitudes = {sizeof magnitudes, amax, QOBS_F64, 1, amax_shape, NULL};
    const qobs_fake_quantize_args args = {.struct_size = sizeof args,
                                          .config = config,
                                          .value = &tensor,
                                          .out = in_place ? value : out,
                                          .out_strides = transposed ? strides : NULL,
                                          .out_size = ROWS * COLUMNS * size,
                                          .amax = &magnitudes};
    assert_ok(qobs_fake_quantize(&args, &error));
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = 0; k < COLUMNS; k++) {
            const size_t at = transposed ? k * ROWS + r : r * COLUMNS + k, q = axis < 0 ? 0 : axis == 0 ? r : k;
            const double x = qobs_element(before + at * size, dtype);
            const double got = qobs_element((unsigned char *)args.out + at * size, dtype);
            const double wanted = slow(formats[format].e4m3, formats[format].quant_min, formats[format].quant_max, x,
                                       amax[q], dtype);
            if (got != wanted || !signbit(got) != !signbit(wanted))
                fail_msg("%s, %s, axis %d: %g under %g is %.9g, expected %.9g", text, qobs_dtype_name(dtype), axis, x,
                         amax[q], got, wanted);
        }
    free(before);
    qobs_config_destroy(config);
}

static void test_slow_computation(void **state)
{
    for (size_t format = 0; format < sizeof formats / sizeof *formats; format++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (int axis = -1; axis < 2; axis++)
                for (int how = 0; how < 4; how++)
                    compare(format, dtypes[d], axis, how & 1, how & 2);
}

/* NaN stays NaN, infinity becomes the largest number. */
static void test_nonfinite(void **state)
{
    float value[] = {NAN, INFINITY, -INFINITY}, two = 2;
    const int64_t shape[] = {3};
    const qobs_tensor tensor = {sizeof tensor, value, QOBS_F32, 1, shape, NULL};
    const qobs_tensor magnitude = {sizeof magnitude, &two, QOBS_F32, 0, NULL, NULL};
    for (size_t format = 0; format < sizeof formats / sizeof *formats; format++) {
        if (formats[format].quant_min == 0)
            continue;
        float out[3];
        qobs_config *config = make_config(formats[format].preset, formats[format].settings, NULL);
        const qobs_fake_quantize_args args = {.struct_size = sizeof args,
                                              .config = config,
                                              .value = &tensor,
                                              .out = out,
                                              .out_size = sizeof out,
                                              .amax = &magnitude};
        assert_ok(qobs_fake_quantize(&args, &error));
        assert_true(isnan(out[0]) && out[1] == 2 && out[2] <= -2);
        qobs_config_destroy(config);
    }
}

static void test_threads(void **state)
{
    static float value[LARGE], one[LARGE], many[LARGE];
    float amax[64];
    const size_t threads = 5;
    const qobs_executor executor = {sizeof executor, threads, parallel_for, (void *)(uintptr_t)&threads};
    const qobs_runtime runtime = {sizeof runtime, NULL, &executor};
    const int64_t shape[] = {64, LARGE / 64}, amax_shape[] = {64};
    const qobs_tensor tensor = {sizeof tensor, value, QOBS_F32, 2, shape, NULL};
    const qobs_tensor magnitudes = {sizeof magnitudes, amax, QOBS_F32, 1, amax_shape, NULL};
    for (size_t i = 0; i < LARGE; i++)
        value[i] = (float)number(i, true);
    for (size_t i = 0; i < 64; i++)
        amax[i] = 1 + (float)i;
    qobs_config *config = make_config("modelopt.MaxCalibrator", "axis=0", NULL);
    qobs_fake_quantize_args args = {.struct_size = sizeof args,
                                    .config = config,
                                    .value = &tensor,
                                    .out = one,
                                    .out_size = sizeof one,
                                    .amax = &magnitudes};
    assert_ok(qobs_fake_quantize(&args, &error));
    args.out = many;
    args.runtime = &runtime;
    const size_t before = atomic_load(&loops);
    assert_ok(qobs_fake_quantize(&args, &error));
    assert_true(atomic_load(&loops) > before);
    assert_memory_equal(one, many, sizeof one);
    qobs_config_destroy(config);
}

static void test_refused(void **state)
{
    static float value[] = {-1, 2, 3, 4}, scales[] = {1, 1};
    static int8_t integers[] = {1, 1};
    static const int64_t shape[] = {2, 2}, pair[] = {2}, single[] = {1};
    float negative[] = {1, -1}, nan[] = {1, NAN}, infinite[] = {1, INFINITY}, good[] = {1, 2}, global = 1;
    const qobs_tensor tensor = {sizeof tensor, value, QOBS_F32, 2, shape, NULL};
    const qobs_tensor scale = {sizeof scale, scales, QOBS_F32, 1, pair, NULL};
#define AMAX(data, dtype, shape) {sizeof(qobs_tensor), data, dtype, 1, shape, NULL}
    const struct {
        const char *preset, *settings;
        qobs_tensor amax;
        const qobs_format *format;
        const qobs_tensor *scale, *zero_point;
        const float *global_scale;
        const char *words;
    } cases[] = {
        {"modelopt.MaxCalibrator", "axis=0", AMAX(negative, QOBS_F32, pair), NULL, NULL, NULL, NULL, "amax|1|-1"},
        {"modelopt.MaxCalibrator", "axis=0", AMAX(nan, QOBS_F32, pair), NULL, NULL, NULL, NULL, "amax|1|nan"},
        {"modelopt.MaxCalibrator", "axis=0", AMAX(infinite, QOBS_F32, pair), NULL, NULL, NULL, NULL, "amax|1|inf"},
        {"modelopt.MaxCalibrator", "axis=0", AMAX(good, QOBS_F32, single), NULL, NULL, NULL, NULL, "amax|1|2"},
        {"modelopt.MaxCalibrator", "", AMAX(good, QOBS_F32, pair), NULL, NULL, NULL, NULL, "amax|2|1"},
        {"modelopt.MaxCalibrator", "axis=0", AMAX(integers, QOBS_I8, pair), NULL, NULL, NULL, NULL, "amax|I8|BF16"},
        {"modelopt.MaxCalibrator", "axis=0", AMAX(good, QOBS_F32, pair), qobs_format_find("int8"), NULL, NULL, NULL,
         "format|amax"},
        {"modelopt.MaxCalibrator", "axis=0", AMAX(good, QOBS_F32, pair), NULL, &scale, NULL, NULL, "scale|amax"},
        {"modelopt.MaxCalibrator", "axis=0", AMAX(good, QOBS_F32, pair), NULL, NULL, &scale, NULL, "zero_point|amax"},
        {"modelopt.MaxCalibrator", "axis=0", AMAX(good, QOBS_F32, pair), NULL, NULL, NULL, &global,
         "global_scale|amax"},
        {"llmc.memoryless_minmax", "strategy=channel", AMAX(good, QOBS_F32, pair), NULL, NULL, NULL, NULL,
         "amax|llmc.memoryless_minmax|modelopt"},
        {"modelopt.MaxCalibrator", "axis=0;unsigned=true", AMAX(good, QOBS_F32, pair), NULL, NULL, NULL, NULL,
         "value|negative|unsigned"},
    };
#undef AMAX
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float out[4] = {9, 9, 9, 9};
        qobs_config *config = make_config(cases[i].preset, cases[i].settings, NULL);
        const qobs_fake_quantize_args args = {.struct_size = sizeof args,
                                              .config = config,
                                              .format = cases[i].format,
                                              .value = &tensor,
                                              .scale = cases[i].scale,
                                              .zero_point = cases[i].zero_point,
                                              .global_scale = cases[i].global_scale,
                                              .out = out,
                                              .out_size = sizeof out,
                                              .amax = &cases[i].amax};
        assert_refused(qobs_fake_quantize(&args, &error), QOBS_ERROR_INVALID_ARGUMENT, cases[i].words);
        for (size_t k = 0; k < 4; k++)
            assert_true(out[k] == 9);
        qobs_config_destroy(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_computation),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("fake-quantize by amax", tests, NULL, NULL) != 0;
}

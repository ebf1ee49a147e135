/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer's calibrate_weights (suite trt_2026_11) on every instruction set of this CPU; axes, strides, dtypes
 * and threads against one channel at a time; and what is refused. */
#include "golden.h"

#include "calls.h"
#include "number/convert.h"
#include "threads.h"

enum { ROWS = 96, COLUMNS = 700 };

static qobs_error error;

static qobs_config *calibrator(const char *settings)
{
    qobs_config *config = NULL;
    assert_int_equal(qobs_config_create(&config, "modelopt.HistogramCalibrator", NULL, &error), QOBS_OK);
    if (qobs_config_set_all(config, settings, &error) != QOBS_OK)
        fail_case("%s", error.message);
    return config;
}

static int calibrate(const qobs_config *config, const qobs_tensor *value, float *amax, size_t count,
                     const qobs_runtime *runtime)
{
    const qobs_calibrate_args args = {.struct_size = sizeof args,
                                      .config = config,
                                      .value = value,
                                      .amax = amax,
                                      .amax_size = count * sizeof *amax,
                                      .runtime = runtime};
    return qobs_calibrate_weights(&args, &error);
}

/* ---- Upstream's -------------------------------------------------------------------------------------------------- */

static void run_case(const json_object *c)
{
    const json_object *settings = json_get(c, "config");
    const qobs_tensor value = tensor_named(json_text(json_at(json_get(c, "inputs"), 0)));
    const qobs_tensor wanted = tensor_named(text_of(json_get(c, "expect"), "amax"));
    const bool channels = json_is_true(json_get(settings, "perchannel"));
    const size_t count = channels ? (size_t)value.shape[0] : 1;
    float amax[16], min[16];
    char text[128];
    assert_true(count <= 16);
    if (strcmp(text_of(settings, "method"), "max") == 0) {
        const int rows = 0;
        const qobs_minmax_args args = {.struct_size = sizeof args,
                                       .value = &value,
                                       .axes = channels ? &rows : NULL,
                                       .axis_count = channels,
                                       .min = min,
                                       .max = amax,
                                       .size = count * sizeof *amax};
        assert_int_equal(qobs_minmax(&args, &error), QOBS_OK);
        for (size_t i = 0; i < count; i++)
            amax[i] = -min[i] > amax[i] ? -min[i] : amax[i];
    } else {
        snprintf(text, sizeof text, "method=%s percentile=%g num_bins=%d%s", text_of(settings, "method"),
                 json_object_get_double(json_get(settings, "percentile")),
                 json_object_get_int(json_get(settings, "num_bins")), channels ? " axis=0" : "");
        qobs_config *config = calibrator(text);
        if (calibrate(config, &value, amax, count, NULL) != QOBS_OK)
            fail_case("%s", error.message);
        qobs_config_destroy(config);
    }
    for (size_t i = 0; i < count; i++) {
        float expected;
        memcpy(&expected, (const unsigned char *)wanted.data + i * sizeof expected, sizeof expected);
        if (!same_number((double)amax[i], (double)expected))
            fail_case("amax[%zu]: got %.9g, expected %.9g", i, (double)amax[i], (double)expected);
    }
}

static void test_case(void **state) { on_every_isa(*state, run_case); }

/* ---- Layouts ----------------------------------------------------------------------------------------------------- */

static float number(size_t r, size_t k)
{
    return (float)((double)((r * 7919 + k * 104729) % 4093) - 2046) / 256 * (float)(r % 5 + 1);
}

/* Element [r, k] of the tensor is at r * row + k * column; channels are rows or columns. */
static void compare(const char *method, qobs_dtype dtype, int axis, bool transposed, const qobs_runtime *runtime)
{
    static double value[ROWS * COLUMNS], line[COLUMNS];
    const size_t size = qobs_dtype_size(dtype), count = axis == 0 ? ROWS : COLUMNS, length = axis == 0 ? COLUMNS : ROWS;
    const int64_t shape[] = {ROWS, COLUMNS}, line_shape[] = {(int64_t)length};
    const int64_t strides[] = {(int64_t)(transposed ? size : COLUMNS * size),
                               (int64_t)(transposed ? ROWS * size : size)};
    const qobs_tensor tensor = {sizeof tensor, value, dtype, 2, shape, strides};
    const qobs_tensor channel = {sizeof channel, line, dtype, 1, line_shape, NULL};
    float amax[COLUMNS], one;
    char text[128];
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = 0; k < COLUMNS; k++) {
            const double x = (double)number(r, k);
            qobs_store_doubles(value, dtype, transposed ? k * ROWS + r : r * COLUMNS + k, 1, &x);
        }
    snprintf(text, sizeof text, "%s axis=%d", method, axis);
    qobs_config *all = calibrator(text), *single = calibrator(method);
    assert_int_equal(calibrate(all, &tensor, amax, count, runtime), QOBS_OK);
    for (size_t c = 0; c < count; c += 13) {
        for (size_t i = 0; i < length; i++) {
            const double x = (double)(axis == 0 ? number(c, i) : number(i, c));
            qobs_store_doubles(line, dtype, i, 1, &x);
        }
        assert_int_equal(calibrate(single, &channel, &one, 1, NULL), QOBS_OK);
        if (amax[c] != one || !(one > 0))
            fail_case("%s: channel %zu is %g, alone %g", text, c, (double)amax[c], (double)one);
    }
    qobs_config_destroy(all);
    qobs_config_destroy(single);
}

static void test_layouts(void **state)
{
    static const qobs_dtype dtypes[] = {QOBS_F32, QOBS_BF16, QOBS_F16, QOBS_F64};
    const size_t threads = 5;
    const qobs_executor executor = {sizeof executor, threads, parallel_for, (void *)(uintptr_t)&threads};
    const qobs_runtime runtime = {sizeof runtime, NULL, &executor};
    const size_t before = atomic_load(&loops);
    for (size_t d = 0; d < 4; d++)
        for (int how = 0; how < 8; how++) {
            compare("method=percentile percentile=98 num_bins=300", dtypes[d], how & 1, how & 2,
                    how & 4 ? &runtime : NULL);
            compare("method=mse num_bits=4 num_bins=50 start_bin=10", dtypes[d], how & 1, how & 2,
                    how & 4 ? &runtime : NULL);
        }
    assert_true(atomic_load(&loops) > before);
}

/* The left edge of the bin that reaches the share; of zeros alone, that of the bin around 0; the last edge for all. */
static void test_edges(void **state)
{
    static float value[] = {-4, 1, 2, 3}, zeros[] = {0, 0, 0, 0};
    const int64_t shape[] = {4};
    const qobs_tensor tensor = {sizeof tensor, value, QOBS_F32, 1, shape, NULL};
    const qobs_tensor nothing = {sizeof nothing, zeros, QOBS_F32, 1, shape, NULL};
    float amax;
    qobs_config *config = calibrator("method=percentile num_bins=4 percentile=50");
    assert_int_equal(calibrate(config, &tensor, &amax, 1, NULL), QOBS_OK);
    assert_true(amax == 2);
    assert_int_equal(calibrate(config, &nothing, &amax, 1, NULL), QOBS_OK);
    assert_true(amax == 0);
    assert_int_equal(qobs_config_set(config, "num_bins", "1", &error), QOBS_OK);
    assert_int_equal(calibrate(config, &nothing, &amax, 1, NULL), QOBS_OK);
    assert_true(amax == -0.5f); /* as upstream, whose bins of one point are 1 wide around it */
    qobs_config_destroy(config);
}

static void test_refused(void **state)
{
    static float value[] = {1, 2, NAN, 4};
    const int64_t shape[] = {2, 2}, empty[] = {0, 2};
    const qobs_tensor finite = {sizeof finite, value, QOBS_F32, 1, shape, NULL};
    const qobs_tensor nan = {sizeof nan, value, QOBS_F32, 2, shape, NULL};
    static double beyond[] = {1, 1e300};
    const qobs_tensor wide = {sizeof wide, beyond, QOBS_F64, 1, shape, NULL};
    const qobs_tensor none = {sizeof none, value, QOBS_F32, 2, empty, NULL};
    const struct {
        const char *settings;
        const qobs_tensor *value;
        size_t count;
        int status;
        const char *word;
    } cases[] = {
        {"method=entropy", &finite, 1, QOBS_ERROR_INVALID_ARGUMENT, "method: is entropy"},
        {"method=percentile axis=0", &nan, 1, QOBS_ERROR_INVALID_ARGUMENT, "amax"},
        {"method=percentile axis=3", &finite, 1, QOBS_ERROR_INVALID_ARGUMENT, "axis"},
        {"method=mse num_bins=100", &finite, 1, QOBS_ERROR_INVALID_ARGUMENT, "start_bin: is 128"},
        {"method=percentile axis=0", &nan, 2, QOBS_ERROR_NONFINITE, "value"},
        {"method=percentile", &wide, 1, QOBS_ERROR_NONFINITE, "value"},
        {"method=percentile", &none, 1, QOBS_ERROR_NO_DATA, "value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float amax[2] = {7, 7};
        qobs_config *config = calibrator(cases[i].settings);
        assert_int_equal(calibrate(config, cases[i].value, amax, cases[i].count, NULL), cases[i].status);
        assert_has(error.message, cases[i].word);
        assert_true(amax[0] == 7 && amax[1] == 7);
        qobs_config_destroy(config);
    }
    qobs_config *other = NULL;
    float amax;
    assert_int_equal(qobs_config_create(&other, "modelopt.MaxCalibrator", NULL, &error), QOBS_OK);
    assert_int_equal(calibrate(other, &finite, &amax, 1, NULL), QOBS_ERROR_INVALID_ARGUMENT);
    assert_has(error.message, "modelopt.HistogramCalibrator");
    qobs_config_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_refused),
    };
    const int failed = run_suite("trt_2026_11", "now_weights", 4, test_case);
    return failed + cmocka_run_group_tests_name("calibrate_weights", tests, NULL, NULL) != 0;
}

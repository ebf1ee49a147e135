/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Qparams of one tensor in one call, their layout before any data, results as other dtypes, and ranges along axes. */
#include <math.h>

#include "calls.h"
#include "observing.h"

enum { ROWS = 4, COLUMNS = 64, MOST = 8 * ROWS * COLUMNS };

static float data[ROWS][COLUMNS];
static const int64_t shape[] = {ROWS, COLUMNS};

static qobs_tensor value_of(void)
{
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++)
            data[i][k] = (float)((i * 37 + k * 11) % 61 - 30) / (float)(8 + i);
    return (qobs_tensor){sizeof(qobs_tensor), data, QOBS_F32, 2, shape, NULL};
}

static const char *const texts[] = {
    "llmc.memoryless_minmax num_bits=4 group_size=16",
    "llmc.memoryless_minmax num_bits=8 strategy=channel symmetric=false",
    "llmc.memoryless_minmax num_bits=4 type=float strategy=tensor_group group_size=16",
    "llmc.memoryless_mse num_bits=4 group_size=32 norm=2",
    "llmc.minmax base_name=input strategy=tensor",
    "torch.MinMaxObserver",
    "torch.HistogramObserver",
    "torch.PerChannelMinMaxObserver ch_axis=1",
    "quark.PerTensorMinMaxObserver",
    "quark.PerChannelMinMaxObserver ch_axis=0",
    "quark.PerGroupMinMaxObserver ch_axis=1 group_size=16",
};

static void expect_layout(const qobs_observer *o, const char *name, qobs_dtype dtype, size_t size,
                          const qobs_qparam_layout *layout)
{
    qobs_result r = {.struct_size = sizeof r};
    assert_ok(qobs_observer_result_find(o, name, &r, &error));
    assert_int_equal(r.dtype, dtype);
    assert_int_equal(r.size, size);
    assert_int_equal(r.ndim, layout->ndim);
    for (int i = 0; i < r.ndim; i++)
        assert_int_equal(r.shape[i], layout->shape[i]);
}

/* The needs of presets, beside the settings that they have for it. */
static void test_needs(void **state)
{
    static const struct {
        const char *text;
        bool range, scale, importance, required, hessian, sign, global, one, rounds;
    } cases[] = {
        {"llmc.memoryless_minmax strategy=channel", .one = true},
        {"llmc.static_minmax base_name=weight strategy=channel", .one = true},
        {"llmc.minmax base_name=weight strategy=channel", .one = true},
        {"llmc.memoryless_minmax num_bits=16 strategy=channel", .one = false},
        {"llmc.memoryless_minmax num_bits=4 type=float strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn",
         .one = true, .global = true},
        {"llmc.memoryless_mse norm=2 strategy=channel", .range = true},
        {"llmc.imatrix_mse norm=2 strategy=channel", .range = true, .importance = true},
        {"llmc.imatrix_mse norm=2 strategy=channel strict=true", .range = true, .importance = true, .required = true},
        {"qobs.mse_optimal strategy=channel", .scale = true},
        {"qobs.mse_optimal strategy=channel signed_scale=true", .scale = true, .sign = true},
        {"qobs.imatrix_optimal strategy=channel strict=true", .scale = true, .importance = true, .required = true},
        {"qobs.local_hessian num_bits=4 group_size=16", .scale = true, .importance = true, .hessian = true},
        {"qobs.local_hessian num_bits=4 group_size=16 rounding=nearest", .scale = true, .importance = true,
         .hessian = true},
        {"qobs.local_hessian num_bits=4 group_size=16 rounding=descent", .scale = true, .importance = true,
         .hessian = true, .rounds = true},
        {"modelopt.MseCalibrator", .range = true},
        {"modelopt.MseCalibrator hessian_block_size=16 axis=0", .range = true, .importance = true, .hessian = true},
        {"torch.MinMaxObserver", .one = false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qobs_config *config = NULL;
        qobs_config_needs needs = {.struct_size = sizeof needs};
        assert_ok(qobs_config_parse(&config, cases[i].text, NULL, &error));
        assert_ok(qobs_config_get_needs(config, &needs, &error));
        if (needs.searches_range != cases[i].range || needs.searches_scale != cases[i].scale ||
            needs.importance != cases[i].importance || needs.importance_required != cases[i].required ||
            needs.hessian != cases[i].hessian || needs.signed_scale != cases[i].sign ||
            needs.global_scale != cases[i].global || needs.one_tensor != cases[i].one ||
            needs.rounds_codes != cases[i].rounds)
            fail_msg("%s: %d %d %d %d %d %d %d %d %d", cases[i].text, needs.searches_range, needs.searches_scale,
                     needs.importance, needs.importance_required, needs.hessian, needs.signed_scale, needs.global_scale,
                     needs.one_tensor, needs.rounds_codes);
        qobs_config_destroy(config);
    }
}

static void test_one_call(void **state)
{
    const qobs_tensor value = value_of();
    qobs_tensor shaped = value;
    shaped.data = NULL; /* a layout needs no data */
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        static unsigned char scale[MOST], zero_point[MOST], expected[MOST];
        float global_scale = NAN;
        qobs_qparam_layout layout = {.struct_size = sizeof layout};
        qobs_observer *o = NULL;
        qobs_config *config = NULL;
        assert_ok(qobs_observer_open(&o, texts[i], NULL, &error));
        assert_ok(qobs_observer_observe(o, &value, NULL, &error));
        assert_ok(qobs_config_parse(&config, texts[i], NULL, &error));
        assert_ok(qobs_config_qparam_layout(config, &shaped, NULL, &layout, &error));
        expect_layout(o, "scale", layout.scale_dtype, layout.scale_size, &layout);
        expect_layout(o, "zero_point", layout.zero_point_dtype, layout.zero_point_size, &layout);
        const qobs_qparam_buffers out = {sizeof out,   scale, layout.scale_size, zero_point, layout.zero_point_size,
                                         &global_scale};
        assert_ok(qobs_qparams_from_tensor(texts[i], &value, &out, NULL, &error));
        assert_ok(qobs_observer_read(o, "scale", expected, layout.scale_size, &error));
        assert_memory_equal(scale, expected, layout.scale_size);
        memset(scale, 0xaa, sizeof scale);
        assert_ok(qobs_config_qparams_from_tensor(config, &value, NULL, &out, NULL, &error));
        qobs_config_destroy(config);
        assert_memory_equal(scale, expected, layout.scale_size);
        assert_ok(qobs_observer_read(o, "zero_point", expected, layout.zero_point_size, &error));
        assert_memory_equal(zero_point, expected, layout.zero_point_size);
        if (layout.has_global_scale) {
            assert_ok(qobs_observer_read(o, "global_scale", expected, sizeof global_scale, &error));
            assert_memory_equal(&global_scale, expected, sizeof global_scale);
        } else {
            assert_true(global_scale == 1);
        }
        qobs_observer_destroy(o);
    }
}

/* Layouts agree with what every preset gives with its defaults, or both fail. */
static void test_every_layout(void **state)
{
    const qobs_tensor value = value_of();
    size_t compared = 0;
    for (size_t i = 0; i < qobs_preset_count(); i++) {
        qobs_config *config = make_config(qobs_preset_name(i), "", NULL);
        qobs_observer *o = NULL;
        qobs_qparam_layout layout = {.struct_size = sizeof layout};
        qobs_result r = {.struct_size = sizeof r};
        if (qobs_config_check(config, &error) != QOBS_OK) { /* needs settings that have no default */
            assert_int_equal(qobs_config_qparam_layout(config, &value, NULL, &layout, &error),
                             QOBS_ERROR_INVALID_ARGUMENT);
            qobs_config_destroy(config);
            continue;
        }
        assert_ok(qobs_observer_create(&o, config, NULL, &error));
        const int observed = qobs_observer_observe(o, &value, NULL, &error);
        const bool has_scale = observed == QOBS_OK && qobs_observer_result_find(o, "scale", &r, &error) == QOBS_OK;
        const int status = qobs_config_qparam_layout(config, &value, NULL, &layout, &error);
        if (has_scale != (status == QOBS_OK))
            fail_msg("%s: layout has status %d", qobs_preset_name(i), status);
        if (has_scale) {
            expect_layout(o, "scale", layout.scale_dtype, layout.scale_size, &layout);
            expect_layout(o, "zero_point", layout.zero_point_dtype, layout.zero_point_size, &layout);
            compared++;
        }
        qobs_observer_destroy(o);
        qobs_config_destroy(config);
    }
    assert_in_range(compared, 19, qobs_preset_count());
}

static void test_read_as(void **state)
{
    const qobs_tensor value = value_of();
    qobs_observer *o = make("torch.PerChannelMinMaxObserver", "ch_axis=0;dtype=quint8");
    float scale[ROWS], single[ROWS];
    double wide[ROWS];
    int32_t points[ROWS];
    int64_t long_points[ROWS];
    assert_ok(qobs_observer_observe(o, &value, NULL, &error));
    assert_ok(qobs_observer_read(o, "scale", scale, sizeof scale, &error));
    assert_ok(qobs_observer_read_as(o, "scale", QOBS_F64, wide, sizeof wide, &error));
    assert_ok(qobs_observer_read_as(o, "scale", QOBS_F32, single, sizeof single, &error));
    for (int i = 0; i < ROWS; i++)
        assert_true(wide[i] == (double)scale[i] && single[i] == scale[i]);
    assert_ok(qobs_observer_read_as(o, "zero_point", QOBS_I32, points, sizeof points, &error));
    assert_ok(qobs_observer_read_as(o, "zero_point", QOBS_I64, long_points, sizeof long_points, &error));
    assert_ok(qobs_observer_read_as(o, "zero_point", QOBS_F64, wide, sizeof wide, &error));
    for (int i = 0; i < ROWS; i++)
        assert_true(points[i] == long_points[i] && points[i] == (int32_t)wide[i]);
    assert_refused(qobs_observer_read_as(o, "scale", QOBS_I32, points, sizeof points, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "dtype: is I32|element 0 of scale");
    assert_refused(qobs_observer_read_as(o, "scale", QOBS_F64, wide, 8, &error), QOBS_ERROR_INVALID_ARGUMENT, "out|32");
    qobs_observer_destroy(o);
}

static void test_axes(void **state)
{
    const qobs_tensor value = value_of();
    float min[COLUMNS], max[COLUMNS];
    qobs_minmax_args args = {.struct_size = sizeof args, .value = &value, .min = min, .max = max, .size = 4};
    assert_ok(qobs_minmax(&args, &error)); /* the complete tensor */
    float smallest = INFINITY, largest = -INFINITY;
    for (int axis = 0; axis < 2; axis++) {
        const int n = axis == 0 ? ROWS : COLUMNS, negative = axis - 2;
        float of_first_min[COLUMNS], of_first_max[COLUMNS];
        args = (qobs_minmax_args){.struct_size = sizeof args,
                                  .value = &value,
                                  .axes = axis ? &axis : &negative,
                                  .axis_count = 1,
                                  .min = of_first_min,
                                  .max = of_first_max,
                                  .size = (size_t)n * 4};
        assert_ok(qobs_minmax(&args, &error));
        for (int i = 0; i < n; i++) {
            float low = INFINITY, high = -INFINITY;
            for (int k = 0; k < ROWS * COLUMNS / n; k++) {
                const float x = axis == 0 ? data[i][k] : data[k][i];
                low = fminf(low, x);
                high = fmaxf(high, x);
            }
            assert_true(of_first_min[i] == low && of_first_max[i] == high);
            smallest = fminf(smallest, low);
            largest = fmaxf(largest, high);
        }
    }
    assert_true(min[0] == smallest && max[0] == largest);
    const int beyond = 2;
    args.axes = &beyond;
    assert_refused(qobs_minmax(&args, &error), QOBS_ERROR_INVALID_ARGUMENT, "2");
}

/* Range finders say which bins they chose and what the objective is there. */
static void test_found(void **state)
{
    static const float counts[] = {50, 30, 10, 6, 3, 0.5f, 0.25f, 0.25f};
    float edges[9];
    const int64_t bins = 8, all = 9;
    for (int i = 0; i < 9; i++)
        edges[i] = (float)i;
    const qobs_tensor histogram = {sizeof histogram, counts, QOBS_F32, 1, &bins, NULL};
    const qobs_tensor bin_edges = {sizeof bin_edges, edges, QOBS_F32, 1, &all, NULL};
    qobs_config *config = make_config("modelopt.HistogramCalibrator", "num_bits=3", NULL);
    qobs_range_args args = {.struct_size = sizeof args,
                            .config = config,
                            .histogram = &histogram,
                            .bin_edges = &bin_edges,
                            .percentile = 96,
                            .stride = 1,
                            .start_bin = 2};
    qobs_range range = {.struct_size = sizeof range};
    assert_ok(qobs_range_by_percentile(&args, &range, &error));
    assert_true(range.max == 3 && range.min == -3);
    assert_int_equal(range.first_bin, 0);
    assert_int_equal(range.last_bin, 2);
    assert_true(fabs(range.score - 90) < 1e-9);
    assert_ok(qobs_range_by_mse(&args, &range, &error));
    const double best = range.score;
    assert_true(best > 0);
    for (int64_t start = 0; start < bins; start++) { /* no other candidate has a smaller error */
        args.start_bin = start;
        args.stride = bins;
        assert_ok(qobs_range_by_mse(&args, &range, &error));
        assert_int_equal(range.last_bin, start);
        assert_true(start < 2 || range.score >= best);
    }
    args.start_bin = 4;
    args.stride = 1;
    assert_ok(qobs_range_by_entropy(&args, &range, &error));
    assert_true(range.score >= 0 && range.score < 1);
    assert_int_equal(range.last_bin + 1, (int64_t)range.max);
    qobs_config_destroy(config);
    config = make_config("torch.HistogramObserver", "", NULL);
    args.config = config;
    assert_ok(qobs_range_by_l2_norm(&args, &range, &error));
    assert_true(range.score >= 0 && range.min == 0 && range.max <= 8);
    assert_int_equal(range.last_bin + 1, (int64_t)range.max);
    qobs_config_destroy(config);
}

/* ONNX Runtime's compute_scale_zp: (max - min) / (qmax - qmin), and rint(qmin - min / scale). */
static void test_ort_zero_points(void **state)
{
    static const float x[] = {-1, 0.5f, 2, 3};
    const int64_t shape[] = {4};
    const qobs_tensor tensor = {sizeof tensor, x, QOBS_F32, 1, shape, NULL};
    float scale;
    uint8_t low;
    int8_t middle;
    qobs_qparam_buffers out = {sizeof out, &scale, sizeof scale, &low, sizeof low, NULL};
    assert_ok(qobs_qparams_from_tensor("ort.MinMaxCalibrater activation_type=QUInt8", &tensor, &out, NULL, &error));
    assert_true(scale == (float)(4.0 / 255) && low == 64);
    out.zero_point = &middle;
    assert_ok(qobs_qparams_from_tensor("ort.MinMaxCalibrater activation_type=QInt8", &tensor, &out, NULL, &error));
    assert_true(scale == (float)(4.0 / 255) && middle == -64);
}

/* The family modelopt was called trt. */
static void test_old_name(void **state)
{
    qobs_config *config = NULL;
    assert_ok(qobs_config_create(&config, "trt.MaxCalibrator", NULL, &error));
    assert_string_equal(qobs_config_preset(config), "modelopt.MaxCalibrator");
    qobs_config_destroy(config);
    config = NULL;
    assert_refused(qobs_config_create(&config, "trt.MinMaxObserver", NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "trt.MinMaxObserver");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needs),        cmocka_unit_test(test_one_call),
        cmocka_unit_test(test_every_layout), cmocka_unit_test(test_read_as),
        cmocka_unit_test(test_axes),         cmocka_unit_test(test_found),
        cmocka_unit_test(test_old_name),     cmocka_unit_test(test_ort_zero_points),
    };
    return cmocka_run_group_tests_name("one call", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's observers and those without ranges, beyond the golden vectors: refusals, batches of another shape, counted
 * scales, merging and saved bytes. */
#include "observing.h"
#include "qobs/plan.h"
#include "calls.h"

#include <math.h>

static const char tensor_minmax[] = "quark.PerTensorMinMaxObserver", channels[] = "quark.PerChannelMinMaxObserver";
static const char groups[] = "quark.PerGroupMinMaxObserver", mx[] = "quark.PerBlockMXObserver";
static const char bfp[] = "quark.PerBlockBFPObserver", ballot[] = "quark.PerTensorPowOf2MinMaxObserver";
static const char channel_ballot[] = "quark.PerChannelPowOf2MinMaxObserver", fixed[] = "torch.FixedQParamsObserver";

static void test_settings_refused(void **state)
{
    static const struct {
        const char *preset, *settings, *words;
    } cases[] = {
        {tensor_minmax, "dtype=bfp16", "dtype|bfp16|int8|fp4"},
        {tensor_minmax, "dtype=bfloat16", "dtype|bfloat16"},
        {tensor_minmax, "dtype=int5", "dtype|int5|allowed"},
        {tensor_minmax, "dtype=fp4", "scale_format|not set|e8m0"},
        {tensor_minmax, "qscheme=per_channel", "qscheme|per_channel|per_tensor"},
        {tensor_minmax, "scale_type=float64", "scale_type|float64|bfloat16"},
        {tensor_minmax, "zero_point_type=int8", "zero_point_type|int8|float32"},
        {channels, "", "ch_axis|not set"},
        {groups, "ch_axis=1", "group_size|not set"},
        {groups, "ch_axis=1;group_size=0", "group_size|0|-1"},
        {groups, "ch_axis=1;group_size=8;dtype=fp4;scale_format=e8m0", "dtype|fp4"},
        {mx, "ch_axis=1;group_size=-1;scale_format=e8m0", "group_size|-1|above 0"},
        {mx, "ch_axis=1;group_size=8", "scale_format|not set"},
        {mx, "ch_axis=1;group_size=8;scale_format=e8m0;dtype=int8", "dtype|int8|fp6_e2m3"},
        {mx, "ch_axis=1;group_size=8;scale_format=e8m0;mx_element_dtype=int16", "mx_element_dtype|int16"},
        {mx, "ch_axis=1;group_size=8;scale_format=e8m0;scale_calculation_mode=round",
         "scale_calculation_mode|round|ceil"},
        {ballot, "dtype=int4", "dtype|int4|int32"},
        {fixed, "", "scale|not set"},
        {fixed, "scale=0.5", "zero_point|not set"},
        {fixed, "scale=0.5;zero_point=1;is_dynamic=true", "is_dynamic"},
        {"modelopt.MaxCalibrator", "axis=[0, x]", "axis|x|integers"},
        {"modelopt.MaxCalibrator", "axis=8", "axis|8"},
        {"modelopt.MaxCalibrator", "axis=", "axis|''"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qobs_config *config = NULL;
        assert_ok(qobs_config_create(&config, cases[i].preset, NULL, &error));
        int status = qobs_config_set_all(config, cases[i].settings, &error);
        if (status == QOBS_OK)
            status = qobs_config_check(config, &error);
        assert_refused(status, QOBS_ERROR_INVALID_ARGUMENT, cases[i].words);
        qobs_config_destroy(config);
    }
}

static void test_values_refused(void **state)
{
    static const float zeros[24];
    qobs_observer *o = make(groups, "ch_axis=1;group_size=5");
    assert_refused(observe(o, 3, 8, zeros), QOBS_ERROR_INVALID_ARGUMENT, "group_size|5|8");
    qobs_observer_destroy(o);
    o = make(mx, "ch_axis=2;group_size=8;scale_format=e8m0");
    assert_refused(observe(o, 3, 8, zeros), QOBS_ERROR_INVALID_ARGUMENT, "ch_axis|2|-2 to 1");
    qobs_observer_destroy(o);
    o = make("modelopt.MaxCalibrator", "axis=[0, 2]");
    assert_refused(observe(o, 3, 8, zeros), QOBS_ERROR_INVALID_ARGUMENT, "axis|2");
    qobs_observer_destroy(o);
}

/* A range and a scale for each channel; three of them where there were two begin anew. */
static void test_another_shape(void **state)
{
    qobs_observer *o = make(channels, "ch_axis=0");
    assert_ok(observe(o, 2, 2, F32(-1, 5, 2, 3)));
    assert_ok(observe(o, 2, 2, F32(0, 1, -9, 3)));
    assert_result(o, "min_val", -1, -9);
    assert_ok(observe(o, 3, 1, F32(7, 8, -4)));
    assert_result(o, "min_val", 7, 8, -4);
    assert_result(o, "max_val", 7, 8, -4);
    /* a batch that is refused leaves the three */
    assert_refused(observe(o, 2, 1, F32(1, NAN)), QOBS_ERROR_NONFINITE, "NaN");
    assert_result(o, "min_val", 7, 8, -4);
    qobs_observer_destroy(o);

    o = make(bfp, "ch_axis=1;group_size=2");
    assert_ok(observe(o, 1, 2, F32(1, NAN)));
    assert_result(o, "amax", 1);
    assert_refused(observe(o, 2, 2, F32(1, 2, 3, 4)), QOBS_ERROR_INVALID_ARGUMENT, "value|before");
    assert_result(o, "amax", 1);
    qobs_observer_destroy(o);
}

/* Quark's buffers are f32 until the first tensor: what a double has beyond that is lost once. */
static void test_doubles_pass_through_f32(void **state)
{
    const double x[] = {1 + 0x1p-40}, y[] = {1 + 0x1p-39};
    double got;
    qobs_observer *o = make(tensor_minmax, "");
    const qobs_tensor first = tensor(QOBS_F64, x, 1), second = tensor(QOBS_F64, y, 1);
    assert_ok(qobs_observer_observe(o, &first, NULL, &error));
    assert_ok(qobs_observer_read(o, "max_val", &got, sizeof got, &error));
    assert_true(got == 1);
    assert_ok(qobs_observer_observe(o, &second, NULL, &error));
    assert_ok(qobs_observer_read(o, "max_val", &got, sizeof got, &error));
    assert_true(got == y[0]);
    qobs_observer_destroy(o);
}

static void test_without_data(void **state)
{
    static const struct {
        const char *preset, *settings;
        float scale;
        int ndim;
        qobs_dtype zero_point;
    } cases[] = {
        {tensor_minmax, "", 1, 1, QOBS_I64},
        {groups, "ch_axis=1;group_size=4", 1, 2, QOBS_I64},
        {tensor_minmax, "dtype=fp8_e4m3", 0x1p-23f, 0, QOBS_F32},
        {mx, "ch_axis=1;group_size=4;scale_format=e8m0", 0x1p-127f, 0, QOBS_F32},
        {bfp, "ch_axis=1;group_size=4", 0x1p-23f, 0, QOBS_I32},
        {ballot, "", 1, 0, QOBS_F32},
        {channel_ballot, "ch_axis=0", 1, 1, QOBS_I32},
        {fixed, "scale=0.25;zero_point=7", 0.25f, 1, QOBS_I32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qobs_observer *o = make(cases[i].preset, cases[i].settings);
        qobs_result result = {.struct_size = sizeof result};
        assert_int_equal(qobs_observer_result_count(o), 2);
        assert_result(o, "scale", cases[i].scale);
        assert_ok(qobs_observer_result_find(o, "zero_point", &result, &error));
        assert_int_equal(result.ndim, cases[i].ndim);
        assert_int_equal(result.dtype, cases[i].zero_point);
        qobs_observer_destroy(o);
    }
    qobs_observer *o = make("modelopt.MaxCalibrator", "");
    unsigned char scale[4];
    qobs_result result = {.struct_size = sizeof result};
    assert_int_equal(qobs_observer_result_count(o), 0);
    assert_refused(qobs_observer_result_find(o, "amax", &result, &error), QOBS_ERROR_NO_DATA, "amax");
    assert_refused(qobs_observer_result_find(o, "scale", &result, &error), QOBS_ERROR_INVALID_ARGUMENT, "scale|amax");
    assert_refused(call_qparams(o, scale, 4, NULL, 0, &error), QOBS_ERROR_INVALID_ARGUMENT, "no scale");
    qobs_observer_destroy(o);
}

static qobs_observer *copy_of(const qobs_observer *o)
{
    size_t size;
    unsigned char *bytes = saved_state(o, &size);
    qobs_observer *copy = NULL;
    assert_ok(qobs_observer_load(&copy, bytes, size, NULL, &error));
    for (size_t cut = 0; cut < size; cut++) {
        qobs_observer *none = NULL;
        assert_true(qobs_observer_load(&none, bytes, cut, NULL, &error) != QOBS_OK && !none);
    }
    free(bytes);
    return copy;
}

/* The range only grows, so a scale that has been passed does not come back; is_dynamic lets it. */
static void test_ballot(void **state)
{
    qobs_observer *o = make(ballot, "is_dynamic=true;symmetric=true");
    assert_ok(observe(o, 1, 2, F32(-1, 1)));
    assert_result(o, "scale", 0x1p-7f);
    assert_ok(observe(o, 1, 2, F32(-4, 4)));
    assert_result(o, "scale", 0x1p-7f); /* one each: the earliest */
    qobs_observer *other = copy_of(o);
    assert_ok(observe(o, 1, 2, F32(-4, 3)));
    assert_result(o, "scale", 0x1p-5f);
    assert_result(o, "max_val", 3);
    assert_result(other, "scale", 0x1p-7f);
    assert_ok(observe(other, 1, 2, F32(-1, 0)));
    assert_ok(observe(other, 1, 2, F32(1, 1)));
    /* 1 and 2 votes here, 3 and 1 there */
    assert_ok(qobs_observer_merge(o, (const qobs_observer *const[]){other}, 1, &error));
    assert_result(o, "scale", 0x1p-7f);
    assert_int_equal(counts_of(o).batches, 7);
    qobs_observer *empty = make(ballot, "is_dynamic=true;symmetric=true");
    assert_ok(qobs_observer_merge(empty, (const qobs_observer *const[]){o, other}, 2, &error));
    assert_result(empty, "scale", 0x1p-7f);
    qobs_observer_reset(o);
    assert_ok(observe(o, 1, 2, F32(-4, 4)));
    assert_result(o, "scale", 0x1p-5f);
    qobs_observer_destroy(o);
    qobs_observer_destroy(other);
    qobs_observer_destroy(empty);
}

/* A range that leaves no scale has no vote, and hides those cast before. */
static void test_ballot_without_result(void **state)
{
    qobs_observer *o = make(channel_ballot, "ch_axis=0;nonfinite=propagate");
    assert_ok(observe(o, 2, 1, F32(1, 2)));
    assert_int_equal(qobs_observer_result_count(o), 5);
    assert_ok(observe(o, 2, 1, F32(NAN, 2)));
    assert_int_equal(qobs_observer_result_count(o), 3);
    qobs_observer_destroy(o);
}

static void test_bytes(void **state)
{
    static const struct {
        const char *preset, *settings;
    } cases[] = {{tensor_minmax, "symmetric=false"},
                 {channels, "ch_axis=1"},
                 {groups, "ch_axis=0;group_size=2"},
                 {mx, "ch_axis=-1;group_size=3;scale_format=e4m3"},
                 {bfp, "ch_axis=1;group_size=4"},
                 {channel_ballot, "ch_axis=0"},
                 {"modelopt.MaxCalibrator", "axis=[0, -1]"},
                 {"modelopt.MaxCalibrator", "axis=-1"},
                 {"torch.PlaceholderObserver", "dtype=float16"},
                 {fixed, "scale=3;zero_point=1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qobs_observer *o = make(cases[i].preset, cases[i].settings);
        assert_ok(observe(o, 2, 4, F32(1, -2, 3, -4, 5, 6, 7, 8)));
        assert_ok(observe(o, 2, 4, F32(0, -2, 3, 9, 5, -60, 7, 8)));
        qobs_observer *copy = copy_of(o);
        const size_t count = qobs_observer_result_count(o);
        assert_int_equal(count, qobs_observer_result_count(copy));
        assert_int_equal(counts_of(copy).batches, 2);
        for (size_t k = 0; k < count; k++) {
            qobs_result a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
            unsigned char x[64], y[64];
            assert_ok(qobs_observer_result_info(o, k, &a, &error));
            assert_ok(qobs_observer_result_info(copy, k, &b, &error));
            assert_string_equal(a.name, b.name);
            assert_int_equal(a.ndim, b.ndim);
            assert_memory_equal(a.shape, b.shape, sizeof *a.shape * (size_t)a.ndim);
            assert_int_equal(a.size, b.size);
            assert_ok(qobs_observer_read(o, a.name, x, a.size, &error));
            assert_ok(qobs_observer_read(copy, a.name, y, a.size, &error));
            assert_memory_equal(x, y, a.size);
        }
        qobs_observer_destroy(o);
        qobs_observer_destroy(copy);
    }
}

struct allowance {
    size_t left, rank;
};

static void *allocate(void *context, size_t size)
{
    struct allowance *a = context;
    if (a->left == 0)
        return NULL;
    a->left--;
    a->rank++;
    return malloc(size);
}

static void release(void *context, void *memory, size_t size)
{
    if (memory)
        ((struct allowance *)context)->rank--;
    free(memory);
}

/* The observer is as it was if memory runs out at any place, and no memory leaks. */
static void test_no_memory(void **state)
{
    struct allowance a = {.left = 1000};
    const qobs_allocator allocator = {
        .struct_size = sizeof allocator, .allocate = allocate, .release = release, .context = &a};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .allocator = &allocator};
    qobs_config *config = make_config(channel_ballot, "ch_axis=0", &runtime);
    qobs_observer *o = NULL;
    assert_ok(qobs_observer_create(&o, config, &runtime, &error));
    assert_ok(observe(o, 2, 1, F32(1, 2)));
    for (int shape = 2; shape <= 3; shape++)
        for (size_t n = 0;; n++) {
            a.left = n;
            const int status = observe(o, shape, 1, F32(5, 6, 7));
            a.left = 1000;
            if (status == QOBS_OK)
                break;
            assert_int_equal(status, QOBS_ERROR_OUT_OF_MEMORY);
            if (shape == 2)
                assert_result(o, "max_val", 1, 2);
            else
                assert_result(o, "max_val", 5, 6);
        }
    assert_result(o, "max_val", 5, 6, 7);
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
    assert_int_equal(a.rank, 0);
}

/* The pieces a plan promises: rows of the swapped axis, padded, with the shape of scale between its ends. */
static void test_plan(void **state)
{
    const float x[] = {1, 2, 3, 4, 5, 6};
    const float blocks[] = {1, 3, 5, 0, 2, 4, 6, 0};
    const qobs_tensor value = tensor(QOBS_F32, x, 3, 2);
    float copy[8];
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    qobs_config *config = make_config(mx, "ch_axis=0;group_size=2;scale_format=e8m0", NULL);
    qobs_plan *plan = NULL;
    assert_ok(qobs_plan_create(&plan, config, &value, NULL, NULL, &error));
    assert_int_equal(qobs_plan_shape(plan, shape, sizeof shape), 4);
    assert_memory_equal(shape, ((int64_t[]){1, 2, 2, 2}), 4 * sizeof *shape);
    assert_ok(qobs_plan_copy(plan, &value, copy, sizeof copy, &error));
    assert_memory_equal(copy, blocks, sizeof copy);
    qobs_plan_destroy(plan);
    qobs_config_destroy(config);
}

/* All but one magnitude lie in the last of 32 bins, so the threshold that clips nothing diverges least. */
static void test_last_threshold(void **state)
{
    float x[1024] = {0}, log_threshold;
    for (size_t i = 1; i < 1024; i++)
        x[i] = i % 2 ? 1 : -1;
    qobs_observer *o = make("quark.TQTObserver", "dtype=int4;threshold_init_meth=_KL_J");
    assert_ok(observe(o, 32, 32, x));
    assert_ok(qobs_observer_read(o, "log_threshold", &log_threshold, sizeof log_threshold, &error));
    assert_true(fabsf(exp2f(log_threshold) - 32.5f / 32) < 1e-5f);
    qobs_observer_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_threshold),
        cmocka_unit_test(test_settings_refused),
        cmocka_unit_test(test_values_refused),
        cmocka_unit_test(test_another_shape),
        cmocka_unit_test(test_doubles_pass_through_f32),
        cmocka_unit_test(test_without_data),
        cmocka_unit_test(test_ballot),
        cmocka_unit_test(test_ballot_without_result),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

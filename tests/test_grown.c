/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms that grow by whole bins: bounded, saved, merged, the same bits on every instruction set. */
#include "every_preset.h"
#include "observing.h"
#include "qobs/stateless.h"
#include "calls.h"
#include "repeats.h"

#include <math.h>

static const struct {
    const char *preset, *settings;
} presets[] = {
    {"quark.PerTensorHistogramObserver", "symmetric=false"},
    {"quark.PerTensorHistogramObserverPro", "dtype=uint8;symmetric=false"},
    {"quark.PerTensorPercentileObserver", "dtype=int8"},
    {"quark.PerTensorMSEObserver", "dtype=int8"},
    {"modelopt.HistogramCalibrator", "method=entropy"},
    {"modelopt.HistogramCalibrator", "method=mse;skip_zeros=true;num_bins=300"},
    {"modelopt.HistogramCalibrator", "method=percentile;torch_hist=false"},
};
enum { PRESETS = sizeof presets / sizeof *presets, N = 4000 };

static float values[3][N];

/* Each batch reaches further than the one before, on both sides. */
static void make_values(void)
{
    uint32_t state = 7;
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < N; i++) {
            const float sum = normal_like(&state);
            values[b][i] = i % 5 ? sum * (float)(b + 1) : 0;
        }
}

static void observe_batch(qobs_observer *o, int batch) { assert_ok(observe(o, 1, N, values[batch])); }

/* All results, and the saved state. */
static void expect_same(const qobs_observer *a, const qobs_observer *b)
{
    size_t size, other_size;
    unsigned char *bytes = saved_state(a, &size), *others = saved_state(b, &other_size);
    assert_int_equal(size, other_size);
    assert_memory_equal(bytes, others, size);
    free(bytes);
    free(others);
    assert_true(qobs_observer_result_count(a) > 0);
    for (size_t i = 0; i < qobs_observer_result_count(a); i++) {
        qobs_result result = {.struct_size = sizeof result};
        assert_ok(qobs_observer_result_info(a, i, &result, &error));
        void *ours = malloc(result.size), *theirs = malloc(result.size);
        assert_ok(qobs_observer_read(a, result.name, ours, result.size, &error));
        assert_ok(qobs_observer_read(b, result.name, theirs, result.size, &error));
        assert_memory_equal(ours, theirs, result.size);
        free(ours);
        free(theirs);
    }
}

static double count_of(const qobs_observer *o)
{
    qobs_result result = {.struct_size = sizeof result};
    const char *name =
        qobs_observer_result_find(o, "calib_hist", &result, NULL) == QOBS_OK ? "calib_hist" : "histogram";
    assert_ok(qobs_observer_result_find(o, name, &result, &error));
    float *counts = malloc(result.size);
    assert_ok(qobs_observer_read(o, name, counts, result.size, &error));
    double sum = 0;
    for (size_t i = 0; i < result.size / sizeof *counts; i++)
        sum += (double)counts[i];
    free(counts);
    return sum;
}

static void test_same_bits(void **state)
{
    for (size_t p = 0; p < PRESETS; p++) {
        assert_ok(qobs_isa_select("scalar", &error));
        qobs_observer *plain = make(presets[p].preset, presets[p].settings);
        assert_ok(qobs_isa_select(NULL, &error));
        qobs_observer *fast = make(presets[p].preset, presets[p].settings);
        for (int b = 0; b < 3; b++) {
            observe_batch(plain, b);
            observe_batch(fast, b);
            if (b == 2 || repeats(0, 1))
                expect_same(plain, fast);
        }
        qobs_observer_destroy(plain);
        qobs_observer_destroy(fast);
    }
}

/* Saving between batches loses nothing, and no truncated state loads. */
static void test_reloaded(void **state)
{
    for (size_t p = 0; p < PRESETS; p++) {
        qobs_observer *o = make(presets[p].preset, presets[p].settings), *copy, *none;
        observe_batch(o, 0);
        observe_batch(o, 2);
        size_t size;
        unsigned char *bytes = saved_state(o, &size);
        assert_ok(qobs_observer_load(&copy, bytes, size, NULL, &error));
        for (size_t cut = 0; cut < size; cut += size / 53 + 1)
            assert_refused(qobs_observer_load(&none, bytes, cut, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "buffer");
        free(bytes);
        expect_same(o, copy);
        observe_batch(o, 1);
        observe_batch(copy, 1);
        expect_same(o, copy);
        qobs_observer_destroy(o);
        qobs_observer_destroy(copy);
    }
}

/* No count is lost, and an empty observer becomes like another. */
static void test_merged(void **state)
{
    for (size_t p = 0; p < PRESETS; p++) {
        qobs_observer *a = make(presets[p].preset, presets[p].settings),
                      *b = make(presets[p].preset, presets[p].settings);
        qobs_observer *empty = make(presets[p].preset, presets[p].settings);
        observe_batch(a, 0);
        observe_batch(b, 1);
        observe_batch(b, 2);
        const double sum = count_of(a) + count_of(b);
        assert_ok(qobs_observer_merge(empty, (const qobs_observer *const *)&b, 1, &error));
        expect_same(empty, b);
        assert_ok(qobs_observer_merge(a, (const qobs_observer *const *)&b, 1, &error));
        if (fabs(count_of(a) - sum) > 1e-3)
            fail_msg("%s: %g counts, expected %g", presets[p].preset, count_of(a), sum);
        assert_int_equal(counts_of(a).batches, 3);
        qobs_observer_destroy(a);
        qobs_observer_destroy(b);
        qobs_observer_destroy(empty);
    }
}

/* A batch far beyond the bins fails and changes nothing. */
static void test_bounded(void **state)
{
    static const float far[2] = {1e30f, 0};
    for (size_t p = 0; p < PRESETS; p++) {
        if (strstr(presets[p].preset, "Pro"))
            continue;
        qobs_observer *o = make(presets[p].preset, presets[p].settings),
                      *before = make(presets[p].preset, presets[p].settings);
        observe_batch(o, 0);
        observe_batch(before, 0);
        assert_refused(observe(o, 1, 2, far), QOBS_ERROR_INVALID_ARGUMENT, "value|1e+30|1048576");
        expect_same(o, before);
        qobs_observer_destroy(o);
        qobs_observer_destroy(before);
    }
}

/* Upstream adds old counts to the first bins, even if bins have been added below them. */
static void test_shifted(void **state)
{
    float first[2][4096] = {{0}};
    for (int shifted = 0; shifted < 2; shifted++) {
        qobs_observer *o = make("quark.PerTensorHistogramObserver",
                                shifted ? "symmetric=false;shifted_counts=true" : "symmetric=false");
        qobs_result result = {.struct_size = sizeof result};
        assert_ok(observe(o, 1, 4, F32(0, 1, 1, 1)));
        assert_ok(observe(o, 1, 2, F32(-0.5f, 1)));
        assert_ok(qobs_observer_result_find(o, "calib_hist", &result, &error));
        assert_true(result.size < sizeof first[0]);
        assert_ok(qobs_observer_read(o, "calib_hist", first[shifted], result.size, &error));
        assert_true(count_of(o) == 6);
        qobs_observer_destroy(o);
    }
    /* Bin 0 is the old 0's; -0.5 is in the bin after, as the first one begins a width below it. */
    assert_true(first[0][0] == 1 && first[0][1] == 1 && first[0][2047] == 3);
    assert_true(first[1][0] == 0 && first[1][1] == 1 && first[1][2047] == 0);
    float near = 0;
    for (int i = 1020; i < 1030; i++) /* 1024 bins have come before the old ones, and one for the edge */
        near += first[1][i];
    assert_true(near == 1);
}

/* A batch of zeros only leaves nothing to count where they are skipped: Quark's range is then 0 to 0, Model-Optimizer
 * ignores it. */
static void test_zeros(void **state)
{
    qobs_observer *o = make("quark.PerTensorPercentileObserver", ""),
                  *modelopt = make("modelopt.HistogramCalibrator", "skip_zeros=true");
    assert_ok(observe(o, 1, 3, F32(0, 0, 0)));
    assert_result(o, "min_val", 0);
    assert_result(o, "max_val", 0);
    assert_ok(observe(modelopt, 1, 3, F32(0, 0, 0)));
    assert_int_equal(qobs_observer_result_count(modelopt), 0);
    assert_ok(observe(modelopt, 1, 3, F32(0, 1, 2)));
    assert_true(count_of(modelopt) == 2);
    qobs_observer_destroy(o);
    qobs_observer_destroy(modelopt);
}

/* Ranges of Quark's wrapper of torch's observer are F32, as torch's. */
static void test_ranges_of_pro(void **state)
{
    qobs_config *config = make_config("quark.PerTensorHistogramObserverPro", "dtype=uint8;symmetric=false", NULL);
    const uint16_t halves[2] = {0, 0};
    float scale = 0;
    int32_t zero_point = 7;
    assert_refused(
        call_calculate_qparams(config, QOBS_BF16, 1, &halves[0], &halves[1], NULL, &scale, &zero_point, &error),
        QOBS_ERROR_INVALID_ARGUMENT, "dtype|BF16|F32");
    assert_ok(call_calculate_qparams(config, QOBS_F32, 1, F32(0), F32(51), NULL, &scale, &zero_point, &error));
    assert_true(scale == 51.0f / 255 && zero_point == 0);
    qobs_config_destroy(config);
}

/* Bins of ONNX Runtime that would be wider than the largest float are refused; the state stays and loads. */
static void test_width(void **state)
{
    static const float small[] = {-1, 2}, large[] = {-3e38f, 3e38f};
    static const char *const settings[][2] = {{"ort.EntropyCalibrater", "num_bins=4"},
                                              {"ort.DistributionCalibrater", "num_bins=512"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (int first = 0; first < 2; first++) {
            qobs_observer *o = make(settings[i][0], settings[i][1]), *loaded = NULL;
            const qobs_tensor a = tensor(QOBS_F32, small, 1, 2), b = tensor(QOBS_F32, large, 1, 2);
            if (!first)
                assert_ok(qobs_observer_observe(o, &a, NULL, &error));
            assert_refused(qobs_observer_observe(o, &b, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "value");
            size_t size;
            unsigned char *bytes = saved_state(o, &size);
            assert_ok(qobs_observer_load(&loaded, bytes, size, NULL, &error));
            assert_ok(qobs_observer_observe(loaded, &a, NULL, &error));
            free(bytes);
            qobs_observer_destroy(loaded);
            qobs_observer_destroy(o);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),     cmocka_unit_test(test_reloaded), cmocka_unit_test(test_merged),
        cmocka_unit_test(test_bounded),       cmocka_unit_test(test_shifted),  cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_ranges_of_pro), cmocka_unit_test(test_width),
    };
    make_values();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The presets of ai-edge-quantizer and NNCF, beside their golden cases: what they refuse, elements of other dtypes and
 * strides, activations in parts. */
#include "observing.h"

enum { ROWS = 12, COLUMNS = 64, SAMPLES = 10 };

static float weight[ROWS][COLUMNS], activations[SAMPLES][COLUMNS];

static int make_numbers(void **state)
{
    uint32_t x = 1;
    for (int i = 0; i < (ROWS + SAMPLES) * COLUMNS; i++) {
        x = x * 1664525 + 1013904223;
        float *const to = i < ROWS * COLUMNS ? &weight[0][0] + i : &activations[0][0] + (i - ROWS * COLUMNS);
        *to = ((float)(x >> 16) - 32768) / 8192;
    }
    return 0;
}

static void observe_samples(qobs_observer *o, int first, int end)
{
    const qobs_tensor samples = tensor(QOBS_F32, activations[first], end - first, COLUMNS);
    assert_ok(qobs_observer_observe_importance(o, &samples, &error));
}

static void expect_same(const qobs_observer *a, const qobs_observer *b, const char *name)
{
    qobs_result r = {.struct_size = sizeof r};
    unsigned char x[8192], y[8192];
    assert_ok(qobs_observer_result_find(a, name, &r, &error));
    assert_in_range(r.size, 1, sizeof x);
    assert_ok(qobs_observer_read(a, name, x, r.size, &error));
    assert_ok(qobs_observer_read(b, name, y, r.size, &error));
    assert_memory_equal(x, y, r.size);
}

static const struct {
    const char *preset, *settings;
} every[] = {{"aiedge.OCTAV", "granularity=BLOCKWISE_32;num_bits=4"}, {"aiedge.OCTAV", "granularity=TENSORWISE"},
             {"aiedge.OSCAR", "granularity=BLOCKWISE_32;num_bits=4"}, {"aiedge.OSCAR", "num_bits=3"},
             {"nncf.WeightCompression", "group_size=16"},             {"nncf.ScaleEstimation", "group_size=16"},
             {"nncf.ScaleEstimation", "mode=INT3_SYM"}};

/* Weights that BF16 and F64 hold exactly, with a stride between columns, give the scales of the same floats. */
static void test_dtypes_and_strides(void **state)
{
    static float rounded[ROWS][COLUMNS];
    static double wide[ROWS][2 * COLUMNS];
    static uint16_t narrow[ROWS][COLUMNS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            uint32_t bits;
            memcpy(&bits, &weight[i][j], sizeof bits);
            bits &= 0xffff0000;
            memcpy(&rounded[i][j], &bits, sizeof bits);
            narrow[i][j] = (uint16_t)(bits >> 16);
            wide[i][2 * j] = (double)rounded[i][j];
            wide[i][2 * j + 1] = 1e9;
        }
    for (size_t k = 0; k < sizeof every / sizeof *every; k++) {
        const int64_t shape[] = {ROWS, COLUMNS}, strides[] = {sizeof wide[0], 2 * sizeof(double)};
        qobs_tensor values[] = {tensor_of(QOBS_F32, 2, shape, rounded), tensor_of(QOBS_BF16, 2, shape, narrow),
                                tensor_of(QOBS_F64, 2, shape, wide)};
        qobs_observer *o[3];
        values[2].strides = strides;
        for (int i = 0; i < 3; i++) {
            o[i] = make(every[k].preset, every[k].settings);
            if (strcmp(every[k].preset, "aiedge.OSCAR") == 0 || strcmp(every[k].preset, "nncf.ScaleEstimation") == 0)
                observe_samples(o[i], 0, SAMPLES);
            assert_ok(qobs_observer_observe(o[i], &values[i], NULL, &error));
            expect_same(o[0], o[i], "scale");
        }
        for (int i = 0; i < 3; i++)
            qobs_observer_destroy(o[i]);
    }
}

/* Sums and largest magnitudes of samples that two observers have seen are those of all samples. */
static void test_merged_samples(void **state)
{
    for (size_t k = 2; k < sizeof every / sizeof *every; k++) {
        if (strcmp(every[k].preset, "nncf.WeightCompression") == 0)
            continue;
        qobs_observer *whole = make(every[k].preset, every[k].settings), *part = make(every[k].preset, every[k].settings);
        qobs_observer *other = make(every[k].preset, every[k].settings);
        observe_samples(whole, 0, 1);
        observe_samples(whole, 1, SAMPLES);
        observe_samples(part, 0, 1);
        observe_samples(other, 1, SAMPLES);
        const qobs_observer *const others[] = {other};
        assert_ok(qobs_observer_merge(part, others, 1, &error));
        assert_ok(observe(whole, ROWS, COLUMNS, weight[0]));
        assert_ok(observe(part, ROWS, COLUMNS, weight[0]));
        expect_same(whole, part, "scale");
        qobs_observer *alone = make(every[k].preset, every[k].settings);
        observe_samples(alone, 0, 1);
        assert_ok(observe(alone, ROWS, COLUMNS, weight[0]));
        float a[ROWS * COLUMNS], b[ROWS * COLUMNS];
        qobs_result r = {.struct_size = sizeof r};
        assert_ok(qobs_observer_result_find(whole, "scale", &r, &error));
        assert_ok(qobs_observer_read(whole, "scale", a, r.size, &error));
        assert_ok(qobs_observer_read(alone, "scale", b, r.size, &error));
        assert_memory_not_equal(a, b, r.size); /* the other samples count */
        qobs_observer_destroy(whole);
        qobs_observer_destroy(part);
        qobs_observer_destroy(other);
        qobs_observer_destroy(alone);
    }
}

static void expect_config_refused(const char *text, const char *words)
{
    qobs_observer *o = NULL;
    assert_refused(qobs_observer_open(&o, text, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, words);
}

static void test_refusals(void **state)
{
    expect_config_refused("nncf.WeightCompression group_size=0", "group_size|is 0|-1");
    expect_config_refused("nncf.WeightCompression group_size=8 reduction_axes=[0,1]", "reduction_axes|2 axes|group_size 8");
    expect_config_refused("nncf.ScaleEstimation mode=INT8_SYM", "mode|INT8_SYM|4 bits");
    expect_config_refused("nncf.ScaleEstimation reduction_axes=1", "reduction_axes|no setting");
    expect_config_refused("aiedge.OSCAR quantized_dimension=1", "quantized_dimension|no setting");

    qobs_observer *o = make("aiedge.OCTAV", "quantized_dimension=2");
    assert_refused(observe(o, ROWS, COLUMNS, weight[0]), QOBS_ERROR_INVALID_ARGUMENT, "quantized_dimension|2 dimensions");
    qobs_observer_destroy(o);
    o = make("aiedge.OCTAV", "granularity=BLOCKWISE_128");
    assert_refused(observe(o, ROWS, COLUMNS, weight[0]), QOBS_ERROR_INVALID_ARGUMENT, "BLOCKWISE_128|64");
    qobs_observer_destroy(o);

    o = make("aiedge.OSCAR", "");
    const qobs_tensor cube = tensor(QOBS_F32, weight, 2, ROWS / 2, COLUMNS);
    assert_refused(qobs_observer_observe(o, &cube, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "value|3 dimensions|2");
    observe_samples(o, 0, SAMPLES);
    assert_refused(observe(o, ROWS, COLUMNS / 2, weight[0]), QOBS_ERROR_INVALID_ARGUMENT, "32 columns|64");
    assert_ok(observe(o, ROWS, COLUMNS, weight[0]));
    qobs_observer_destroy(o);

    o = make("nncf.ScaleEstimation", "group_size=16");
    static double hessian[COLUMNS / 16][16][16];
    const qobs_tensor h = tensor(QOBS_F64, hessian, COLUMNS / 16, 16, 16);
    assert_refused(qobs_observer_set_hessian(o, &h, &error), QOBS_ERROR_INVALID_ARGUMENT, "ScaleEstimation|activations");
    qobs_observer_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dtypes_and_strides), cmocka_unit_test(test_merged_samples),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, make_numbers, NULL);
}

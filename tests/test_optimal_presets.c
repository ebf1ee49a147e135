/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The presets with optimal scales as observers: what they refuse, global scales that are shared, saving and
 * merging. Their results are those of test_golden_optimal. */
#include "observing.h"

#include <math.h>

enum { ROWS = 64, COLUMNS = 256, GROUPS = ROWS * COLUMNS / 16 };
static const char nvfp4[] = "type=float;num_bits=4;strategy=tensor_group;group_size=16;scale_dtype=float8_e4m3fn";

static const float *weight_of(unsigned seed, float scale)
{
    static float weight[ROWS * COLUMNS];
    uint32_t state = seed;
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        state = state * 1664525u + 1013904223u;
        weight[i] = ((float)(state >> 8) / 8388608 - 1) * scale;
    }
    return weight;
}

static void test_refusals(void **unused)
{
    static const struct {
        const char *preset, *settings, *words;
    } cases[] = {
        {"qobs.mse_optimal", "strategy=tensor", "strategy|qobs.mse_optimal|tensor"},
        {"qobs.mse_optimal", "strategy=token", "strategy|qobs.mse_optimal|token"},
        {"qobs.imatrix_optimal", "base_name=input", "base_name|qobs.imatrix_optimal|input"},
        {"qobs.mse_optimal", "type=float;num_bits=8", "num_bits|8|4 (e2m1)"},
        {"qobs.mse_optimal", "num_bits=9", "num_bits|'9'|2 to 8"},
        {"qobs.mse_optimal", "signed_scale=true;symmetric=false", "signed_scale|symmetric integers"},
        {"qobs.mse_optimal", "start_multiplier=1;stop_multiplier=0.5", "stop_multiplier|0.5|start_multiplier"},
        {"qobs.mse_optimal", "start_multiplier=0", "start_multiplier|'0'"},
        {"qobs.mse_optimal", "stop_multiplier=4.5", "stop_multiplier|'4.5'|4"},
        {"qobs.mse_optimal", "scale_dtype=float8_e4m3fn;group_size=16", "scale_dtype|tensor_group"},
        {"qobs.mse_optimal", "scale_dtype=uint8;group_size=32;num_bits=4", "scale_dtype|MXFP4"},
        {"qobs.mse_optimal", "dampening_frac=0.1", "'dampening_frac'"},
        {"qobs.imatrix_optimal", "dampening_frac=1.5", "dampening_frac|'1.5'|0 to 1"},
        {"qobs.local_hessian", "hessian_block_size=1", "hessian_block_size|1"},
        {"qobs.local_hessian", "group_size=16;hessian_block_size=40", "hessian_block_size|40|16"},
        {"qobs.local_hessian", "passes=101", "passes|'101'|0 to 100"},
        {"qobs.local_hessian", "zero_point_radius=257", "zero_point_radius|'257'|0 to 256"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qobs_config *config;
        char text[200];
        snprintf(text, sizeof text, "%s", cases[i].settings);
        for (char *c = text; *c; c++)
            *c = *c == ';' ? ' ' : *c;
        assert_ok(qobs_config_create(&config, cases[i].preset, NULL, &error));
        int status = qobs_config_set_all(config, text, &error);
        if (status == QOBS_OK)
            status = qobs_config_check(config, &error);
        assert_refused(status, QOBS_ERROR_INVALID_ARGUMENT, cases[i].words);
        qobs_config_destroy(config);
    }
    qobs_observer *o = make("qobs.imatrix_optimal", "strict=true");
    assert_refused(observe(o, ROWS, COLUMNS, weight_of(1, 1)), QOBS_ERROR_NO_DATA, "importance|strict");
    qobs_observer_destroy(o);
}

/* Scales go with the global scale under which they were searched. */
static void test_shared_global_scale(void **unused)
{
    static float before[GROUPS], after[GROUPS];
    qobs_observer *small = make("qobs.mse_optimal", nvfp4), *large = make("qobs.mse_optimal", nvfp4),
                  *told = make("qobs.mse_optimal", nvfp4);
    qobs_observer *both[] = {small, large};
    float amax = 0, global[2];
    assert_ok(observe(large, ROWS, COLUMNS, weight_of(2, 3)));
    const float *const largest = weight_of(2, 3);
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        amax = fabsf(largest[i]) > amax ? fabsf(largest[i]) : amax;
    assert_ok(observe(small, ROWS, COLUMNS, weight_of(1, 1)));
    assert_ok(qobs_observers_fuse(both, 2, &error));
    assert_refused(qobs_observer_read(small, "scale", before, sizeof before, &error), QOBS_ERROR_NO_DATA,
                   "scale|observe");
    assert_ok(qobs_observer_read(large, "scale", before, sizeof before, &error));
    assert_ok(observe(small, ROWS, COLUMNS, weight_of(1, 1)));
    const double wrong[] = {1e300, INFINITY, NAN, -1}; /* the global scale would be 0, NaN or negative */
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(qobs_observer_set_global_amax(told, wrong[i], &error), QOBS_ERROR_INVALID_ARGUMENT, "amax|allowed");
    assert_ok(qobs_observer_set_global_amax(told, (double)amax, &error));
    assert_ok(observe(told, ROWS, COLUMNS, weight_of(1, 1)));
    assert_ok(qobs_observer_read(small, "scale", before, sizeof before, &error));
    assert_ok(qobs_observer_read(told, "scale", after, sizeof after, &error));
    assert_memory_equal(before, after, sizeof before);
    assert_ok(qobs_observer_read(small, "global_scale", &global[0], sizeof *global, &error));
    assert_ok(qobs_observer_read(large, "global_scale", &global[1], sizeof *global, &error));
    assert_true(global[0] == global[1]);

    /* a saved state and a merge keep it */
    size_t size;
    void *bytes = saved_state(small, &size);
    qobs_observer *loaded, *merged = make("qobs.mse_optimal", nvfp4);
    assert_ok(qobs_observer_load(&loaded, bytes, size, NULL, &error));
    assert_ok(qobs_observer_read(loaded, "scale", after, sizeof after, &error));
    assert_memory_equal(before, after, sizeof before);
    assert_ok(qobs_observer_merge(merged, (const qobs_observer *const[]){small}, 1, &error));
    assert_ok(qobs_observer_read(merged, "scale", after, sizeof after, &error));
    assert_memory_equal(before, after, sizeof before);
    free(bytes);
    qobs_observer_destroy(loaded);
    qobs_observer_destroy(merged);
    qobs_observer_destroy(small);
    qobs_observer_destroy(large);
    qobs_observer_destroy(told);
}

/* NaN gives its own group NaN, and nothing to the others. */
static void test_propagate(void **unused)
{
    static float scale[2][GROUPS], weight[ROWS * COLUMNS];
    int8_t zero_point[GROUPS];
    for (int with = 0; with < 2; with++) {
        qobs_observer *o = make("qobs.mse_optimal", "group_size=16;num_bits=4;symmetric=false;nonfinite=propagate");
        memcpy(weight, weight_of(3, 1), sizeof weight);
        weight[5 * 16 + 3] = with ? NAN : weight[5 * 16 + 3];
        assert_ok(observe(o, ROWS, COLUMNS, weight));
        assert_ok(qobs_observer_read(o, "scale", scale[with], sizeof scale[with], &error));
        assert_ok(qobs_observer_read(o, "zero_point", zero_point, sizeof zero_point, &error));
        qobs_observer_destroy(o);
    }
    assert_true(isnan(scale[1][5]) && zero_point[5] == 0);
    scale[1][5] = scale[0][5];
    assert_memory_equal(scale[0], scale[1], sizeof scale[0]);
}

/* F64 numbers above the largest float are refused, and the observer is what it was. */
static void test_beyond_float(void **unused)
{
    static const char *const presets[] = {"qobs.mse_optimal", "qobs.imatrix_optimal", "qobs.local_hessian"};
    static const double wide[] = {-1e300, 1, 2, 3};
    static const float weight[] = {-1, 1, 2, 3};
    const qobs_tensor value = tensor(QOBS_F64, wide, 1, 4);
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        qobs_observer *o = make(presets[i], "strategy=channel;num_bits=4;symmetric=false");
        float scale;
        assert_refused(qobs_observer_observe(o, &value, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "value|float32");
        assert_refused(qobs_observer_read(o, "scale", &scale, sizeof scale, &error), QOBS_ERROR_NO_DATA, "nothing");
        assert_ok(observe(o, 1, 4, weight));
        assert_ok(qobs_observer_read(o, "scale", &scale, sizeof scale, &error));
        assert_true(scale == 0.5f);
        qobs_observer_destroy(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_shared_global_scale),
        cmocka_unit_test(test_propagate),
        cmocka_unit_test(test_beyond_float),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

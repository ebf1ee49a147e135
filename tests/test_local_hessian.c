/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The local Hessian of Model-Optimizer's searches: errors against their definition, when they are squared errors
 * instead, and what is refused. test_candidates.c has threads, instruction sets, saved states and merging. */
#include "every_preset.h"
#include "observing.h"

#include <math.h>

#include "observer/observer.h"

enum { ROWS = 6, COLUMNS = 1008, TOKENS = 70, BLOCK = 24, ELEMENTS = ROWS * COLUMNS };

static float values[ELEMENTS], activations[TOKENS * COLUMNS];

static void observe_activations(qobs_observer *o)
{
    const qobs_tensor x = tensor(QOBS_F32, activations, TOKENS, COLUMNS);
    assert_ok(qobs_observer_observe_importance(o, &x, &error));
}

/* e^T H e of a block of columns from their activations: the mean over tokens of (e . x)^2. */
static double output_error(const double *e, int column)
{
    double sum = 0;
    for (int t = 0; t < TOKENS; t++) {
        double dot = 0;
        for (int j = 0; j < BLOCK; j++)
            dot += e[j] * (double)activations[t * COLUMNS + column + j];
        sum += dot * dot;
    }
    return sum / TOKENS;
}

/* The error of a row with 4 bits, as many times as a block has elements. */
static double row_error(const float *x, float amax, float multiple)
{
    const float up = 7 / (amax * multiple);
    double sum = 0;
    for (int column = 0; column < COLUMNS; column += BLOCK) {
        double e[BLOCK];
        for (int j = 0; j < BLOCK; j++) {
            const float q = fminf(fmaxf(rintf(x[column + j] * up), -8), 7);
            e[j] = (double)q / (double)up - (double)x[column + j];
        }
        sum += output_error(e, column);
    }
    return BLOCK * sum;
}

/* Blocks that do not divide what is read at a time; all rows under one amax, and one row each. */
static void test_definition(void **state)
{
    for (int each = 0; each < 2; each++) {
        qobs_observer *o = make("modelopt.MseCalibrator", each ? "axis=0;num_bits=4;hessian_block_size=24;step_size=0.5"
                                                               : "num_bits=4;hessian_block_size=24;step_size=0.5");
        observe_activations(o);
        assert_ok(observe(o, ROWS, COLUMNS, values));
        const size_t steps = qobs_range_steps(&o->stages.range);
        const float *amax = (const float *)(const void *)o->state.ranges.max;
        assert_int_equal(o->state.sums.count, steps * (each ? ROWS : 1));
        for (size_t i = 0; i < steps; i++) {
            const float multiple = 0.25f + 3.75f / (float)(steps - 1) * (float)i;
            double expected = 0;
            for (size_t r = 0; r < ROWS; r++) {
                const double own = row_error(values + r * COLUMNS, amax[each ? r : 0], multiple);
                const double sum = o->state.sums.sum[r * steps + i];
                if (each && fabs(sum - own) > 1e-5 * own)
                    fail_msg("row %zu, step %zu: %.9g, expected %.9g", r, i, sum, own);
                expected += own;
            }
            if (!each && fabs(o->state.sums.sum[i] - expected) > 1e-5 * expected)
                fail_msg("step %zu: %.9g, expected %.9g", i, o->state.sums.sum[i], expected);
        }
        qobs_observer_destroy(o);
    }
}

static double error_of(const qobs_observer *o, bool weighted, const char *fallback)
{
    qobs_search_report report = {.struct_size = sizeof report};
    assert_ok(qobs_observer_search_report(o, &report, &error));
    assert_int_equal(report.weighted, weighted);
    if (fallback && (!report.fallback || !strstr(report.fallback, fallback)))
        fail_msg("'%s' is not in: %s", fallback, report.fallback ? report.fallback : "NULL");
    return report.error;
}

static double squared_error(const char *preset, const char *settings)
{
    qobs_observer *o = make(preset, settings);
    assert_ok(observe(o, ROWS, COLUMNS, values));
    const double squared = error_of(o, false, NULL);
    qobs_observer_destroy(o);
    return squared;
}

/* Without a Hessian errors are squared, as upstream's, and the report says why. */
static void test_fallback(void **state)
{
    static float wrong[TOKENS * 16];
    const qobs_tensor narrow = tensor(QOBS_F32, wrong, TOKENS, 16);
    const qobs_tensor infinite = tensor(QOBS_F32, F32(INFINITY), 1, COLUMNS);
    static float last[COLUMNS];
    last[COLUMNS - 1] = INFINITY;
    static const char *const presets[] = {"modelopt.MseCalibrator", "modelopt.NVFP4MSECalibrator"};
    for (size_t p = 0; p < 2; p++) {
        const double squared = squared_error(presets[p], "");
        qobs_observer *o = make(presets[p], "hessian_block_size=16");
        assert_ok(observe(o, ROWS, COLUMNS, values));
        assert_true(error_of(o, false, "no activations") == squared);
        qobs_observer_reset(o);
        assert_ok(qobs_observer_observe_importance(o, &narrow, &error));
        assert_ok(observe(o, ROWS, COLUMNS, values));
        assert_true(error_of(o, false, "number of columns") == squared);
        qobs_observer_destroy(o);
        o = make(presets[p], "hessian_block_size=16");
        qobs_tensor x = infinite;
        x.data = last;
        assert_ok(qobs_observer_observe_importance(o, &x, &error));
        assert_ok(observe(o, ROWS, COLUMNS, values));
        assert_true(error_of(o, false, "not all finite") == squared);
        qobs_observer_destroy(o);
        o = make(presets[p], "hessian_block_size=16");
        observe_activations(o);
        assert_ok(observe(o, ROWS, COLUMNS, values));
        assert_true(error_of(o, true, NULL) != squared);
        qobs_observer_destroy(o);
    }
    qobs_observer *o = make("modelopt.MseCalibrator", "hessian_block_size=32"); /* 1008 = 31 * 32 + 16 */
    observe_activations(o);
    assert_ok(observe(o, ROWS, COLUMNS, values));
    assert_true(error_of(o, false, "hessian_block_size") == squared_error("modelopt.MseCalibrator", ""));
    qobs_observer_destroy(o);
}

static void test_refused(void **state)
{
    qobs_config *config = make_config("modelopt.NVFP4MSECalibrator", "hessian_block_size=12", NULL);
    assert_refused(qobs_config_check(config, &error), QOBS_ERROR_INVALID_ARGUMENT, "hessian_block_size|12|8");
    assert_ok(qobs_config_set(config, "hessian_block_size", "32", &error));
    assert_refused(qobs_config_check(config, &error), QOBS_ERROR_INVALID_ARGUMENT, "hessian_block_size|32|block_size|16");
    assert_refused(qobs_config_set(config, "hessian_block_size", "1024", &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "hessian_block_size|1024|512");
    assert_ok(qobs_config_set(config, "hessian_block_size", "null", &error));
    assert_ok(qobs_config_check(config, &error));
    qobs_config_destroy(config);
    qobs_observer *o = make("modelopt.MseCalibrator", "axis=1;hessian_block_size=16");
    const qobs_tensor weights = tensor(QOBS_F32, activations, COLUMNS);
    assert_refused(qobs_observer_set_error_weights(o, &weights, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "Hessian|hessian_block_size=16");
    observe_activations(o);
    assert_refused(observe(o, ROWS, COLUMNS, values), QOBS_ERROR_INVALID_ARGUMENT, "axis|last dimension");
    assert_int_equal(counts_of(o).batches, 0);
    qobs_observer_destroy(o);
    o = make("modelopt.MseCalibrator", "axis=0");
    const qobs_tensor x = tensor(QOBS_F32, activations, TOKENS, COLUMNS);
    assert_refused(qobs_observer_observe_importance(o, &x, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "modelopt.MseCalibrator|without hessian_block_size");
    qobs_observer_destroy(o);
}

/* Sums of squared errors and of weighted ones are not added. */
static void test_mixed(void **state)
{
    qobs_observer *o = make("modelopt.MseCalibrator", "hessian_block_size=16"),
                  *other = make("modelopt.MseCalibrator", "hessian_block_size=16");
    assert_ok(observe(o, ROWS, COLUMNS, values));
    const double before = error_of(o, false, NULL);
    observe_activations(o);
    assert_refused(observe(o, ROWS, COLUMNS, values), QOBS_ERROR_INVALID_ARGUMENT, "value|Hessian|not");
    assert_true(error_of(o, false, NULL) == before);
    observe_activations(other);
    assert_ok(observe(other, ROWS, COLUMNS, values));
    assert_refused(qobs_observer_merge(o, (const qobs_observer *const *)&other, 1, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "others[0]|Hessian");
    assert_true(error_of(o, false, NULL) == before);
    qobs_observer_destroy(o);
    qobs_observer_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_mixed),
    };
    fill_matrix(values, ELEMENTS, 1);
    fill_matrix(activations, TOKENS * COLUMNS, 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer's local Hessian against upstream, on every usable instruction set. If errors of upstream's choice
 * and another one are as good as equal, the other is right, too. */
#include "golden.h"

#include "observer/observer.h"

static size_t compared, others;

static qobs_tensor expectation(const json_object *c, const char *key)
{
    return tensor_named(text_of(json_get(c, "expect"), key));
}

static bool is_setting(const struct json_item *item)
{
    static const char *const settings[] = {"axis",      "num_bits",         "unsigned",        "narrow_range",
                                           "step_size", "start_multiplier", "stop_multiplier", "block_size",
                                           NULL};
    for (size_t i = 0; settings[i]; i++)
        if (strcmp(item->key, settings[i]) == 0)
            return true;
    return false;
}

static bool is_nvfp4(const json_object *c) { return strstr(text_of(c, "upstream"), "NVFP4") != NULL; }

/* An observer of the activations of the case. */
static qobs_observer *observer_of(const json_object *c)
{
    const json_object *aux = json_get(c, "aux");
    const bool nvfp4 = is_nvfp4(c);
    qobs_config *config = NULL;
    qobs_observer *o = NULL;
    qobs_error error;
    if (configure(&config, nvfp4 ? "modelopt.NVFP4MSECalibrator" : "modelopt.MseCalibrator", json_get(c, "config"),
                  is_setting, &error) != QOBS_OK ||
        qobs_config_set(config, "hessian_block_size", "16", &error) != QOBS_OK ||
        qobs_observer_create(&o, config, NULL, &error) != QOBS_OK)
        fail_case("%s", error.message);
    qobs_config_destroy(config);
    const qobs_tensor amax = tensor_named(text_of(aux, nvfp4 ? "global_amax" : "initial_amax"));
    assert_int_equal(qobs_observer_set_reference_amax(o, &amax, &error), QOBS_OK);
    json_each(item, aux) if (strncmp(item.key, "act_", 4) == 0)
    {
        const qobs_tensor activations = tensor_named(json_text(item.value));
        if (qobs_observer_observe_importance(o, &activations, &error) != QOBS_OK)
            fail_case("%s", error.message);
    }
    return o;
}

/* The result, which the caller frees, and its number of elements. */
static void *result_of(const qobs_observer *o, const char *name, qobs_dtype dtype, size_t *n)
{
    qobs_result result;
    void *data = result_data(o, name, &result);
    assert_int_equal(result.dtype, dtype);
    *n = result.size / qobs_dtype_size(dtype);
    return data;
}

static float float_at(const qobs_tensor *t, size_t i)
{
    float f;
    assert_int_equal(t->dtype, QOBS_F32);
    memcpy(&f, (const unsigned char *)t->data + i * sizeof f, sizeof f);
    return f;
}

/* The rule "rel 1e-5 + abs 1e-6*range". */
static void expect_hessian(const json_object *c, const qobs_observer *o)
{
    const qobs_tensor expected = expectation(c, "hessian");
    size_t n, one;
    double *sum = result_of(o, "hessian_sum", QOBS_F64, &n), low = INFINITY, high = -INFINITY;
    int64_t *count = result_of(o, "hessian_count", QOBS_I64, &one);
    assert_int_equal(n, expected.shape[0] * expected.shape[1] * expected.shape[2]);
    for (size_t i = 0; i < n; i++) {
        low = fmin(low, (double)float_at(&expected, i));
        high = fmax(high, (double)float_at(&expected, i));
    }
    for (size_t i = 0; i < n; i++) {
        const double e = (double)float_at(&expected, i), g = sum[i] / (double)count[0];
        if (!(fabs(g - e) <= 1e-5 * fabs(e) + 1e-6 * (high - low)))
            fail_case("hessian[%d]: got %.9g, expected %.9g", (int)i, g, e);
    }
    free(sum);
    free(count);
}

static void expect_close(double got, double expected, const char *what, size_t q)
{
    if (!(fabs(got - expected) <= 1e-4 * fabs(expected)))
        fail_case("%s of qparam %d: got %.12g, expected %.12g", what, (int)q, got, expected);
}

/* Candidate `chosen` of qparam q is the best of upstream's errors[step][qparam], or as good. */
static void expect_best(const qobs_tensor *errors, size_t steps, size_t n, size_t q, size_t chosen)
{
    double min_error = INFINITY;
    for (size_t i = 0; i < steps; i++)
        min_error = fmin(min_error, real_at(errors, i * n + q));
    if (!(real_at(errors, chosen * n + q) <= min_error * (1 + 2e-6)))
        fail_case("qparam %d: took candidate %d with error %.12g, the smallest is %.12g", (int)q, (int)chosen,
                  real_at(errors, chosen * n + q), min_error);
}

static void expect_amax(const json_object *c, const qobs_observer *o, const int32_t *best)
{
    const qobs_tensor errors = expectation(c, "errors"), index = expectation(c, "best_index"),
                      amax = expectation(c, "amax");
    const size_t steps = (size_t)errors.shape[0];
    size_t n;
    float *got = result_of(o, "amax", QOBS_F32, &n);
    for (size_t q = 0; q < n; q++) {
        compared++;
        others += integer_at(&index, q) != best[q];
        expect_best(&errors, steps, n, q, (size_t)best[q]);
        if (integer_at(&index, q) == best[q] && !same_number((double)got[q], (double)float_at(&amax, q)))
            fail_case("amax[%d]: got %.9g, expected %.9g", (int)q, (double)got[q], (double)float_at(&amax, q));
    }
    free(got);
}

static void expect_sums(const qobs_observer *o, const qobs_tensor *errors)
{
    const size_t steps = (size_t)errors->shape[0], n = (size_t)errors->shape[1];
    size_t all;
    double *sum = result_of(o, "error_sums", QOBS_F64, &all);
    assert_int_equal(all, n * steps);
    for (size_t q = 0; q < n; q++)
        for (size_t i = 0; i < steps; i++)
            expect_close(sum[q * steps + i], real_at(errors, i * n + q), "sum of errors", q);
    free(sum);
}

static void run(const json_object *c)
{
    const qobs_tensor errors = expectation(c, "errors");
    const size_t steps = (size_t)errors.shape[0];
    qobs_observer *o = observer_of(c);
    qobs_error error;
    size_t n;
    const qobs_tensor value = tensor_named(json_text(json_at(json_get(c, "inputs"), 0)));
    if (qobs_observer_observe(o, &value, NULL, &error) != QOBS_OK)
        fail_case("%s", error.message);
    assert_int_equal(qobs_range_steps(&o->stages.range), steps);
    int32_t *best = result_of(o, "best_step", QOBS_I32, &n);
    double *min_error = result_of(o, "errors", QOBS_F64, &n), *before = result_of(o, "errors_before", QOBS_F64, &n);
    assert_int_equal(n, errors.shape[1]);
    qobs_search_report report = {.struct_size = sizeof report};
    assert_int_equal(qobs_observer_search_report(o, &report, &error), QOBS_OK);
    assert_true(report.weighted && !report.fallback);
    for (size_t q = 0; q < n; q++) {
        expect_close(min_error[q], real_at(&errors, (size_t)best[q] * n + q), "error", q);
        expect_close(before[q], real_at(&errors, (steps - 1) * n + q), "error before", q);
    }
    if (!is_nvfp4(c))
        expect_sums(o, &errors);
    expect_hessian(c, o);
    expect_amax(c, o, best);
    free(best);
    free(min_error);
    free(before);
    qobs_observer_destroy(o);
}

static void test_hessian(void **state) { on_every_isa(*state, run); }

int main(void)
{
    int failed = run_suite("trt_2026_11", "now_hessian_", 8, test_hessian);
    failed += run_suite("trt_2026_11", "now_mse_hessian_", 2, test_hessian);
    printf("%zu of %zu qparams took another candidate than upstream\n", others, compared);
    return failed != 0 || compared == 0;
}

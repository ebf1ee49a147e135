/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's and Model-Optimizer's searches for scales against upstream, on every usable instruction set. If the
 * errors of upstream's choice and of another one, in double, are as good as equal, the other is right, too. */
#include "golden.h"

#include <ctype.h>
#include <float.h>
#include <math.h>

#include "base/tensor.h"
#include "number/convert.h"
#include "observer/observer.h"
#include "qobs/format.h"
#include "qobs/plan.h"
#include "search/search_errors.h"
#include "calls.h"

static size_t compared, others;

static const json_object *entry(const json_object *c, const char *object, const char *key)
{
    return json_get(json_get(c, object), key);
}

static double number(const void *data, qobs_dtype dtype, size_t i)
{
    const unsigned char *at = (const unsigned char *)data + i * qobs_dtype_size(dtype);
    int32_t word;
    if (dtype == QOBS_I32)
        return memcpy(&word, at, sizeof word), (double)word;
    return qobs_element(at, dtype);
}

/* Result `name` is the expectation called `key`, dtype and shape included. */
static void expect_exact(const json_object *c, const qobs_observer *o, const char *name, const char *key)
{
    const qobs_tensor e = tensor_named(text_of(json_get(c, "expect"), key));
    qobs_result result;
    void *data = result_data(o, name, &result);
    assert_string_equal(qobs_dtype_name(result.dtype), qobs_dtype_name(e.dtype));
    assert_int_equal(result.ndim, e.ndim);
    for (int d = 0; d < e.ndim; d++)
        assert_int_equal(result.shape[d], e.shape[d]);
    for (size_t i = 0; i < (size_t)elements_of(&e); i++)
        if (!same_number(number(e.data, e.dtype, i), number(data, result.dtype, i)))
            fail_case("%s[%d]: got %.9g, expected %.9g", key, (int)i, number(data, result.dtype, i),
                      number(e.data, e.dtype, i));
    free(data);
}

static void expect_close(double got, double expected, double relative, const char *what)
{
    if (!(fabs(got - expected) <= relative * fabs(expected)) && got != expected)
        fail_case("%s: got %.17g, expected %.17g", what, got, expected);
}

/* Candidate `chosen` of qparam q is the best of errors[step][qparam], or as good. */
static void expect_best(const double *errors, size_t steps, size_t qparams, size_t q, size_t chosen, size_t upstreams)
{
    double quant_min = INFINITY;
    for (size_t i = 0; i < steps; i++)
        quant_min = fmin(quant_min, errors[i * qparams + q]);
    compared++;
    others += chosen != upstreams;
    if (!(errors[chosen * qparams + q] <= quant_min * (1 + 2e-6)))
        fail_case("qparam %d: took candidate %d with error %.12g, the least is %.12g", (int)q, (int)chosen,
                  errors[chosen * qparams + q], quant_min);
}

/* ---- Quark ------------------------------------------------------------------------------------------------------- */

static bool is_setting(const struct json_item *item)
{
    static const char *const no_settings[] = {"n_batches", "qparams_after_each_batch", "upstream_gap", NULL};
    for (size_t i = 0; no_settings[i]; i++)
        if (strcmp(item->key, no_settings[i]) == 0)
            return false;
    return true;
}

static double total(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* One factor of five for all qparams. */
static void expect_powers(const json_object *c, const qobs_observer *o, int batch)
{
    char key[32];
    qobs_result result;
    snprintf(key, sizeof key, "errors_%d", batch);
    const qobs_tensor errors = tensor_named(text_of(json_get(c, "expect"), key));
    int32_t *best = result_data(o, "best_step", &result);
    double *error = result_data(o, "errors", &result), *before = result_data(o, "errors_before", &result);
    const size_t n = result.size / sizeof *error;
    double theirs[5];
    for (size_t i = 0; i < 5; i++)
        theirs[i] = real_at(&errors, i);
    expect_best(theirs, 5, 1, 0, (size_t)best[0], (size_t)best[0]);
    expect_close(total(error, n), theirs[best[0]], 1e-5, "error");
    expect_close(total(before, n), theirs[2], 1e-5, "error before");
    free(best);
    free(error);
    free(before);
    snprintf(key, sizeof key, "scale_%d", batch);
    expect_exact(c, o, "scale", key);
    snprintf(key, sizeof key, "zero_point_%d", batch);
    expect_exact(c, o, "zero_point", key);
}

static float multiple_of(const qobs_observer *o, size_t i)
{
    return o->stages.range.ops == &qobs_range_e4m3 ? qobs_e4m3_multiplier(i)
                                                   : qobs_multiplier(&o->stages.range.params.multiplier, i);
}

/* The squared error of a block, in double. */
static double block_error(const qobs_plan *plan, const qobs_tensor *value, size_t block, const qobs_format *format,
                          double scale)
{
    double sum = 0;
    for (int64_t i = 0; i < qobs_plan_run_count(plan); i++) {
        qobs_run run;
        qobs_plan_run(plan, i, &run, NULL);
        if ((size_t)run.qparam != block || run.offset == QOBS_PADDING)
            continue;
        for (int64_t j = 0; j < run.length; j++) {
            const double x =
                qobs_element((const unsigned char *)value->data + run.offset + j * run.stride, value->dtype);
            const double q = scale == 0 ? 0 : (double)qobs_format_round(format, (float)(x / scale), true) * scale;
            sum += (q - x) * (q - x);
        }
    }
    return sum;
}

static void expect_blocks(const json_object *c, const qobs_config *config, const qobs_observer *o,
                          const qobs_tensor *value)
{
    const qobs_tensor theirs = tensor_named(text_of(json_get(c, "expect"), "errors"));
    const qobs_tensor upstream = tensor_named(text_of(json_get(c, "expect"), "best_step"));
    const qobs_format *format = qobs_format_find(text_of(json_get(c, "config"), "dtype"));
    qobs_result result;
    qobs_plan *plan;
    assert_int_equal(qobs_plan_create(&plan, config, value, NULL, NULL, NULL), QOBS_OK);
    int32_t *best = result_data(o, "best_step", &result);
    const size_t n = result.size / sizeof *best, steps = (size_t)theirs.shape[0];
    float *first = result_data(o, "init_scale", &result);
    double *error = result_data(o, "errors", &result), *before = result_data(o, "errors_before", &result);
    double *own = malloc(steps * n * sizeof *own);
    bool differs = false;
    for (size_t q = 0; q < n; q++) {
        for (size_t i = 0; i < steps; i++) {
            own[i * n + q] = block_error(plan, value, q, format, ldexp((double)first[q], -(int)i));
            if (value->dtype == QOBS_F32)
                expect_close(own[i * n + q], real_at(&theirs, i * n + q), 1e-5, "the reference");
        }
        const size_t upstreams = (size_t)integer_at(&upstream, q);
        expect_best(own, steps, n, q, (size_t)best[q], upstreams);
        assert_true(own[(size_t)best[q] * n + q] <= own[upstreams * n + q] * (1 + 2e-6));
        expect_close(error[q], own[(size_t)best[q] * n + q], 1e-6, "error");
        expect_close(before[q], own[q], 1e-6, "error before");
        differs |= (size_t)best[q] != upstreams;
    }
    expect_exact(c, o, "init_scale", "init_scale");
    expect_exact(c, o, "amax", "amax");
    expect_exact(c, o, "zero_point", "zero_point");
    if (!differs)
        expect_exact(c, o, "scale", "scale");
    free(best);
    free(first);
    free(error);
    free(before);
    free(own);
    qobs_plan_destroy(plan);
}

static void run_quark(const json_object *c)
{
    const char *name = text_of(c, "name");
    const bool blocks = strstr(name, "mxdiffs") != NULL, refused = json_get(c, "error") != NULL;
    char preset[64];
    qobs_config *config;
    qobs_observer *o;
    qobs_error error;
    snprintf(preset, sizeof preset, "quark.%s", strrchr(text_of(c, "upstream"), ' ') + 1);
    if (configure(&config, preset, json_get(c, "config"), is_setting, &error) != QOBS_OK)
        fail_case("%s", error.message);
    if (refused)
        assert_int_equal(qobs_config_set(config, "nonfinite", "propagate", &error), QOBS_OK);
    assert_int_equal(qobs_observer_create(&o, config, NULL, &error), QOBS_OK);
    qobs_tensor value;
    int batch = 0;
    json_each(key, json_get(c, "inputs"))
    {
        value = tensor_named(json_text(key.value));
        if (qobs_observer_observe(o, &value, NULL, &error) != QOBS_OK)
            fail_case("%s", error.message);
        if (!blocks)
            expect_powers(c, o, batch);
        batch++;
    }
    if (refused) /* as late as the scale is asked for */
        assert_int_equal(call_qparams(o, NULL, 0, NULL, 0, &error), QOBS_ERROR_NO_RESULT);
    else if (blocks)
        expect_blocks(c, config, o, &value);
    else {
        expect_exact(c, o, "min_val", "min_val");
        expect_exact(c, o, "max_val", "max_val");
    }
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
}

/* ---- Model-Optimizer --------------------------------------------------------------------------------------------- */

static bool is_modelopt_setting(const struct json_item *item)
{
    static const char *const settings[] = {
        "axis",       "num_bits", "unsigned", "narrow_range", "step_size", "start_multiplier", "stop_multiplier",
        "block_size", "version",  NULL};
    for (size_t i = 0; settings[i]; i++)
        if (strcmp(item->key, settings[i]) == 0)
            return true;
    return false;
}

/* "RuntimeError: Quantization function not set." has no counterpart: there always is one. */
static bool has_counterpart(const json_object *c) { return strcmp(text_of(c, "name"), "trt/mse_noquant") != 0; }

static bool is_nvfp4(const json_object *c) { return strstr(text_of(c, "upstream"), "NVFP4") != NULL; }

static qobs_observer *modelopt_observer(const json_object *c)
{
    const json_object *settings = json_get(c, "config"), *format = entry(c, "config", "quant_format");
    const bool nvfp4 = is_nvfp4(c);
    const json_object *norm = entry(c, "config", "scale_norm_max");
    qobs_config *config;
    qobs_observer *o;
    qobs_error error;
    if (configure(&config, nvfp4 ? "modelopt.NVFP4MSECalibrator" : "modelopt.MseCalibrator", settings,
                  is_modelopt_setting, &error) != QOBS_OK)
        fail_case("%s", error.message);
    if (format && strcmp(json_text(format), "fp8") == 0)
        assert_int_equal(qobs_config_set(config, "num_bits", "[4, 3]", &error), QOBS_OK);
    if (norm && json_object_get_double(norm) == 256)
        assert_int_equal(qobs_config_set(config, "four_over_six", "true", &error), QOBS_OK);
    assert_int_equal(qobs_observer_create(&o, config, NULL, &error), QOBS_OK);
    qobs_config_destroy(config);
    const json_object *amax = entry(c, "aux", nvfp4 ? "global_amax" : "initial_amax"),
                      *weight = entry(c, "aux", "error_weight");
    if (amax) {
        const qobs_tensor given = tensor_named(json_text(amax));
        if (qobs_observer_set_reference_amax(o, &given, &error) != QOBS_OK)
            fail_case("%s", error.message);
    }
    if (weight) {
        const qobs_tensor given = tensor_named(json_text(weight));
        if (qobs_observer_set_error_weights(o, &given, &error) != QOBS_OK)
            fail_case("%s", error.message);
    }
    return o;
}

/* Upstream's quantizers: x * (bound / amax), rounded, over the same; for e4m3 times its reciprocal; NVFP4 as x over a
 * scale. In float as upstream, or unrounded from where x is multiplied. */
static double quantized(const qobs_config *config, bool nvfp4, bool unrounded, float whole, float amax, double x)
{
    whole *= config->modelopt.four_over_six ? 1.75f : 1;
    static const qobs_format *e4m3, *e2m1;
    if (!e4m3) {
        e4m3 = qobs_format_find("fp8_e4m3");
        e2m1 = qobs_format_find("fp4_e2m1");
    }
    if (nvfp4) {
        const float up = 1 / (whole / 6) * 448, local = amax / 6 * up;
        const float scale = qobs_format_round(e4m3, local > 448 ? 448 : local, true) * (1 / up);
        const float number = scale == 0 ? 0 : qobs_format_round(e2m1, (float)x / scale, true);
        return unrounded ? (double)number * (double)scale : (double)(number * scale);
    }
    if (config->modelopt.num_bits == MODELOPT_E4M3) {
        const bool scaled =
            amax >
            (config->modelopt.has_version && config->modelopt.version ? (float)(448 / (double)FLT_MAX) : 0x1p-24f);
        const float up = 1 / (scaled ? amax : 1) * 448, number = qobs_format_round(e4m3, (float)x * up, true);
        return unrounded ? (double)number * (double)(1 / up) : (double)(number * (1 / up));
    }
    const float bound = (float)((1 << (config->modelopt.num_bits - 1 + config->modelopt.is_unsigned)) - 1),
                up = bound / amax;
    const float quant_min = config->modelopt.is_unsigned ? 0 : config->modelopt.narrow_range ? -bound : -bound - 1;
    const float number = fminf(fmaxf(rintf((float)x * up), quant_min), bound);
    return amax <= 0x1p-24f ? 0 : unrounded ? (double)number / (double)up : (double)(number / up);
}

/* Adds the batch's errors to errors[step * qparams + qparam]. */
static void add_errors(const qobs_observer *o, const qobs_tensor *value, const float *amax, const float *weight,
                       bool unrounded, double *errors)
{
    const bool nvfp4 = o->config.preset->granularity == &qobs_granularity_modelopt_block;
    const size_t steps = qobs_range_steps(&o->stages.range);
    qobs_plan *plan;
    assert_int_equal(qobs_plan_create(&plan, &o->config, value, NULL, NULL, NULL), QOBS_OK);
    for (int64_t i = 0; i < qobs_plan_run_count(plan); i++) {
        qobs_run run;
        qobs_plan_run(plan, i, &run, NULL);
        for (int64_t j = 0; j < run.length; j++) {
            const double x =
                qobs_element((const unsigned char *)value->data + run.offset + j * run.stride, value->dtype);
            for (size_t k = 0; k < steps; k++) {
                const float multiple = multiple_of(o, k), first = amax[nvfp4 ? 0 : run.qparam];
                const float product = first * multiple;
                const bool in_float = nvfp4 || o->state.layout.range.ndim == 0;
                const float a = in_float ? product : (float)qobs_round_to(o->reference.dtype, (double)product);
                const double q = quantized(&o->config, nvfp4, unrounded, amax[0], a, x),
                             w = weight ? (double)weight[j] : 1;
                const float off = (float)q - (float)x;
                errors[k * (size_t)plan->qparams + (size_t)run.qparam] +=
                    unrounded ? w * (q - x) * (q - x) : (double)((float)w * (off * off));
            }
        }
    }
    qobs_plan_destroy(plan);
}

static float *floats_of(const json_object *item)
{
    if (!item)
        return NULL;
    const qobs_tensor t = tensor_named(json_text(item));
    float *copy = malloc((size_t)elements_of(&t) * sizeof *copy);
    for (int64_t i = 0; i < elements_of(&t); i++)
        copy[i] = (float)number(t.data, t.dtype, (size_t)i);
    return copy;
}

/* Errors of a case that torch 1.13 made, which rounds multipliers to the dtype. Its choice is that of torch 2. */
static bool is_of_torch_1(const json_object *c) { return strcmp(text_of(c, "name"), "trt/mse_bf16") == 0; }

/* Errors of the suite of 2026 are double sums of upstream's float errors. */
static bool is_new(const json_object *c) { return strncmp(text_of(c, "name"), "trt_2026", 8) == 0; }

static void expect_multiples(const json_object *c, const qobs_observer *o)
{
    const qobs_tensor errors = tensor_named(text_of(json_get(c, "expect"), "errors"));
    const qobs_tensor upstream = tensor_named(text_of(json_get(c, "expect"), "best_index"));
    qobs_result result;
    int32_t *best = result_data(o, "best_step", &result);
    double *error = result_data(o, "errors", &result);
    const size_t n = result.size / sizeof *error, steps = (size_t)errors.shape[0];
    bool differs = false;
    assert_int_equal(steps, qobs_range_steps(&o->stages.range));
    const bool nvfp4 = is_nvfp4(c);
    float *amax = floats_of(entry(c, "aux", nvfp4 ? "global_amax" : "initial_amax"));
    float *weight = floats_of(entry(c, "aux", "error_weight"));
    double *rounded = calloc(steps * n, sizeof *rounded), *own = calloc(steps * n, sizeof *own);
    json_each(key, json_get(c, "inputs"))
    {
        const qobs_tensor value = tensor_named(json_text(key.value));
        add_errors(o, &value, amax, weight, false, rounded);
        add_errors(o, &value, amax, weight, true, own);
    }
    for (size_t q = 0; q < n; q++) {
        const size_t upstreams = (size_t)integer_at(&upstream, q), at = (size_t)best[q] * n + q;
        expect_best(own, steps, n, q, (size_t)best[q], upstreams);
        assert_true(own[at] <= own[upstreams * n + q] * (1 + 2e-6));
        expect_close(error[q], own[at], nvfp4 ? 1e-6 : 1e-12, "error");
        for (size_t i = 0; i < steps; i++) {
            if (!is_of_torch_1(c))
                expect_close(rounded[i * n + q], real_at(&errors, i * n + q), is_new(c) ? 1e-5 : 1e-12,
                             "the reference");
            if (o->state.sums.sum)
                expect_close(o->state.sums.sum[q * steps + i], own[i * n + q], 1e-12, "sum of errors");
        }
        differs |= (size_t)best[q] != upstreams;
    }
    free(amax);
    free(weight);
    free(rounded);
    free(own);
    if (entry(c, "expect", "candidates")) {
        const qobs_tensor candidates = tensor_named(text_of(json_get(c, "expect"), "candidates"));
        for (size_t i = 0; i < steps; i++)
            expect_close((double)multiple_of(o, i), number(candidates.data, candidates.dtype, i), 1e-7, "candidate");
    }
    if (!differs)
        expect_exact(c, o, "amax", "amax");
    free(best);
    free(error);
}

static void run_modelopt(const json_object *c)
{
    const bool refused = json_get(c, "error") != NULL;
    qobs_error error;
    if (!has_counterpart(c))
        return;
    qobs_observer *o = modelopt_observer(c);
    int status = QOBS_OK;
    if (strcmp(text_of(c, "name"), "trt/mse_amax_shape1d") == 0) {
        static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        static const int64_t eight = 8;
        const qobs_tensor amax = {
            .struct_size = sizeof amax, .data = ones, .dtype = QOBS_F32, .ndim = 1, .shape = &eight};
        assert_int_equal(qobs_observer_set_reference_amax(o, &amax, &error), QOBS_OK);
    }
    json_each(key, json_get(c, "inputs"))
    {
        const qobs_tensor value = tensor_named(json_text(key.value));
        if (status == QOBS_OK)
            status = qobs_observer_observe(o, &value, NULL, &error);
    }
    if (refused)
        assert_true(status == QOBS_ERROR_INVALID_ARGUMENT || qobs_observer_result_count(o) == 0);
    else if (status != QOBS_OK)
        fail_case("%s", error.message);
    else
        expect_multiples(c, o);
    qobs_observer_destroy(o);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

static void test_quark(void **state) { on_every_isa(*state, run_quark); }

static void test_modelopt(void **state) { on_every_isa(*state, run_modelopt); }

int main(void)
{
    int failed = run_suite("quark", "pow2mse", 8, test_quark);
    failed += run_suite("quark", "pow2pcmse", 8, test_quark);
    failed += run_suite("quark", "mxdiffs", 35, test_quark);
    failed += run_suite("trt", "mse_", 33, test_modelopt);
    failed += run_suite("trt", "nvfp4_", 9, test_modelopt);
    failed += run_suite("trt_2026_11", "now_sweep", 16, test_modelopt);
    failed += run_suite("trt_2026_11", "now_mse_bfloat16_", 2, test_modelopt);
    failed += run_suite("trt_2026_11", "now_mse_float16_", 2, test_modelopt);
    failed += run_suite("trt_2026_11", "now_mse_e4m3_", 4, test_modelopt);
    printf("%zu of %zu qparams took another candidate than upstream\n", others, compared);
    return failed != 0 || compared == 0;
}

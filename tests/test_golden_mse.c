/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The observers that search against upstream: golden suite llmc_mse, and those cases of llmc_old, on every usable
 * instruction set. A candidate may differ from upstream's where the errors of the two, in double, are as good as equal;
 * of bf16 tensors, whose errors upstream rounds to bf16, ours must not be worse than upstream's. */
#include "golden.h"

#include <ctype.h>
#include <math.h>

#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "search_reference.h"
#include "calls.h"

/* How many qparams took another candidate than upstream. */
static size_t others, searched;

static const json_object *find_suffixed(const json_object *object, const char *name, int batch)
{
    char key[64];
    snprintf(key, sizeof key, "%s_%d", name, batch);
    const json_object *item = json_get(object, key);
    return item ? item : json_get(object, name);
}

/* The expectation called `name` after batch `batch`. */
static qobs_tensor expected(const json_object *c, const char *name, int batch)
{
    const json_object *item = find_suffixed(json_get(c, "expect"), name, batch);
    assert_non_null(item);
    return tensor_named(json_text(item));
}

/* Its elements, aligned, to be freed. */
static void *copy_of(const qobs_tensor *t)
{
    const size_t size = (size_t)elements_of(t) * qobs_dtype_size(t->dtype);
    void *copy = malloc(size + 1);
    memcpy(copy, t->data, size);
    return copy;
}

/* Result `name` is the expectation, exactly or to `relative`. */
static void expect_result(const json_object *c, const qobs_observer *o, const char *name, int batch, double relative)
{
    const qobs_tensor e = expected(c, name, batch);
    qobs_result result;
    void *data = result_data(o, name, &result), *wanted = copy_of(&e);
    const bool small_floats = strncmp(name, "zero_point", 10) == 0 && e.dtype == QOBS_F32; /* fp8 as F32 */
    if (!small_floats)
        assert_string_equal(qobs_dtype_name(result.dtype), qobs_dtype_name(e.dtype));
    assert_int_equal(result.ndim, e.ndim);
    for (int d = 0; d < e.ndim; d++)
        assert_int_equal(result.shape[d], e.shape[d]);
    for (int64_t i = 0; i < elements_of(&e); i++) {
        double want, got;
        if (e.dtype == QOBS_I64) {
            want = (double)((const int64_t *)wanted)[i];
            got = (double)((const int64_t *)data)[i];
        } else {
            want = reference_number(wanted, e.dtype, (size_t)i);
            got = reference_number(data, result.dtype, (size_t)i);
        }
        if (!same_number(want, got) && (want == got || !(fabs(want - got) <= relative * fabs(want))))
            fail_case("%s after batch %d, [%d]: got %.9g, expected %.9g", name, batch, (int)i, got, want);
    }
    free(data);
    free(wanted);
}

static bool is_setting(const struct json_item *item)
{
    static const char *const others_there[] = {
        "n_batches",   "has_g_idx",    "scale_out_dtype", "zero_point_out_dtype",
        "total_steps", "upstream_gap", "importance",      "n_imatrix_activations",
        "observer"};
    for (size_t i = 0; i < sizeof others_there / sizeof *others_there; i++)
        if (strcmp(item->key, others_there[i]) == 0)
            return false;
    return true;
}

static double number_of(const json_object *settings, const char *key)
{
    const json_object *item = json_get(settings, key);
    assert_true(json_is_number(item));
    return json_object_get_double(item);
}

static void set(qobs_config *config, const char *key, const char *value)
{
    qobs_error error;
    if (qobs_config_set(config, key, value, &error) != QOBS_OK)
        fail_case("%s", error.message);
}

static qobs_config *configuration(const json_object *c)
{
    const json_object *settings = json_get(c, "config");
    const char *observer = text_of(settings, "observer");
    char preset[64];
    qobs_config *config;
    qobs_error error;
    snprintf(preset, sizeof preset, "llmc.%s", strcmp(observer, "MovingAverageMSEObserver") == 0 ? "mse" : observer);
    if (configure(&config, preset, settings, is_setting, &error) != QOBS_OK)
        fail_case("%s", error.message);
    return config;
}

/* ---- Importance -------------------------------------------------------------------------------------------------- */

/* The weights of the columns as upstream makes them of the activations; NULL: they cannot be used. */
static float *weights_of(const json_object *c, int64_t columns)
{
    double *sum = calloc((size_t)columns, sizeof *sum);
    float *w = malloc((size_t)columns * sizeof *w);
    int64_t tokens = 0;
    json_each(key, json_get(c, "aux"))
    {
        const qobs_tensor t = tensor_named(json_text(key.value));
        for (int64_t i = 0; i < elements_of(&t); i++)
            sum[i % columns] += pow(reference_number(t.data, t.dtype, (size_t)i), 2);
        tokens += elements_of(&t) / columns;
    }
    double mean = 0;
    for (int64_t j = 0; j < columns; j++) {
        w[j] = (float)(sum[j] / (double)tokens);
        mean += (double)w[j] / (double)columns;
    }
    for (int64_t j = 0; j < columns; j++)
        w[j] = (float)((double)w[j] / mean);
    free(sum);
    if (tokens > 0 && mean > 0 && isfinite(mean))
        return w;
    free(w);
    return NULL;
}

static void observe_importance(const json_object *c, qobs_observer *o)
{
    qobs_error error;
    json_each(key, json_get(c, "aux"))
    {
        const qobs_tensor t = tensor_named(json_text(key.value));
        assert_int_equal(qobs_observer_observe_importance(o, &t, &error), QOBS_OK);
    }
}

/* ---- One batch --------------------------------------------------------------------------------------------------- */

/* All candidates' errors, in double. */
static struct reference reference_of(const json_object *c, const qobs_config *config, const qobs_plan *plan,
                                     const qobs_tensor *value, const float *weights)
{
    const json_object *settings = json_get(c, "config");
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    const int ndim = qobs_plan_shape(plan, shape, sizeof shape);
    struct reference r = {
        .config = config,
        .format = {strcmp(text_of(settings, "type"), "float") == 0, (int)number_of(settings, "num_bits")},
        .plan = plan,
        .data = value->data,
        .dtype = value->dtype,
        .columns = value->shape[value->ndim - 1],
        .weights = weights,
        .grid = number_of(settings, "grid"),
        .expand = number_of(settings, "expand"),
        .norm = number_of(settings, "norm"),
        .steps = (int)number_of(settings, "total_steps"),
        .qparams = 1,
    };
    for (int d = 1; d < ndim - 1; d++)
        r.qparams *= (size_t)shape[d];
    void *min = malloc(r.qparams * 8), *max = malloc(r.qparams * 8);
    qobs_error error;
    assert_int_equal(call_minmax(config, value, NULL, min, max, NULL, NULL, &error), QOBS_OK);
    reference_search(&r, min, max);
    free(min);
    free(max);
    return r;
}

static bool is_half(const json_object *c)
{
    const json_object *inputs = json_get(c, "inputs");
    const qobs_tensor value = tensor_named(json_text(json_at(inputs, 0)));
    return value.dtype == QOBS_BF16 || value.dtype == QOBS_F16;
}

struct progress {
    bool differs;      /* another candidate than upstream's has been taken */
    double *min, *max; /* the ranges there should be */
};

/* Checks the report of the search: errors are those of unrounded numbers. */
static void expect_report(const json_object *c, const struct reference *r, const qobs_observer *o)
{
    qobs_result result;
    int32_t *step = result_data(o, "best_step", &result), *stopped = result_data(o, "stop_step", &result);
    double *error = result_data(o, "errors", &result), *before = result_data(o, "errors_before", &result);
    qobs_search_report report = {.struct_size = sizeof report};
    double total = 0, total_before = 0;
    for (size_t q = 0; q < r->qparams; q++) {
        const double own = r->error[(size_t)step[q] * r->qparams + q];
        if (fabs(error[q] - own) > 1e-5 * own)
            fail_case("qparam %d: error %.9g, expected %.9g", (int)q, error[q], own);
        if (r->expand == 1 && fabs(before[q] - r->error[q]) > 1e-5 * r->error[q])
            fail_case("qparam %d: error before %.9g, expected %.9g", (int)q, before[q], r->error[q]);
        total += error[q];
        total_before += before[q];
    }
    assert_int_equal(qobs_observer_search_report(o, &report, NULL), QOBS_OK);
    assert_int_equal(report.steps, r->steps);
    assert_int_equal(report.stop_step, *stopped);
    assert_true(report.error == total && report.error_before == total_before);
    assert_int_equal(report.weighted, r->weights != NULL);
    assert_true((report.fallback != NULL) == (strstr(text_of(c, "name"), "/imx") && !r->weights));
    free(step);
    free(stopped);
    free(error);
    free(before);
}

/* The choice of every qparam is right: upstream's, or with an error no larger. */
static void expect_choice(const json_object *c, const struct reference *r, const qobs_observer *o, int batch,
                          struct progress *p)
{
    const bool half = is_half(c); /* upstream's errors are rounded; run_native_case compares its choice */
    const qobs_tensor e = expected(c, "errors", batch), best = expected(c, "best_step", batch),
                      stop = expected(c, "stop_step", batch);
    int32_t *their_step = copy_of(&best), *their_stop = copy_of(&stop);
    qobs_result result;
    int32_t *step = result_data(o, "best_step", &result), *stopped = result_data(o, "stop_step", &result);
    bool tie;
    assert_int_equal(elements_of(&e), (int64_t)r->qparams * r->steps);
    if (!half)
        for (int64_t i = 0; i < elements_of(&e); i++)
            if (fabs(r->error[i] - real_at(&e, (size_t)i)) > 1e-5 * real_at(&e, (size_t)i))
                fail_case("the reference is wrong: error %d is %.9g, upstream has %.9g", (int)i, r->error[i],
                          real_at(&e, (size_t)i));
    const int64_t patience = (int64_t)number_of(json_get(c, "config"), "patience");
    const int should = reference_stop(r->error, r->steps, r->qparams,
                                      strstr(text_of(c, "name"), "/imx") && patience == 0 ? -1 : patience, &tie);
    if (*stopped != should && !tie)
        fail_case("stopped after %d steps, expected %d", (int)*stopped, should);
    if (!half && *stopped != *their_stop && !tie)
        fail_case("stopped after %d steps, upstream after %d", (int)*stopped, (int)*their_stop);
    for (size_t q = 0; q < r->qparams; q++) {
        const double own = r->error[(size_t)step[q] * r->qparams + q],
                     upstreams = r->error[(size_t)their_step[q] * r->qparams + q];
        searched++;
        others += step[q] != their_step[q];
        p->differs |= step[q] != their_step[q];
        if (!reference_is_best(r->error, r->qparams, q, *stopped, step[q]) || own > upstreams * (1 + 2e-6))
            fail_case("qparam %d took step %d with error %.12g, upstream step %d with %.12g", (int)q, (int)step[q], own,
                      (int)their_step[q], upstreams);
    }
    free(step);
    free(stopped);
    free(their_step);
    free(their_stop);
}

/* The ranges are those of the candidates taken, averaged where the observer does. */
static void expect_ranges(const json_object *c, const struct reference *r, const qobs_observer *o, int batch,
                          struct progress *p)
{
    const json_object *constant = json_get(json_get(c, "config"), "averaging_constant");
    const double k = constant ? json_object_get_double(constant) : 1;
    qobs_result result;
    int32_t *step = result_data(o, "best_step", &result);
    void *min = result_data(o, "min_vals", &result), *max = result_data(o, "max_vals", &result);
    if (!p->min) {
        p->min = malloc(r->qparams * sizeof *p->min);
        p->max = malloc(r->qparams * sizeof *p->max);
    }
    for (size_t q = 0; q < r->qparams; q++) {
        const size_t at = (size_t)step[q] * r->qparams + q;
        for (int bound = 0; bound < 2; bound++) {
            double *state = bound ? &p->max[q] : &p->min[q];
            const double value = reference_number(bound ? r->hi : r->lo, r->dtype, at);
            *state = batch == 0 || k == 1 ? value : (double)((float)*state * (float)(1 - k) + (float)value * (float)k);
            if (reference_number(bound ? max : min, r->dtype, q) != *state)
                fail_case("%s of qparam %d is %.9g, expected %.9g", bound ? "maximum" : "minimum", (int)q,
                          reference_number(bound ? max : min, r->dtype, q), *state);
        }
    }
    free(step);
    free(min);
    free(max);
}

static void expect_batch(const json_object *c, const qobs_config *config, const qobs_config *candidates,
                         const qobs_observer *o, const qobs_tensor *value, int batch, struct progress *p)
{
    qobs_plan *plan;
    qobs_error error;
    assert_int_equal(qobs_plan_create(&plan, config, value, NULL, NULL, &error), QOBS_OK);
    const char *strategy = text_of(json_get(c, "config"), "strategy");
    const bool weighs =
        strcmp(strategy, "tensor") != 0 && strcmp(strategy, "block") != 0 && strstr(text_of(c, "name"), "/imx");
    float *weights = weighs ? weights_of(c, value->shape[value->ndim - 1]) : NULL;
    struct reference r = reference_of(c, candidates, plan, value, weights);
    expect_choice(c, &r, o, batch, p);
    expect_ranges(c, &r, o, batch, p);
    r.unrounded = true;
    for (int step = 0; step < r.steps; step++)
        reference_step(&r, step);
    expect_report(c, &r, o);
    reference_free(&r);
    free(weights);
    qobs_plan_destroy(plan);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

/* In upstream's own arithmetic every result is upstream's, best_step and stop_step included. */
static void run_native_case(const json_object *c)
{
    static const char *const each[] = {"best_step", "stop_step"};
    qobs_config *config = configuration(c);
    qobs_observer *o;
    qobs_error error;
    const json_object *expect = json_get(c, "expect");
    int batch = 0;
    assert_int_equal(qobs_observer_create(&o, config, NULL, &error), QOBS_OK);
    observe_importance(c, o);
    json_each(key, json_get(c, "inputs"))
    {
        const qobs_tensor value = tensor_named(json_text(key.value));
        if (qobs_observer_observe(o, &value, NULL, &error) != QOBS_OK)
            fail_case("%s", error.message);
        for (int i = 0; i < 2; i++) {
            qobs_result result;
            const qobs_tensor wanted = expected(c, each[i], batch);
            int32_t *theirs = copy_of(&wanted), *ours = result_data(o, each[i], &result);
            for (int64_t k = 0; k < elements_of(&wanted); k++)
                if (ours[k] != theirs[k])
                    fail_case("%s %d is %d, upstream has %d", each[i], (int)k, (int)ours[k], (int)theirs[k]);
            free(ours);
            free(theirs);
        }
        batch++;
    }
    static const char *const names[] = {"min_vals", "max_vals", "scale", "zero_point", "global_scale"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_get(expect, names[i]))
            expect_result(c, o, names[i], batch, 0);
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
}

static void run_case(const json_object *c)
{
    qobs_config *config = configuration(c), *candidates = configuration(c);
    const bool half = is_half(c);
    if (half) {
        run_native_case(c);
        set(config, "search_dtype", "float32");
    }
    const json_object *settings = json_get(c, "config");
    if (strcmp(text_of(settings, "strategy"), "tensor_group") == 0)
        set(candidates, "scale_dtype", "null");
    qobs_observer *o;
    qobs_error error;
    assert_int_equal(qobs_observer_create(&o, config, NULL, &error), QOBS_OK);
    observe_importance(c, o);
    struct progress p = {0};
    int batch = 0;
    json_each(key, json_get(c, "inputs"))
    {
        const qobs_tensor value = tensor_named(json_text(key.value));
        if (qobs_observer_observe(o, &value, NULL, &error) != QOBS_OK)
            fail_case("%s", error.message);
        expect_batch(c, config, candidates, o, &value, batch++, &p);
    }
    assert_int_equal(batch, (int)number_of(settings, "n_batches"));
    static const char *const names[] = {"min_vals", "max_vals", "scale", "zero_point", "global_scale"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !p.differs && !half; i++)
        if (json_get(json_get(c, "expect"), names[i]))
            expect_result(c, o, names[i], batch, 0);
    if (strstr(text_of(c, "name"), "/imx")) {
        expect_result(c, o, "imatrix_sum", batch, 1e-5);
        expect_result(c, o, "imatrix_count", batch, 0);
    }
    free(p.min);
    free(p.max);
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
    qobs_config_destroy(candidates);
}

/* The suite llmc_old has no errors, and its results are not near any tie: they are exact after every batch. */
static void run_old_case(const json_object *c)
{
    const json_object *settings = json_get(c, "config"), *inputs = json_get(c, "inputs");
    const bool has_g_idx = json_is_true(json_get(settings, "has_g_idx"));
    const int batches = (int)number_of(settings, "n_batches");
    qobs_config *config = configuration(c);
    qobs_observer *o;
    qobs_error error;
    assert_int_equal(qobs_observer_create(&o, config, NULL, &error), QOBS_OK);
    assert_int_equal(json_count(inputs), batches + has_g_idx);
    qobs_tensor g_idx = {0};
    if (has_g_idx)
        g_idx = tensor_named(json_text(json_at(inputs, batches)));
    for (int batch = 0; batch < batches; batch++) {
        const qobs_tensor value = tensor_named(json_text(json_at(inputs, batch)));
        if (qobs_observer_observe(o, &value, has_g_idx ? &g_idx : NULL, &error) != QOBS_OK)
            fail_case("%s", error.message);
        char suffix[16];
        snprintf(suffix, sizeof suffix, "_%d", batch);
        json_each(item, json_get(c, "expect"))
        {
            const size_t length = strlen(item.key), end = length - strlen(suffix);
            const bool numbered =
                length > 2 && item.key[length - 2] == '_' && isdigit((unsigned char)item.key[length - 1]);
            char name[64];
            if (numbered ? strcmp(item.key + end, suffix) != 0 : batch < batches - 1)
                continue;
            snprintf(name, sizeof name, "%.*s", numbered ? (int)end : (int)length, item.key);
            expect_result(c, o, name, batch, 0);
        }
    }
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
}

static void test_case(void **state) { on_every_isa(*state, run_case); }

static void test_old_case(void **state) { on_every_isa(*state, run_old_case); }

int main(void)
{
    int failed = run_suite("llmc_mse", "", 85, test_case);
    printf("%zu of %zu qparams took another candidate than upstream\n", others, searched);
    failed += run_suite("llmc_old", "10_memoryless_mse", 5, test_old_case);
    failed += run_suite("llmc_old", "10_mse", 13, test_old_case);
    failed += run_suite("llmc_old", "09_mse", 3, test_old_case);
    return failed != 0;
}

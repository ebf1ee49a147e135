/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Range finders: Model-Optimizer's golden cases, what the public functions refuse, and percentiles by hand. */
#include "golden.h"

#include <math.h>

#include "base/tensor.h"
#include "config/resolve.h"
#include "number/convert.h"
#include "observer/observer.h"
#include "qobs/stateless.h"
#include "histogram/from_histogram.h"
#include "calls.h"

static size_t compared;

static bool is_setting(const struct json_item *item)
{
    static const char *const settings[] = {"num_bits",  "unsigned",   "num_bins", "skip_zeros", "torch_hist", "method",
                                           "start_bin", "percentile", "stride",   "axis",       NULL};
    for (size_t i = 0; settings[i]; i++)
        if (strcmp(item->key, settings[i]) == 0)
            return true;
    return false;
}

/* ---- A histogram as HistogramCalibrator collects it ---------------------------------------------------------------
 */

struct collected {
    size_t bins;
    double *counts;
    float *edges;
};

static void *read_all(const qobs_observer *o, const char *name, size_t *n)
{
    qobs_result result;
    void *data = result_data(o, name, &result);
    *n = result.size / sizeof(float);
    return data;
}

/* By the observer itself; entropy has left its change to bin 0 of a numpy histogram behind. */
static struct collected collect(const qobs_observer *o, bool computed)
{
    struct collected c;
    size_t edges;
    float *counts = read_all(o, "calib_hist", &c.bins);
    c.edges = read_all(o, "calib_bin_edges", &edges);
    assert_int_equal(edges, c.bins + 1);
    c.counts = malloc(c.bins * sizeof *c.counts);
    for (size_t i = 0; i < c.bins; i++)
        c.counts[i] = (double)counts[computed && i == 0 ? 1 : i];
    free(counts);
    return c;
}

static void release(struct collected *c)
{
    free(c->counts);
    free(c->edges);
}

/* ---- Golden ------------------------------------------------------------------------------------------------------ */

static double number(const json_object *settings, const char *key)
{
    return json_object_get_double(json_get(settings, key));
}

static const qobs_tensor *expected(const json_object *c, const char *key, qobs_tensor *tensor)
{
    *tensor = tensor_named(text_of(json_get(c, "expect"), key));
    return tensor;
}

/* The candidate whose amax this is. */
static size_t candidate(const struct histogram_view *h, bool centre, size_t first, size_t stride, float amax)
{
    for (size_t i = first; i <= h->bins; i += stride)
        if ((centre ? i < h->bins ? qobs_bin_centre(h, i) : NAN : h->edges[i]) == amax)
            return (i - first) / stride;
    print_error("%g is no candidate\n", (double)amax);
    assert_true(false);
    return 0;
}

static void expect_entropy(const json_object *c, const qobs_config *config, const struct histogram_view *h,
                           size_t first, size_t stride, float amax)
{
    qobs_tensor t;
    const void *divergences = expected(c, "divergences", &t)->data;
    double *workspace = malloc(qobs_range_workspace(h->bins) * sizeof *workspace), quant_min = INFINITY;
    const struct entropy e =
        qobs_entropy_prepare(h, (size_t)1 << (config->modelopt.num_bits - 1 + config->modelopt.is_unsigned), workspace);
    assert_int_equal(t.dtype, QOBS_F64);
    assert_int_equal((size_t)t.shape[0], (h->bins - first) / stride + 1);
    for (int64_t i = 0; i < t.shape[0]; i++) {
        const double got = qobs_entropy_divergence(&e, first + (size_t)i * stride),
                     divergence = double_at(divergences, (size_t)i);
        quant_min = fmin(quant_min, divergence);
        if (!(fabs(got - divergence) <= 1e-7 * divergence + 1e-12) && got != divergence &&
            !(isnan(got) && isnan(divergence))) {
            print_error("divergence %lld: got %.17g, expected %.17g\n", (long long)i, got, divergence);
            assert_true(false);
        }
    }
    const double chosen = double_at(divergences, candidate(h, false, first, stride, amax));
    assert_true(isnan(chosen) || chosen <= quant_min * (1 + 1e-9) + 1e-12);
    free(workspace);
}

static void expect_squared_error(const json_object *c, const qobs_config *config, const struct histogram_view *h,
                                 size_t first, size_t stride, float amax)
{
    qobs_tensor t;
    const void *errors = expected(c, "errors", &t)->data;
    float *workspace = malloc(2 * h->bins * sizeof *workspace);
    const struct squared_error e = qobs_squared_error_prepare(h, workspace);
    struct range_rule rule;
    double quant_min = INFINITY;
    assert_int_equal(t.dtype, QOBS_F64);
    qobs_resolve_range(config, &rule);
    struct formula formula;
    qobs_resolve_formula(config, &formula);
    for (int64_t i = 0; i < t.shape[0]; i++) {
        double got = 0;
        assert_int_equal(qobs_squared_error(&e, &rule.params.bins, &formula,
                                            qobs_bin_centre(h, first + (size_t)i * stride), &got, NULL),
                         QOBS_OK);
        quant_min = fmin(quant_min, double_at(errors, (size_t)i));
        if (!(fabs(got - double_at(errors, (size_t)i)) <= 1e-5 * double_at(errors, (size_t)i)) &&
            got != double_at(errors, (size_t)i)) {
            print_error("error %lld: got %.17g, expected %.17g\n", (long long)i, got, double_at(errors, (size_t)i));
            assert_true(false);
        }
    }
    assert_true(double_at(errors, (size_t)candidate(h, true, first, stride, amax)) <= quant_min * (1 + 2e-6));
    free(workspace);
}

static bool flag(const json_object *settings, const char *key) { return json_is_true(json_get(settings, key)); }

/* An observer that has seen the case's batches, or NULL where one was refused. */
static qobs_observer *observer_of(const json_object *c)
{
    qobs_config *config = NULL;
    qobs_observer *o;
    qobs_error error;
    if (configure(&config, "modelopt.HistogramCalibrator", json_get(c, "config"), is_setting, &error) != QOBS_OK) {
        qobs_config_destroy(config);
        return NULL;
    }
    assert_int_equal(qobs_observer_create(&o, config, NULL, &error), QOBS_OK);
    qobs_config_destroy(config);
    json_each(key, json_get(c, "inputs"))
    {
        const qobs_tensor x = tensor_named(json_text(key.value));
        if (o && qobs_observer_observe(o, &x, NULL, &error) != QOBS_OK) {
            qobs_observer_destroy(o);
            o = NULL;
        }
    }
    return o;
}

/* "rel R" or "rel R + abs R*range" as the comparison says; else exact. */
static void expect_edges(const json_object *c, const char *key, const float *edges, size_t n)
{
    const json_object *rule = json_get(json_get(c, "compare"), key);
    if (!rule)
        return;
    qobs_tensor t;
    expected(c, key, &t);
    const bool ends = strcmp(key, "edge_first_last") == 0, all = strcmp(key, "edges") == 0;
    const double relative = strstr(json_text(rule), "rel") ? strtod(strstr(json_text(rule), "rel") + 4, NULL) : 0;
    const double absolute = strstr(json_text(rule), "abs") ? relative * (double)(edges[n - 1] - edges[0]) : 0;
    for (size_t i = 0; i < (size_t)t.shape[0]; i++) {
        const size_t at = ends ? i * (n - 1) : all ? i : i * (n - 1) / (size_t)(t.shape[0] - 1);
        const double e = qobs_element((const unsigned char *)t.data + i * qobs_dtype_size(t.dtype), t.dtype);
        if (!(fabs((double)edges[at] - e) <= relative * fabs(e) + absolute))
            fail_case("%s[%d]: got %.9g, expected %.9g", key, (int)i, (double)edges[at], e);
    }
}

static void run_histogram(const json_object *c)
{
    qobs_tensor t;
    qobs_observer *o = observer_of(c);
    if (json_get(c, "error")) {
        const bool goes_on = strcmp(text_of(c, "name"), "trt/hist_zeros_then") == 0; /* docs/differences.md, 16 */
        assert_int_equal(o && qobs_observer_result_count(o) > 0, goes_on);
        qobs_observer_destroy(o);
        return;
    }
    assert_non_null(o);
    struct collected h = collect(o, false);
    const json_object *settings = json_get(c, "config");
    assert_int_equal(h.bins, (size_t)number(settings, "num_bins_final"));
    expected(c, "histogram", &t);
    for (size_t i = 0; i < h.bins; i++) {
        const double e = t.dtype == QOBS_I64 || t.dtype == QOBS_I32
                             ? (double)integer_at(&t, i)
                             : qobs_element((const unsigned char *)t.data + i * qobs_dtype_size(t.dtype), t.dtype);
        if (h.counts[i] != e)
            fail_case("bin %d: got %g, expected %g", (int)i, h.counts[i], e);
    }
    expect_edges(c, "edge_first_last", h.edges, h.bins + 1);
    expect_edges(c, "edges", h.edges, h.bins + 1);
    release(&h);
    qobs_observer_destroy(o);
}

static void test_histogram(void **state) { on_every_isa(*state, run_histogram); }

static void run_case(const json_object *c)
{
    const json_object *settings = json_get(c, "config");
    const bool refused = json_get(c, "error") != NULL;
    if (strstr(text_of(c, "name"), "_literal"))
        return;
    compared++;
    const char *method = text_of(settings, "method");
    const json_object *before = json_get(settings, "pre_compute");
    qobs_observer *o = observer_of(c);
    if (!o) { /* method or percentile refused */
        assert_true(refused);
        return;
    }
    const qobs_config *config = &o->config;
    struct collected h = collect(o, json_is_string(before) && !flag(settings, "torch_hist"));
    const int64_t bins = (int64_t)h.bins, edges = bins + 1;
    const qobs_tensor histogram = {
        .struct_size = sizeof histogram, .data = h.counts, .dtype = QOBS_F64, .ndim = 1, .shape = &bins};
    const qobs_tensor bin_edges = {
        .struct_size = sizeof bin_edges, .data = h.edges, .dtype = QOBS_F32, .ndim = 1, .shape = &edges};
    const struct histogram_view view = {h.bins, h.counts, h.edges};
    const size_t stride = (size_t)number(settings, "stride"), start_bin = (size_t)number(settings, "start_bin");
    float min = 1, max = 2, amax = 3;
    int status;
    qobs_error error;
    qobs_tensor t;
    if (strcmp(method, "percentile") == 0) {
        const bool exact = strcmp(text_of(json_get(c, "compare"), "amax"), "exact") == 0;
        status = call_range_by_percentile(config, &histogram, &bin_edges, number(settings, "percentile"), &min, &max,
                                          NULL, &error);
        const double e = qobs_element(expected(c, "amax", &t)->data, QOBS_F32);
        assert_true(fabs((double)max - e) <= (exact ? 0 : 1e-6) * e);
    } else if (strcmp(method, "entropy") == 0) {
        status = call_range_by_entropy(config, &histogram, &bin_edges, (int64_t)stride, (int64_t)start_bin, &min, &max,
                                       NULL, &error);
        if (!refused)
            expect_entropy(c, config, &view, start_bin, stride, max);
    } else {
        status = call_range_by_mse(config, &histogram, &bin_edges, (int64_t)stride, (int64_t)start_bin, &min, &max,
                                   NULL, &error);
        if (!refused)
            expect_squared_error(c, config, &view, start_bin, stride, max);
    }
    assert_int_equal(status, refused ? QOBS_ERROR_INVALID_ARGUMENT : QOBS_OK);
    /* The observer finds the same, but for a histogram that upstream has changed. */
    const int found = qobs_observer_read(o, "amax", &amax, sizeof amax, &error);
    assert_int_equal(found, status);
    if (refused)
        assert_true(min == 1 && max == 2 && amax == 3);
    else
        assert_true(min == (config->modelopt.is_unsigned ? 0 : -max) && (json_is_string(before) || amax == max));
    release(&h);
    qobs_observer_destroy(o);
}

static void test_case(void **state) { on_every_isa(*state, run_case); }

/* ---- By hand ---- */

static qobs_config *config_of(const char *preset, const char *key, const char *value)
{
    qobs_config *config = NULL;
    assert_int_equal(qobs_config_create(&config, preset, NULL, NULL), QOBS_OK);
    if (key)
        assert_int_equal(qobs_config_set(config, key, value, NULL), QOBS_OK);
    return config;
}

/* 100 elements between -4 and 4. */
static const int64_t eight = 8, nine = 9;
static const int32_t counts[] = {1, 4, 10, 30, 30, 20, 4, 1};
static const float edges[] = {-4, -3, -2, -1, 0, 1, 2, 3, 4};
static const qobs_tensor histogram_8 = {
    .struct_size = sizeof(qobs_tensor), .data = counts, .dtype = QOBS_I32, .ndim = 1, .shape = &eight};
static const qobs_tensor edges_9 = {
    .struct_size = sizeof(qobs_tensor), .data = edges, .dtype = QOBS_F32, .ndim = 1, .shape = &nine};

static void test_percentile(void **state)
{
    static const struct {
        const char *symmetric;
        double percentile;
        float min, max;
    } cases[] = {
        {"false", 100, -4, 4}, {"false", 98.5, -4, 4}, {"false", 98, -3, 3}, {"false", 97, -3, 3}, {"false", 85, -2, 2},
        {"false", 0, 0, 1},    {"true", 100, 0, 3},    {"true", 99, 0, 2},   {"true", 95, 0, 1},   {"true", 0, 0, -4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qobs_config *config = config_of("quark.PerTensorMinMaxObserver", "symmetric", cases[i].symmetric);
        float min = 9, max = 9;
        assert_int_equal(
            call_range_by_percentile(config, &histogram_8, &edges_9, cases[i].percentile, &min, &max, NULL, NULL),
            QOBS_OK);
        if (min != cases[i].min || max != cases[i].max)
            print_error("symmetric %s, %g: %g to %g\n", cases[i].symmetric, cases[i].percentile, (double)min,
                        (double)max);
        assert_true(min == cases[i].min && max == cases[i].max);
        qobs_config_destroy(config);
    }
}

static void test_quark_mse(void **state)
{
    qobs_config *config = config_of("quark.PerTensorMinMaxObserver", "dtype", "int4");
    float min = 9, max = 9;
    qobs_error error;
    /* A start_bin beyond the end is the last bin. */
    assert_int_equal(call_range_by_mse(config, &histogram_8, &edges_9, 1, 2045, &min, &max, NULL, NULL), QOBS_OK);
    assert_true(min == 0 && max == 3.5f);
    assert_int_equal(call_range_by_mse(config, &histogram_8, &edges_9, 1, 4, &min, &max, NULL, NULL), QOBS_OK);
    assert_true(min == 0 && max > 0.5f && max <= 3.5f);
    /* Upstream asserts that 0 is not above amax. */
    assert_int_equal(call_range_by_mse(config, &histogram_8, &edges_9, 1, 0, &min, &max, NULL, &error),
                     QOBS_ERROR_NO_RESULT);
    qobs_config_destroy(config);
    config = config_of("quark.PerTensorMinMaxObserver", "dtype", "int2");
    assert_int_equal(call_range_by_mse(config, &histogram_8, &edges_9, 1, 4, &min, &max, NULL, &error),
                     QOBS_ERROR_INVALID_ARGUMENT);
    assert_has(error.message, "int2");
    qobs_config_destroy(config);
}

enum { MOST_BINS = 400 };

/* The divergence as range.h defines it, bin by bin; bin 0 has the count of bin 1. */
static double divergence_of(const double *counts, size_t bins, size_t cells, size_t kept)
{
    double all = 0, inside = 0, sum = 0;
    for (size_t i = 0; i < bins; i++) {
        all += counts[i == 0 ? 1 : i];
        inside = i + 1 == kept ? all : inside;
    }
    const double outside = all - inside, last = counts[kept == 1 ? 1 : kept - 1];
    if (!(inside > 0))
        return NAN;
    if (outside > 0 && last == 0)
        return INFINITY;
    double before = 0;
    for (size_t from = 0, to; from < kept; from = to) {
        const size_t cell = from * cells / kept;
        const double begin = before;
        double used = 0;
        for (to = from; to < kept && to * cells / kept == cell; to++) {
            const double count = counts[to == 0 ? 1 : to];
            before += count;
            used += count > 0;
        }
        if (!(before - begin > 0))
            continue;
        const double mean = log((before - begin) / used);
        for (size_t k = from; k < to; k++) {
            const double count = counts[k == 0 ? 1 : k];
            sum += count > 0 ? count * (log(count) - mean) : 0;
        }
        if (to == kept && outside > 0)
            sum += (last + outside) * (log(last + outside) - mean) - last * (log(last) - mean);
    }
    return sum / all + log(inside / all);
}

/* Most bins empty, as after an outlier, and counts that are lost in the sum of those before. */
static void test_sparse_entropy(void **state)
{
    double counts[MOST_BINS], workspace[4 * MOST_BINS + 1];
    assert_true(qobs_range_workspace(MOST_BINS) <= sizeof workspace / sizeof *workspace);
    uint32_t random = 1;
    for (int round = 0; round < 60; round++) {
        const size_t bins = 2 + (size_t)round * 6, cells = (size_t)1 << round % 9;
        for (size_t i = 0; i < bins; i++) {
            random = random * 1664525 + 1013904223;
            const bool empty = round % 2 && (random >> 16 & 7) != 0, huge = round % 3 == 2 && (random >> 20 & 1) != 0;
            counts[i] = empty ? 0 : ldexp((double)(random >> 24), huge ? 80 : 0);
        }
        const struct histogram_view h = {.bins = bins, .counts = counts};
        const struct entropy e = qobs_entropy_prepare(&h, cells, workspace);
        for (size_t kept = 1; kept <= bins; kept++) {
            const double got = qobs_entropy_divergence(&e, kept), divergence = divergence_of(counts, bins, cells, kept);
            assert_true(got == divergence || (isnan(got) && isnan(divergence)));
        }
    }
}

static void expect_refused(int status, const qobs_error *error, const char *word)
{
    assert_int_equal(status, QOBS_ERROR_INVALID_ARGUMENT);
    expect_word(error->message, word, __FILE__, __LINE__);
}

static void test_refusals(void **state)
{
    qobs_config *modelopt = config_of("modelopt.MaxCalibrator", NULL, NULL),
                *llmc = config_of("llmc.memoryless_minmax", NULL, NULL);
    qobs_config *quark = config_of("quark.PerTensorMinMaxObserver", NULL, NULL),
                *e4m3 = config_of("modelopt.HistogramCalibrator", "num_bits", "[4, 3]");
    qobs_error error;
    float min = 1, max = 2;
    const float gap[] = {0, 1, 2, 3, 4, 5, 6, 7, NAN}, negative[] = {1, 1, 1, -1, 1, 1, 1, 1};
    qobs_tensor broken = edges_9, below = histogram_8;
    broken.data = gap;
    below.data = negative;
    below.dtype = QOBS_F32;
    expect_refused(call_range_by_percentile(llmc, &histogram_8, &edges_9, 50, &min, &max, NULL, &error), &error,
                   "llmc.memoryless_minmax");
    expect_refused(call_range_by_entropy(quark, &histogram_8, &edges_9, 1, 1, &min, &max, NULL, &error), &error,
                   "modelopt");
    expect_refused(call_range_by_entropy(e4m3, &histogram_8, &edges_9, 1, 1, &min, &max, NULL, &error), &error,
                   "[4, 3]");
    expect_refused(call_range_by_entropy(modelopt, &histogram_8, &edges_9, 0, 1, &min, &max, NULL, &error), &error,
                   "stride");
    expect_refused(call_range_by_entropy(modelopt, &histogram_8, &edges_9, 1, 0, &min, &max, NULL, &error), &error,
                   "start_bin");
    expect_refused(call_range_by_entropy(modelopt, &histogram_8, &edges_9, 1, 9, &min, &max, NULL, &error), &error,
                   "start_bin");
    expect_refused(call_range_by_mse(modelopt, &histogram_8, &edges_9, 1, 8, &min, &max, NULL, &error), &error,
                   "start_bin");
    expect_refused(call_range_by_mse(modelopt, &histogram_8, &edges_9, -1, 0, &min, &max, NULL, &error), &error,
                   "stride");
    expect_refused(call_range_by_percentile(modelopt, &histogram_8, &edges_9, NAN, &min, &max, NULL, &error), &error,
                   "percentile");
    expect_refused(call_range_by_percentile(modelopt, &edges_9, &edges_9, 50, &min, &max, NULL, &error), &error,
                   "bin_edges");
    expect_refused(call_range_by_percentile(modelopt, &histogram_8, &histogram_8, 50, &min, &max, NULL, &error), &error,
                   "I32");
    expect_refused(call_range_by_percentile(modelopt, &histogram_8, &broken, 50, &min, &max, NULL, &error), &error,
                   "[7] is 7");
    expect_refused(call_range_by_percentile(modelopt, &below, &edges_9, 50, &min, &max, NULL, &error), &error,
                   "[3] is -1");
    expect_refused(call_range_by_percentile(modelopt, &histogram_8, &edges_9, 50, NULL, &max, NULL, &error), &error,
                   "range");
    assert_true(min == 1 && max == 2);
    qobs_config_destroy(modelopt);
    qobs_config_destroy(llmc);
    qobs_config_destroy(quark);
    qobs_config_destroy(e4m3);
}

/* qobs_range_by_l2_norm reads the first and the last edge only. */
static void test_end_edges(void **state)
{
    qobs_config *config = config_of("torch.MinMaxObserver", NULL, NULL);
    float edges[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8}, min = 0, max = 0, other_min = -1, other_max = -1;
    const int32_t counts[8] = {1000000, 1, 1, 1, 1, 1, 1, 1};
    qobs_tensor all = edges_9, histogram = histogram_8;
    qobs_error error;
    all.data = edges;
    histogram.data = counts;
    assert_int_equal(call_range_by_l2_norm(config, &histogram, &all, &min, &max, NULL, &error), QOBS_OK);
    assert_true(min >= 0 && min < max && max <= 8);
    for (int i = 1; i < 8; i++)
        edges[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -5;
    assert_int_equal(call_range_by_l2_norm(config, &histogram, &all, &other_min, &other_max, NULL, &error), QOBS_OK);
    assert_true(other_min == min && other_max == max);
    edges[8] = -1;
    expect_refused(call_range_by_l2_norm(config, &histogram, &all, &min, &max, NULL, &error), &error, "[8] is -1");
    edges[0] = NAN;
    expect_refused(call_range_by_l2_norm(config, &histogram, &all, &min, &max, NULL, &error), &error, "[0] is nan");
    qobs_config_destroy(config);
}

/* Both ends can lose two bins; the last one loses them first, a full one among them. Upstream does the same. */
static void test_first_step(void **state)
{
    qobs_config *config = config_of("torch.MinMaxObserver", NULL, NULL);
    const int32_t counts[8] = {0, 0, 1, 1, 1, 1, 1, 0};
    const float edges[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    float min = 0, max = 0;
    qobs_tensor all = edges_9, histogram = histogram_8;
    qobs_error error;
    all.data = edges;
    histogram.data = counts;
    assert_int_equal(call_range_by_l2_norm(config, &histogram, &all, &min, &max, NULL, &error), QOBS_OK);
    assert_true(min == 2 && max == 6);
    qobs_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest by_hand[] = {
        cmocka_unit_test(test_percentile), cmocka_unit_test(test_quark_mse), cmocka_unit_test(test_sparse_entropy),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_end_edges), cmocka_unit_test(test_first_step),
    };
    int failed = cmocka_run_group_tests_name("range finders", by_hand, NULL, NULL);
    failed += run_suite("trt", "hist_", 39, test_histogram);
    failed += run_suite("trt", "compute_", 127, test_case);
    fprintf(stderr, "%zu golden cases compared\n", compared);
    return failed != 0 || compared == 0;
}

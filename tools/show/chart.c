/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Makes a chart: observes the tensors, finds the ranges, counts the elements. */
#include "chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "qobs/format.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"

/* The range of each qparam. */
struct spans {
    struct span *items;
    size_t count;
};

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

static const struct result *result_named(const struct results *results, const char *name)
{
    for (size_t i = 0; i < results->count; i++)
        if (strcmp(results->items[i].name, name) == 0)
            return &results->items[i];
    return NULL;
}

/* Returns the range that quantization covers. It is symmetric for symmetric settings and includes 0 otherwise. */
static struct span effective_span(const qobs_config *config, double low, double high)
{
    char qscheme[64] = "";
    qobs_config_get(config, "qscheme", qscheme, sizeof qscheme, NULL);
    const double magnitude = fmax(fabs(low), fabs(high));
    if (config_is(config, "symmetric", "true") || strstr(qscheme, "symmetric"))
        return (struct span){-magnitude, magnitude};
    return (struct span){fmin(low, 0), fmax(high, 0)};
}

/* Returns the number format if the scales are powers of two. NULL: the scales follow the range. */
static const qobs_format *power_of_two_format(const qobs_config *config, const char *preset)
{
    char name[64] = "null";
    if (config_is(config, "scale_dtype", "uint8"))
        return qobs_format_find(config_is(config, "num_bits", "4")   ? "fp4_e2m1"
                                : config_is(config, "num_bits", "6") ? "fp6_e2m3"
                                                                     : "fp8_e4m3");
    if (!strstr(preset, "PowOf2") && !config_is(config, "scale_format", "e8m0"))
        return NULL;
    qobs_config_get(config, "mx_element_dtype", name, sizeof name, NULL);
    if (strcmp(name, "null") == 0)
        qobs_config_get(config, "dtype", name, sizeof name, NULL);
    return qobs_format_find(strcmp(name, "null") != 0 ? name : strstr(preset, "PowOf2") ? "int8" : "fp4");
}

/* Replaces the ranges with those that the number format covers under the observed scales. */
static void spans_from_format(struct spans *spans, const struct results *results, const qobs_format *format)
{
    const struct result *scale = result_named(results, "scale"), *zero_point = result_named(results, "zero_point");
    if (!scale || scale->size / qobs_dtype_size(scale->dtype) != spans->count)
        return;
    for (size_t i = 0; i < spans->count; i++) {
        const double s = result_value(scale, i), z = zero_point ? result_value(zero_point, i) : 0;
        spans->items[i] = (struct span){(qobs_format_min(format) - z) * s, (qobs_format_max(format) - z) * s};
    }
}

/* Takes the range that a range rule found, or else the observed extrema. For power-of-two scales it is the range of
 * the number format. */
static int choose_spans(struct spans *spans, const struct results *results, const qobs_config *config,
                        const char *preset)
{
    static const char *const bounds[][2] = {{"new_min", "new_max"},
                                            {"min_vals", "max_vals"},
                                            {"min_val", "max_val"},
                                            {"min_val[default]", "max_val[default]"}};
    const struct result *low = NULL, *high = NULL, *amax = result_named(results, "amax");
    for (size_t i = 0; !low && i < sizeof bounds / sizeof *bounds; i++) {
        low = result_named(results, bounds[i][0]);
        high = result_named(results, bounds[i][1]);
    }
    const struct result *any = low ? low : amax;
    if (!any)
        return print_error(EXIT_USAGE, "%s: has no range that could be shown", preset);
    spans->count = any->size / qobs_dtype_size(any->dtype);
    spans->items = calloc(spans->count ? spans->count : 1, sizeof *spans->items);
    if (!spans->items)
        return print_error(EXIT_SYSTEM, "no memory for %zu ranges", spans->count);
    for (size_t i = 0; i < spans->count; i++) {
        const double magnitude = low ? 0 : result_value(amax, i);
        if (low && !(result_value(low, i) <= result_value(high, i)))
            return print_error(EXIT_USAGE, "%s: has chosen no range", preset);
        spans->items[i] = low ? effective_span(config, result_value(low, i), result_value(high, i))
                              : (struct span){config_is(config, "unsigned", "true") ? 0 : -magnitude, magnitude};
    }
    const qobs_format *format = power_of_two_format(config, preset);
    if (format)
        spans_from_format(spans, results, format);
    return EXIT_OK;
}

static int observe(const struct chart_source *s, const char *preset, struct spans *spans)
{
    struct results results = {0};
    qobs_observer *observer;
    qobs_error error;
    if (qobs_observer_create(&observer, s->config, s->runtime, &error) != QOBS_OK)
        return print_status_error(&error, NULL);
    int code = EXIT_OK;
    for (size_t i = 0; code == EXIT_OK && i < s->count; i++)
        if (qobs_observer_observe(observer, &s->tensors[i], NULL, &error) != QOBS_OK)
            code = print_status_error(&error, s->names[i]);
    if (code == EXIT_OK)
        warn_if_ignored(observer);
    if (code == EXIT_OK)
        code = results_read(&results, observer, "");
    if (code == EXIT_OK)
        code = choose_spans(spans, &results, s->config, preset);
    results_free(&results);
    qobs_observer_destroy(observer);
    return code;
}

static void describe_spans(struct chart *c, const struct spans *spans, int64_t qparam)
{
    bool any = false;
    for (size_t i = 0; i < spans->count; i++) {
        const struct span *r = &spans->items[i];
        if (qparam >= 0 && (size_t)qparam != i)
            continue;
        if (!any || r->high - r->low < c->narrowest.high - c->narrowest.low)
            c->narrowest = *r;
        if (!any || r->high - r->low > c->widest.high - c->widest.low)
            c->widest = *r;
        any = true;
    }
    c->qparams = qparam >= 0 ? 1 : spans->count;
}

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

static int64_t elements_of(const qobs_tensor *t)
{
    int64_t elements = 1;
    for (int d = 0; d < t->ndim; d++)
        elements *= t->shape[d];
    return elements;
}

/* The elements of one tensor that are shown, copied to contiguous memory unless they are the complete tensor. */
struct subset {
    qobs_tensor tensor;
    int64_t length;
    unsigned char *data; /* the copy; NULL: the complete tensor is shown */
};

static void count_clipped(struct chart *c, const struct span *range, qobs_dtype dtype, const unsigned char *at,
                          const qobs_run *run)
{
    for (int64_t k = 0; k < run->length; k++) {
        const struct result element = {.dtype = dtype, .data = (void *)(uintptr_t)(at + k * run->stride)};
        const double x = result_value(&element, 0);
        c->below += isfinite(x) && x < range->low;
        c->above += isfinite(x) && x > range->high;
    }
}

static void append(struct subset *subset, size_t size, const unsigned char *at, const qobs_run *run)
{
    for (int64_t k = 0; k < run->length; k++)
        memcpy(subset->data + (size_t)subset->length++ * size, at + k * run->stride, size);
}

/* Counts the clipped elements and selects the elements that are shown. */
static int select_elements(struct chart *c, const struct chart_source *s, const struct spans *spans, size_t index,
                           struct subset *subset)
{
    const qobs_tensor *t = &s->tensors[index];
    const size_t size = qobs_dtype_size(t->dtype);
    qobs_plan *plan;
    qobs_error error;
    const int64_t elements = elements_of(t);
    *subset = (struct subset){.tensor = *t, .length = elements};
    if (qobs_plan_create(&plan, s->config, t, NULL, s->runtime, &error) != QOBS_OK)
        return print_status_error(&error, s->names[index]);
    int64_t shape[QOBS_PLAN_MAX_NDIM], qparams = 1;
    const int ndim = qobs_plan_shape(plan, shape, sizeof shape);
    for (int d = 1; d < ndim - 1; d++)
        qparams *= shape[d];
    if ((uint64_t)qparams != spans->count) { /* the shapes differ, or the ranges have several names */
        qobs_plan_destroy(plan);
        return print_error(EXIT_USAGE, "%s: has %lld ranges of its own, the observer %zu: they cannot be shown",
                           s->names[index], (long long)qparams, spans->count);
    }
    if (s->qparam >= 0) {
        subset->data = malloc((size_t)elements * size + 1);
        if (!subset->data) {
            qobs_plan_destroy(plan);
            return print_error(EXIT_SYSTEM, "no memory for %lld elements", (long long)elements);
        }
        subset->length = 0;
    }
    for (int64_t i = 0; i < qobs_plan_run_count(plan); i++) {
        qobs_run run;
        if (qobs_plan_run(plan, i, &run, NULL) != QOBS_OK || run.offset == QOBS_PADDING ||
            (s->qparam >= 0 && run.qparam != s->qparam))
            continue;
        const unsigned char *at = (const unsigned char *)t->data + run.offset;
        count_clipped(c, &spans->items[run.qparam], t->dtype, at, &run);
        if (subset->data)
            append(subset, size, at, &run);
    }
    qobs_plan_destroy(plan);
    if (subset->data) {
        subset->tensor.data = subset->data;
        subset->tensor.ndim = 1;
        subset->tensor.strides = NULL;
    }
    return EXIT_OK;
}

static const qobs_tensor *view(struct subset *subset)
{
    if (subset->data)
        subset->tensor.shape = &subset->length;
    return &subset->tensor;
}

/* Finds the extrema of the finite elements of all subsets, and adds the counts. */
static int measure_extrema(struct chart *c, const qobs_config *minmax_config, struct subset *parts, size_t count)
{
    c->first = (double)INFINITY;
    c->last = -(double)INFINITY;
    for (size_t i = 0; i < count; i++) {
        qobs_counts counts = {.struct_size = sizeof counts};
        qobs_error error;
        double min, max; /* large enough for any dtype */
        if (parts[i].length == 0)
            continue;
        const qobs_minmax_args args = {.struct_size = sizeof args,
                                       .config = minmax_config,
                                       .value = view(&parts[i]),
                                       .min = &min,
                                       .max = &max,
                                       .size = qobs_dtype_size(parts[i].tensor.dtype),
                                       .counts = &counts};
        if (qobs_minmax(&args, &error) != QOBS_OK)
            return print_status_error(&error, NULL);
        c->elements += counts.elements - counts.nan - counts.inf;
        c->nan += counts.nan;
        c->inf += counts.inf;
        if (counts.elements == counts.nan + counts.inf)
            continue;
        const qobs_dtype dtype = parts[i].tensor.dtype;
        c->first = fmin(c->first, result_value(&(struct result){.dtype = dtype, .data = &min}, 0));
        c->last = fmax(c->last, result_value(&(struct result){.dtype = dtype, .data = &max}, 0));
    }
    if (c->elements == 0)
        return print_error(EXIT_USAGE, "the tensors have no finite elements: there is nothing to show");
    if (c->first == c->last) { /* torch.histc widens an empty range in the same way */
        c->first -= 1;
        c->last += 1;
    }
    return EXIT_OK;
}

static int count_elements(struct chart *c, struct subset *parts, size_t count, const qobs_runtime *runtime)
{
    const qobs_histogram_options bins = {
        .struct_size = sizeof bins, .count = (int64_t)c->bins, .min = (float)c->first, .max = (float)c->last};
    uint64_t *partial = malloc(c->bins * sizeof *partial);
    int code = partial ? EXIT_OK : print_error(EXIT_SYSTEM, "no memory for %zu bins", c->bins);
    for (size_t i = 0; code == EXIT_OK && i < count; i++) {
        qobs_error error;
        if (parts[i].length == 0)
            continue;
        const qobs_histogram_args args = {.struct_size = sizeof args,
                                          .value = view(&parts[i]),
                                          .options = &bins,
                                          .counts = partial,
                                          .counts_size = c->bins * sizeof *partial,
                                          .runtime = runtime};
        if (qobs_histogram(&args, &error) != QOBS_OK)
            code = print_status_error(&error, NULL);
        for (size_t k = 0; code == EXIT_OK && k < c->bins; k++)
            c->counts[k] += partial[k];
    }
    free(partial);
    return code;
}

int chart_make(struct chart *c, const struct chart_source *s)
{
    struct spans spans = {0};
    struct subset *parts = calloc(s->count, sizeof *parts);
    qobs_config *minmax_config = NULL;
    qobs_error error;
    int64_t elements = 0;
    for (size_t i = 0; i < s->count; i++)
        elements += elements_of(&s->tensors[i]);
    if (elements == 0) {
        free(parts);
        return print_error(EXIT_USAGE, "the tensors have no elements: there is nothing to show");
    }
    c->counts = calloc(c->bins, sizeof *c->counts);
    int code = parts && c->counts ? observe(s, c->preset, &spans) : print_error(EXIT_SYSTEM, "no memory for the chart");
    if (code == EXIT_OK && s->qparam >= (int64_t)spans.count)
        code = print_error(EXIT_USAGE, "--qparam: is %lld, there are %zu", (long long)s->qparam, spans.count);
    if (code == EXIT_OK)
        describe_spans(c, &spans, s->qparam);
    for (size_t i = 0; code == EXIT_OK && i < s->count; i++)
        code = select_elements(c, s, &spans, i, &parts[i]);
    if (code == EXIT_OK && (qobs_config_create(&minmax_config, "llmc.memoryless_minmax", NULL, &error) != QOBS_OK ||
                            qobs_config_set(minmax_config, "strategy", "tensor", &error) != QOBS_OK ||
                            qobs_config_set(minmax_config, "nonfinite", "ignore", &error) != QOBS_OK))
        code = print_status_error(&error, NULL);
    if (code == EXIT_OK)
        code = measure_extrema(c, minmax_config, parts, s->count);
    if (code == EXIT_OK)
        code = count_elements(c, parts, s->count, s->runtime);
    for (size_t i = 0; parts && i < s->count; i++)
        free(parts[i].data);
    free(parts);
    free(spans.items);
    qobs_config_destroy(minmax_config);
    return code;
}

void chart_free(struct chart *c)
{
    free(c->counts);
    c->counts = NULL;
}

double chart_clipped(const struct chart *c) { return (double)(c->below + c->above) / (double)c->elements; }

double chart_bar(const struct chart *c, uint64_t count, uint64_t max_count)
{
    return c->logarithmic ? log1p((double)count) / log1p((double)max_count) : (double)count / (double)max_count;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From tensors to a chart. */
#include "chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

/* The range each qparam was given, and which elements are whose. */
struct ranges {
    struct span *items;
    size_t count;
};

/* ---- Chosen ranges -------------------------------------------------------------------------------------------------------- */

static const struct reading *reading_named(const struct readings *readings, const char *name)
{
    for (size_t i = 0; i < readings->count; i++)
        if (strcmp(readings->items[i].name, name) == 0)
            return &readings->items[i];
    return NULL;
}

/* Symmetric quantization reaches as far down as up; other reaches 0 in any case. */
static struct span effective(const qobs_config *config, double low, double high)
{
    char qscheme[64] = "";
    qobs_config_get(config, "qscheme", qscheme, sizeof qscheme, NULL);
    const double most = fmax(fabs(low), fabs(high));
    if (config_is(config, "symmetric", "true") || strstr(qscheme, "symmetric"))
        return (struct span){-most, most};
    return (struct span){fmin(low, 0), fmax(high, 0)};
}

/* The numbers of the observer's format where its scales are powers of two; NULL: they follow the range. */
static const qobs_format *power_of_two_format(const qobs_config *config, const char *preset)
{
    char name[64] = "null";
    if (config_is(config, "scale_dtype", "uint8"))
        return qobs_format_find(config_is(config, "num_bits", "4") ? "fp4_e2m1" : "fp8_e4m3");
    if (!strstr(preset, "PowOf2") && !config_is(config, "scale_format", "e8m0"))
        return NULL;
    qobs_config_get(config, "mx_element_dtype", name, sizeof name, NULL);
    if (strcmp(name, "null") == 0)
        qobs_config_get(config, "dtype", name, sizeof name, NULL);
    return qobs_format_find(strcmp(name, "null") != 0 ? name : strstr(preset, "PowOf2") ? "int8" : "fp4");
}

/* What a number format reaches with these scales. */
static void reach(struct ranges *ranges, const struct readings *readings, const qobs_format *format)
{
    const struct reading *scale = reading_named(readings, "scale"), *zero_point = reading_named(readings, "zero_point");
    if (!scale || scale->size / qobs_dtype_size(scale->dtype) != ranges->count)
        return;
    for (size_t i = 0; i < ranges->count; i++) {
        const double s = reading_value(scale, i), z = zero_point ? reading_value(zero_point, i) : 0;
        ranges->items[i] = (struct span){(qobs_format_least(format) - z) * s, (qobs_format_greatest(format) - z) * s};
    }
}

/* What a range finder found; else what has been seen. A power of two reaches further, or less far. */
static int choose_ranges(struct ranges *ranges, const struct readings *readings, const qobs_config *config, const char *preset)
{
    static const char *const bounds[][2] = {{"new_min", "new_max"}, {"min_vals", "max_vals"}, {"min_val", "max_val"},
                                            {"min_val[default]", "max_val[default]"}};
    const struct reading *low = NULL, *high = NULL, *amax = reading_named(readings, "amax");
    for (size_t i = 0; !low && i < sizeof bounds / sizeof *bounds; i++) {
        low = reading_named(readings, bounds[i][0]);
        high = reading_named(readings, bounds[i][1]);
    }
    const struct reading *any = low ? low : amax;
    if (!any)
        return complain(EXIT_WRONG, "%s: has no range that could be shown", preset);
    ranges->count = any->size / qobs_dtype_size(any->dtype);
    ranges->items = calloc(ranges->count ? ranges->count : 1, sizeof *ranges->items);
    if (!ranges->items)
        return complain(EXIT_TROUBLE, "no memory for %zu ranges", ranges->count);
    for (size_t i = 0; i < ranges->count; i++) {
        const double most = low ? 0 : reading_value(amax, i);
        if (low && !(reading_value(low, i) <= reading_value(high, i)))
            return complain(EXIT_WRONG, "%s: has chosen no range", preset);
        ranges->items[i] = low ? effective(config, reading_value(low, i), reading_value(high, i))
                               : (struct span){config_is(config, "unsigned", "true") ? 0 : -most, most};
    }
    const qobs_format *format = power_of_two_format(config, preset);
    if (format)
        reach(ranges, readings, format);
    return EXIT_OK;
}

static int observe(const struct chart_source *s, const char *preset, struct ranges *ranges)
{
    struct readings readings = {0};
    qobs_observer *observer;
    qobs_error error;
    if (qobs_observer_create(&observer, s->config, s->runtime, &error) != QOBS_OK)
        return complain_status(&error, NULL);
    int code = EXIT_OK;
    for (size_t i = 0; code == EXIT_OK && i < s->count; i++)
        if (qobs_observer_observe(observer, &s->tensors[i], NULL, &error) != QOBS_OK)
            code = complain_status(&error, s->names[i]);
    if (code == EXIT_OK)
        code = readings_take(&readings, observer, "");
    if (code == EXIT_OK)
        code = choose_ranges(ranges, &readings, s->config, preset);
    readings_free(&readings);
    qobs_observer_destroy(observer);
    return code;
}

static void describe_ranges(struct chart *c, const struct ranges *ranges, int64_t qparam)
{
    bool any = false;
    for (size_t i = 0; i < ranges->count; i++) {
        const struct span *r = &ranges->items[i];
        if (qparam >= 0 && (size_t)qparam != i)
            continue;
        if (!any || r->high - r->low < c->narrowest.high - c->narrowest.low)
            c->narrowest = *r;
        if (!any || r->high - r->low > c->widest.high - c->widest.low)
            c->widest = *r;
        any = true;
    }
    c->qparams = qparam >= 0 ? 1 : ranges->count;
}

/* ---- Elements ------------------------------------------------------------------------------------------------------------- */

static int64_t elements_of(const qobs_tensor *t)
{
    int64_t elements = 1;
    for (int d = 0; d < t->ndim; d++)
        elements *= t->shape[d];
    return elements;
}

/* Those of one tensor that are shown, one after another where that is not all of it. */
struct part {
    qobs_tensor tensor;
    int64_t length;
    unsigned char *data; /* NULL: the tensor's own */
};

static void count_clipped(struct chart *c, const struct span *range, qobs_dtype dtype, const unsigned char *at,
                          const qobs_run *run)
{
    for (int64_t k = 0; k < run->length; k++) {
        const double x = reading_value(&(struct reading){.dtype = dtype, .data = (void *)(uintptr_t)(at + k * run->stride)}, 0);
        c->below += isfinite(x) && x < range->low;
        c->above += isfinite(x) && x > range->high;
    }
}

static void append(struct part *part, size_t size, const unsigned char *at, const qobs_run *run)
{
    for (int64_t k = 0; k < run->length; k++)
        memcpy(part->data + (size_t)part->length++ * size, at + k * run->stride, size);
}

/* Counts what is clipped and takes the part of the tensor that is shown. */
static int take(struct chart *c, const struct chart_source *s, const struct ranges *ranges, size_t index, struct part *part)
{
    const qobs_tensor *t = &s->tensors[index];
    const size_t size = qobs_dtype_size(t->dtype);
    qobs_plan *plan;
    qobs_error error;
    const int64_t elements = elements_of(t);
    *part = (struct part){.tensor = *t, .length = elements};
    if (qobs_plan_create(&plan, s->config, t, NULL, s->runtime, &error) != QOBS_OK)
        return complain_status(&error, s->names[index]);
    int64_t shape[QOBS_PLAN_MAX_NDIM], qparams = 1;
    const int ndim = qobs_plan_shape(plan, shape);
    for (int d = 1; d < ndim - 1; d++)
        qparams *= shape[d];
    if ((uint64_t)qparams != ranges->count) { /* another shape than the last tensor's, or ranges under several names */
        qobs_plan_destroy(plan);
        return complain(EXIT_WRONG, "%s: has %lld ranges of its own, the observer %zu: they cannot be shown", s->names[index],
                        (long long)qparams, ranges->count);
    }
    if (s->qparam >= 0) {
        part->data = malloc((size_t)elements * size + 1);
        if (!part->data) {
            qobs_plan_destroy(plan);
            return complain(EXIT_TROUBLE, "no memory for %lld elements", (long long)elements);
        }
        part->length = 0;
    }
    for (int64_t i = 0; i < qobs_plan_run_count(plan); i++) {
        qobs_run run;
        if (qobs_plan_run(plan, i, &run, NULL) != QOBS_OK || run.offset == QOBS_PADDING ||
            (s->qparam >= 0 && run.qparam != s->qparam))
            continue;
        const unsigned char *at = (const unsigned char *)t->data + run.offset;
        count_clipped(c, &ranges->items[run.qparam], t->dtype, at, &run);
        if (part->data)
            append(part, size, at, &run);
    }
    qobs_plan_destroy(plan);
    if (part->data) {
        part->tensor.data = part->data;
        part->tensor.ndim = 1;
        part->tensor.strides = NULL;
    }
    return EXIT_OK;
}

static const qobs_tensor *view(struct part *part)
{
    if (part->data)
        part->tensor.shape = &part->length;
    return &part->tensor;
}

/* The finite elements' extremes over all parts, and the counts of everything. */
static int measure(struct chart *c, const qobs_config *whole, struct part *parts, size_t count)
{
    c->first = (double)INFINITY;
    c->last = -(double)INFINITY;
    for (size_t i = 0; i < count; i++) {
        qobs_counts counts = {.struct_size = sizeof counts};
        qobs_error error;
        double min, max; /* room for any dtype */
        if (parts[i].length == 0)
            continue;
        if (qobs_minmax(whole, view(&parts[i]), NULL, &min, &max, &counts, NULL, &error) != QOBS_OK)
            return complain_status(&error, NULL);
        c->elements += counts.elements - counts.nan - counts.inf;
        c->nan += counts.nan;
        c->inf += counts.inf;
        if (counts.elements == counts.nan + counts.inf)
            continue;
        const qobs_dtype dtype = parts[i].tensor.dtype;
        c->first = fmin(c->first, reading_value(&(struct reading){.dtype = dtype, .data = &min}, 0));
        c->last = fmax(c->last, reading_value(&(struct reading){.dtype = dtype, .data = &max}, 0));
    }
    if (c->elements == 0)
        return complain(EXIT_WRONG, "the tensors have no finite elements: there is nothing to show");
    if (c->first == c->last) { /* as torch.histc widens it */
        c->first -= 1;
        c->last += 1;
    }
    return EXIT_OK;
}

static int count_elements(struct chart *c, struct part *parts, size_t count, const qobs_runtime *runtime)
{
    const qobs_bins bins = {.struct_size = sizeof bins, .count = (int64_t)c->bins, .min = (float)c->first, .max = (float)c->last};
    uint64_t *some = malloc(c->bins * sizeof *some);
    int code = some ? EXIT_OK : complain(EXIT_TROUBLE, "no memory for %zu bins", c->bins);
    for (size_t i = 0; code == EXIT_OK && i < count; i++) {
        qobs_error error;
        if (parts[i].length == 0)
            continue;
        if (qobs_histogram(NULL, view(&parts[i]), NULL, &bins, some, NULL, NULL, NULL, runtime, &error) != QOBS_OK)
            code = complain_status(&error, NULL);
        for (size_t k = 0; code == EXIT_OK && k < c->bins; k++)
            c->counts[k] += some[k];
    }
    free(some);
    return code;
}

int chart_make(struct chart *c, const struct chart_source *s)
{
    struct ranges ranges = {0};
    struct part *parts = calloc(s->count, sizeof *parts);
    qobs_config *whole = NULL;
    qobs_error error;
    int64_t elements = 0;
    for (size_t i = 0; i < s->count; i++)
        elements += elements_of(&s->tensors[i]);
    if (elements == 0) {
        free(parts);
        return complain(EXIT_WRONG, "the tensors have no elements: there is nothing to show");
    }
    c->counts = calloc(c->bins, sizeof *c->counts);
    int code = parts && c->counts ? observe(s, c->preset, &ranges) : complain(EXIT_TROUBLE, "no memory for the chart");
    if (code == EXIT_OK && s->qparam >= (int64_t)ranges.count)
        code = complain(EXIT_WRONG, "--qparam: is %lld, there are %zu", (long long)s->qparam, ranges.count);
    if (code == EXIT_OK)
        describe_ranges(c, &ranges, s->qparam);
    for (size_t i = 0; code == EXIT_OK && i < s->count; i++)
        code = take(c, s, &ranges, i, &parts[i]);
    if (code == EXIT_OK && (qobs_config_create(&whole, "llmc.memoryless_minmax", NULL, &error) != QOBS_OK ||
                            qobs_config_set(whole, "strategy", "tensor", &error) != QOBS_OK ||
                            qobs_config_set(whole, "nonfinite", "ignore", &error) != QOBS_OK))
        code = complain_status(&error, NULL);
    if (code == EXIT_OK)
        code = measure(c, whole, parts, s->count);
    if (code == EXIT_OK)
        code = count_elements(c, parts, s->count, s->runtime);
    for (size_t i = 0; parts && i < s->count; i++)
        free(parts[i].data);
    free(parts);
    free(ranges.items);
    qobs_config_destroy(whole);
    return code;
}

void chart_free(struct chart *c)
{
    free(c->counts);
    c->counts = NULL;
}

double chart_clipped(const struct chart *c)
{
    return (double)(c->below + c->above) / (double)c->elements;
}

double chart_bar(const struct chart *c, uint64_t count, uint64_t most)
{
    return c->logarithmic ? log1p((double)count) / log1p((double)most) : (double)count / (double)most;
}

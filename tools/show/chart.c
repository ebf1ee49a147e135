/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Makes a chart: selects and counts the elements, inside and outside of their ranges. */
#include "show/chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files/status.h"
#include "files/text.h"
#include "program.h"
#include "qobs/stateless.h"

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

static void describe_spans(struct chart *c, const struct spans *spans, int64_t qparam)
{
    bool any = false;
    for (size_t i = 0; i < spans->count; i++) {
        const struct span *r = &spans->items[i];
        if (qparam >= 0 && (size_t)qparam != i)
            continue;
        if (!any || r->high - r->low < c->narrowest.high - c->narrowest.low)
            c->narrowest = *r;
        if (!any || r->high - r->low > c->widest.high - c->widest.low) {
            c->widest = *r;
            c->widest_index = i;
        }
        any = true;
    }
    c->qparams = qparam >= 0 ? 1 : spans->count;
}

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

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
        const double x = number_at(at + k * run->stride, dtype);
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
    OWNED_PLAN qobs_plan *plan = NULL;
    qobs_error error;
    const int64_t elements = elements_of(t);
    *subset = (struct subset){.tensor = *t, .length = elements};
    if (qobs_plan_create(&plan, s->config, t, NULL, s->runtime, &error) != QOBS_OK)
        return print_status_error(&error, s->names[index]);
    int64_t shape[QOBS_PLAN_MAX_NDIM], qparams = 1;
    const int ndim = qobs_plan_shape(plan, shape, sizeof shape);
    for (int d = 1; d < ndim - 1; d++)
        qparams *= shape[d];
    if ((uint64_t)qparams != spans->count) /* the shapes differ, or the ranges have several names */
        return print_error(EXIT_USAGE, "%s: has %lld ranges of its own, the observer %zu: they cannot be shown",
                           s->names[index], (long long)qparams, spans->count);
    if (s->qparam >= 0) {
        subset->data = malloc((size_t)elements * size + 1);
        if (!subset->data)
            return print_error(EXIT_SYSTEM, "no memory for %lld elements", (long long)elements);
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
        c->first = fmin(c->first, number_at(&min, dtype));
        c->last = fmax(c->last, number_at(&max, dtype));
    }
    if (c->elements == 0)
        return print_error(EXIT_USAGE, "the tensors have no finite elements: there is nothing to show");
    if (c->first == c->last) { /* torch.histc widens an empty range in the same way */
        c->first -= 1;
        c->last += 1;
    }
    return EXIT_OK;
}

/* Sets the axis of pictures: the data, the widest range and c->include, but at most ten times the width of the data to
 * either side. */
static void set_axis(struct chart *c)
{
    enum { MOST_WIDTHS = 10 };
    const double width = c->last - c->first;
    double low = fmin(c->first, c->widest.low), high = fmax(c->last, c->widest.high);
    if (c->include.low < c->include.high) {
        low = fmin(low, c->include.low);
        high = fmax(high, c->include.high);
    }
    c->axis.low = fmax(low, c->first - MOST_WIDTHS * width);
    c->axis.high = fmin(high, c->last + MOST_WIDTHS * width);
    if (c->whole_axis) {
        c->first = c->axis.low;
        c->last = c->axis.high;
    }
}

static int count_elements(struct chart *c, struct subset *parts, size_t count, const qobs_runtime *runtime)
{
    const qobs_histogram_options bins = {
        .struct_size = sizeof bins, .count = (int64_t)c->bins, .min = (float)c->first, .max = (float)c->last};
    OWNED uint64_t *partial = malloc(c->bins * sizeof *partial);
    if (!partial)
        return print_error(EXIT_SYSTEM, "no memory for %zu bins", c->bins);
    for (size_t i = 0; i < count; i++) {
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
            return print_status_error(&error, NULL);
        for (size_t k = 0; k < c->bins; k++)
            c->counts[k] += partial[k];
    }
    return EXIT_OK;
}

static int make_bins(struct chart *c, const struct chart_source *s, const struct spans *spans, struct subset *parts)
{
    OWNED_CONFIG qobs_config *config = NULL;
    qobs_error error;
    for (size_t i = 0; i < s->count; i++)
        RETURN_IF_NOT_OK(select_elements(c, s, spans, i, &parts[i]));
    if (qobs_config_parse(&config, "llmc.memoryless_minmax strategy=tensor nonfinite=ignore", NULL, &error) != QOBS_OK)
        return print_status_error(&error, NULL);
    RETURN_IF_NOT_OK(measure_extrema(c, config, parts, s->count));
    set_axis(c);
    return count_elements(c, parts, s->count, s->runtime);
}

int chart_make(struct chart *c, const struct chart_source *s, const struct spans *spans)
{
    OWNED struct subset *parts = calloc(s->count, sizeof *parts);
    c->counts = calloc(c->bins, sizeof *c->counts);
    if (!parts || !c->counts)
        return print_error(EXIT_SYSTEM, "no memory for the chart");
    if (s->qparam >= (int64_t)spans->count)
        return print_error(EXIT_USAGE, "--qparam: is %lld, there are %zu", (long long)s->qparam, spans->count);
    describe_spans(c, spans, s->qparam);
    const int code = make_bins(c, s, spans, parts);
    for (size_t i = 0; i < s->count; i++)
        free(parts[i].data);
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

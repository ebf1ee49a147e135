/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ONNX Runtime's HistogramCollector (onnxruntime/quantization/calibrate.py), batch by batch, in float as numpy 2
 * computes it. Values are binned between -threshold and threshold, the largest magnitude; bins of the same width are
 * added on both sides if a batch exceeds it (merge_histogram). Magnitudes are binned between the smallest and the
 * largest of the first batch; bins are added above. Batches are not stored: memory is 8 bytes for each bin.
 *
 * Edges are stored. range.step is the threshold; 0: all elements were 0, and edges reach from -0.5 to 0.5. */
#include <math.h>

#include "base/split.h"
#include "histogram/collect.h"
#include "histogram/histogram.h"
#include "plan/block_reader.h"

enum { MAX_BINS = 1 << 20, MIN_ELEMENTS = 1 << 16 };

static int too_many(double reach, double bins, double width, qobs_error *error)
{
    return qobs_invalid(
        error, "value: reaches %g, which takes %g bins as wide as those of the first batch, %g; allowed are %d", reach,
        bins, width, MAX_BINS);
}

/* numpy refuses a range that is wider than the largest float. */
static int check_width(float first, float last, qobs_error *error)
{
    if (isfinite(last - first))
        return QOBS_OK;
    return qobs_invalid(error, "value: reaches %g, bins from %g to %g are wider than the largest float32",
                        (double)last, (double)first, (double)last);
}

static void set_range(struct histogram *h, float threshold)
{
    h->range[0] =
        (struct bin_range){.lo = (float)h->edges[0], .hi = (float)h->edges[h->bins], .step = threshold};
}

/* A histogram that came from outside has no threshold but that of its edges. */
static float threshold_of(const struct histogram *h)
{
    const struct bin_range *range = &h->range[0];
    return range->step > 0 ? range->step : range->hi == 0.5f ? 0 : range->hi;
}

/* ---- Counting ---------------------------------------------------------------------------------------------------- */

struct counting_ort {
    const struct batch *batch;
    const struct histogram *histogram;
    bool magnitude;
    bool uniform;     /* bins by numpy's rule for a range and a number of bins, else between the edges */
    uint64_t *counts; /* [parts][bins] */
};

static void count_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct counting_ort *c = argument;
    const struct histogram h = *c->histogram;
    const float first = (float)h.edges[0], last = (float)h.edges[h.bins];
    const bool uniform = c->uniform;
    const double per_unit = bins_per_unit(&h);
    uint64_t *const counts = c->counts + (size_t)part * h.bins;
    struct element_reader e;
    qobs_element_reader_open(&e, c->batch->plan, c->batch->data);
    e.from = from * BLOCK_ELEMENTS;
    e.to = to * BLOCK_ELEMENTS < e.to ? to * BLOCK_ELEMENTS : e.to;
    while (qobs_element_reader_next(&e))
        for (size_t i = 0; i < e.n; i++) {
            const float v = c->magnitude ? fabsf(e.x[0][i]) : e.x[0][i];
            if (v >= first && v <= last)
                counts[uniform ? numpy_linspace_bin(&h, v) : numpy_bin(&h, per_unit, (double)v)]++;
        }
}

/* Adds the elements of the batch to the mass. Counts are integers, so the parts of threads add up to the same. */
static int count(const struct histogram_params *params, const struct batch *batch, struct histogram *h, bool uniform,
                 qobs_error *error)
{
    static const struct split_rule rule = {
        .min_total = 2 * MIN_ELEMENTS, .min_part = MIN_ELEMENTS, .parts_per_thread = 1, .max_parts = SPLIT_MAX_PARTS};
    const int64_t elements = batch->plan->value.elements;
    const struct split split =
        qobs_split(batch->runtime, &rule, (elements + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS, elements, 0);
    const size_t counts = (size_t)split.parts * h->bins, size = counts * sizeof(uint64_t);
    struct counting_ort c = {.batch = batch,
                             .histogram = h,
                             .magnitude = params->magnitude,
                             .uniform = uniform,
                             .counts = qobs_allocate(batch->runtime, size)};
    RETURN_IF_FAILED(qobs_require_memory(c.counts, "histogram", size, error));
    memset(c.counts, 0, size);
    qobs_split_run(batch->runtime, &split, count_part, &c);
    for (size_t i = 0; i < counts; i++)
        h->mass[i % h->bins] += (double)c.counts[i];
    qobs_release(batch->runtime, c.counts, size);
    return QOBS_OK;
}

/* ---- Growth ------------------------------------------------------------------------------------------------------ */

/* numpy.floor_divide of positive floats. */
static float floor_divide(float a, float b)
{
    const float quotient = (a - fmodf(a, b)) / b, down = floorf(quotient);
    return quotient - down > 0.5f ? down + 1 : down;
}

/* Writes to *larger a histogram of more bins, whose bin `shift` is bin 0 of *h. */
static int enlarge(const struct runtime *runtime, const struct histogram *h, size_t bins, size_t shift,
                   struct histogram *larger, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_histogram_allocate(runtime, &qobs_histogram_ort, larger, 1, bins, error));
    memcpy(larger->mass + shift, h->mass, h->bins * sizeof *h->mass);
    memcpy(larger->edges, h->edges, (h->bins + 1) * sizeof *h->edges);
    return QOBS_OK;
}

/* Writes to *larger the histogram of values that holds the threshold of a batch, too, if *h does not. */
static int hold_threshold(const struct runtime *runtime, const struct histogram *h, float threshold,
                          struct histogram *larger, qobs_error *error)
{
    const float old = threshold_of(h);
    if (threshold <= old)
        return QOBS_OK;
    const float stride = 2 * old / (float)h->bins, half = old > 0 ? floor_divide(threshold - old, stride) + 1 : 0;
    const double bins = (double)h->bins + 2 * (double)half;
    if (!(bins <= MAX_BINS))
        return too_many((double)threshold, bins, (double)stride, error);
    const float grown = old > 0 ? half * stride + old : threshold;
    RETURN_IF_FAILED(check_width(-grown, grown, error));
    RETURN_IF_FAILED(enlarge(runtime, h, (size_t)bins, (size_t)half, larger, error));
    qobs_numpy_edges(larger, -grown, grown);
    set_range(larger, grown);
    return QOBS_OK;
}

/* The same for magnitudes up to `max`: appends the edges of numpy.arange(last + width, max + width, width). */
static int hold_magnitude(const struct runtime *runtime, const struct histogram *h, float max, struct histogram *larger,
                          qobs_error *error)
{
    const float last = (float)h->edges[h->bins], width = (float)h->edges[1] - (float)h->edges[0];
    if (max <= last)
        return QOBS_OK;
    const float start = last + width, stop = max + width, step = (start + width) - start;
    const double bins = (double)h->bins + ceil((double)((stop - start) / width));
    if (!(bins <= MAX_BINS))
        return too_many((double)max, bins, (double)width, error);
    RETURN_IF_FAILED(check_width(-2 * width, max, error)); /* the last edge may be that far above max */
    RETURN_IF_FAILED(enlarge(runtime, h, (size_t)bins, 0, larger, error));
    for (size_t i = h->bins + 1; i <= larger->bins; i++)
        larger->edges[i] = (double)(i == h->bins + 1 ? start : start + (float)(i - h->bins - 1) * step);
    set_range(larger, 0);
    return QOBS_OK;
}

/* Writes to *next the histogram that holds the batch, too, if *h does not. */
static int hold(const struct histogram_params *params, const struct batch *batch, const struct histogram *h,
                const struct extrema *extrema, struct histogram *next, qobs_error *error)
{
    const float threshold = -extrema->min > extrema->max ? -extrema->min : extrema->max;
    struct extrema magnitudes;
    if (h->bins > 0 && !bin_range_is_empty(&h->range[0]))
        return (params->magnitude ? hold_magnitude : hold_threshold)(batch->runtime, h, threshold, next, error);
    if (params->magnitude)
        RETURN_IF_FAILED(qobs_scan_extrema(batch, true, false, &magnitudes, error));
    RETURN_IF_FAILED(check_width(params->magnitude ? magnitudes.min : -threshold, threshold, error));
    RETURN_IF_FAILED(qobs_histogram_allocate(batch->runtime, &qobs_histogram_ort, next, 1, params->bins, error));
    qobs_numpy_edges(next, params->magnitude ? magnitudes.min : -threshold, threshold);
    set_range(next, params->magnitude ? 0 : threshold);
    return QOBS_OK;
}

static int accept(const struct histogram_rule *rule, const struct batch *batch, struct histogram *h, float *min,
                  float *max, struct nonfinite_count *nonfinite, qobs_error *error)
{
    const struct histogram_params *params = &rule->params;
    struct histogram next = {0};
    struct extrema extrema;
    RETURN_IF_FAILED(qobs_scan_extrema(batch, false, false, &extrema, error));
    RETURN_IF_FAILED(qobs_check_extrema(batch, params->nonfinite, &extrema, nonfinite, error));
    *min = extrema.min;
    *max = extrema.max;
    if (extrema.min > extrema.max) /* no element is finite */
        return h->bins > 0
                   ? QOBS_OK
                   : qobs_histogram_allocate(batch->runtime, &qobs_histogram_ort, h, 1, params->bins, error);
    const bool first = h->bins == 0 || bin_range_is_empty(&h->range[0]);
    RETURN_IF_FAILED(hold(params, batch, h, &extrema, &next, error));
    const int status = count(params, batch, next.bins > 0 ? &next : h, first || !params->magnitude, error);
    if (status == QOBS_OK && next.bins > 0) {
        const struct histogram old = *h;
        *h = next;
        next = old;
    }
    qobs_histogram_release(batch->runtime, &next);
    return status;
}

/* Mass goes to the bins of its centres, over a range that holds both. */
static int merge(const struct histogram_rule *rule, const struct runtime *runtime, struct histogram *h,
                 const struct histogram *from, qobs_error *error)
{
    if (bin_range_is_empty(&from->range[0]))
        return QOBS_OK;
    const bool empty = bin_range_is_empty(&h->range[0]);
    struct histogram larger = {0};
    RETURN_IF_FAILED(empty ? qobs_histogram_copy(runtime, rule->ops, &larger, from, error)
                     : rule->params.magnitude
                         ? hold_magnitude(runtime, h, (float)from->edges[from->bins], &larger, error)
                         : hold_threshold(runtime, h, threshold_of(from), &larger, error));
    if (larger.bins > 0) {
        qobs_histogram_release(runtime, h);
        *h = larger;
    }
    for (size_t i = 0, k = 0; i < from->bins && !empty; i++) {
        const double centre = from->edges[i] + (from->edges[i + 1] - from->edges[i]) / 2;
        while (k + 1 < h->bins && centre >= h->edges[k + 1])
            k++;
        h->mass[k] += from->mass[i];
    }
    return QOBS_OK;
}

const struct histogram_ops qobs_histogram_ort = {
    .accept = accept, .merge = merge, .ranges_are_results = true, .stores_edges = true, .integer_counts = true};

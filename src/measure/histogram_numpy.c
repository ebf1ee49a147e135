/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer's HistogramCalibrator with torch_hist=false, which counts by numpy.histogram: an element belongs to the
 * bin between whose edges it lies, left one included and of the last bin both, whatever the quotient says. The range of the
 * first batch begins at its least magnitude; what later lies below is not counted. Edges are kept, as those that come later
 * do not continue the first ones' rule. Counted by the calling thread, an element at a time. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "plan/gather_block.h"
#include "measure/histogram.h"

enum { MOST_BINS = 1 << 20 };

static int allocate(const struct runtime *runtime, struct histogram *h, size_t bins, qobs_error *error)
{
    const int status = qobs_histogram_allocate(runtime, h, 1, bins, error);
    if (status != QOBS_OK)
        return status;
    h->edges = qobs_allocate_state(runtime, (bins + 1) * sizeof *h->edges);
    if (h->edges)
        return QOBS_OK;
    qobs_histogram_release(runtime, h);
    return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu edges", bins + 1);
}

/* numpy.linspace in float. */
static void first_edges(struct histogram *h, float first, float last)
{
    const float from = first == last ? first - 0.5f : first, to = first == last ? last + 0.5f : last,
                step = (to - from) / (float)h->bins;
    for (size_t i = 0; i < h->bins; i++)
        h->edges[i] = (double)((float)i * step + from);
    h->edges[h->bins] = (double)to;
}

/* *h with the edges of numpy.arange(last + width, max + width, width) added, whose elements are doubles: the first time
 * their limits are floats, from then on doubles, too. */
static int extend(const struct runtime *runtime, const struct histogram_params *params, struct histogram *h, double max,
                  qobs_error *error)
{
    const bool wide = h->bins != params->bins;
    const double last = h->edges[h->bins],
                 width = wide ? h->edges[1] - h->edges[0] : (double)((float)h->edges[1] - (float)h->edges[0]);
    const double start = wide ? last + width : (double)((float)last + (float)width);
    const double stop = wide ? max + width : (double)((float)max + (float)width);
    const double steps = wide ? (stop - start) / width : (double)(((float)stop - (float)start) / (float)width);
    const double second = wide ? start + width : (double)((float)start + (float)width);
    const double bins = (double)h->bins + ceil(steps);
    struct histogram wider = {0};
    if (!(bins <= MOST_BINS))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "value: reaches %g, which takes %g bins as wide as those of the first batch, %g; allowed are %d",
                         max, bins, width, MOST_BINS);
    const int status = allocate(runtime, &wider, (size_t)bins, error);
    if (status != QOBS_OK)
        return status;
    memcpy(wider.mass, h->mass, h->bins * sizeof *h->mass);
    memcpy(wider.edges, h->edges, (h->bins + 1) * sizeof *h->edges);
    for (size_t i = h->bins + 1; i <= wider.bins; i++)
        wider.edges[i] = start + (double)(i - h->bins - 1) * (second - start);
    qobs_histogram_release(runtime, h);
    *h = wider;
    return QOBS_OK;
}

static void settle(struct histogram *h)
{
    h->range[0] = (struct bin_range){.lo = (float)h->edges[0], .hi = (float)h->edges[h->bins]};
}

/* The bin of x, which is in range. */
static size_t bin_of(const struct histogram *h, double x)
{
    const double share = (x - h->edges[0]) / (h->edges[h->bins] - h->edges[0]) * (double)h->bins;
    size_t k = share < (double)h->bins ? (size_t)share : h->bins - 1;
    while (k > 0 && x < h->edges[k])
        k--;
    while (k + 1 < h->bins && x >= h->edges[k + 1])
        k++;
    return k;
}

static void count(const struct histogram_params *params, const qobs_plan *plan, const unsigned char *data, struct histogram *h)
{
    struct strips strips;
    struct strip strip;
    float x[1][STRIP_WORKSPACE];
    qobs_strips_of(&strips, plan, 1);
    qobs_strip_at(&strips, 0, &strip);
    for (int64_t first = 0; first < strip.elements; first += STRIP_WORKSPACE) {
        const size_t n = (size_t)(strip.elements - first < STRIP_WORKSPACE ? strip.elements - first : STRIP_WORKSPACE);
        qobs_strip_read(&strip, plan->dtype, data, first, n, x);
        for (size_t i = 0; i < n; i++) {
            const double magnitude = (double)fabsf(x[0][i]);
            const bool counted =
                magnitude >= h->edges[0] && magnitude <= h->edges[h->bins] && !(params->skip_zeros && magnitude == 0);
            if (counted) {
                double *bin = &h->mass[bin_of(h, magnitude)];
                *bin = add_mass(*bin, 1, params->float32_counts);
            }
        }
    }
}

int qobs_histogram_take_numpy(const struct runtime *runtime, const struct qobs_kernels *kernels, const struct histogram_params *params,
                              const qobs_plan *plan, const unsigned char *data, struct histogram *h, float *min, float *max,
                              struct qobs_nonfinite *nonfinite, qobs_error *error)
{
    const struct qobs_binning nothing = qobs_binning_of_nothing(1, true, params->skip_zeros);
    struct qobs_extrema seen;
    uint64_t unused;
    const bool first = h->bins == 0;
    int status = qobs_collect(runtime, kernels, plan, data, &nothing, &unused, &seen, NULL, error);
    if (status == QOBS_OK)
        status = qobs_check_seen(plan, data, params->nonfinite, &seen, nonfinite, error);
    *min = seen.min;
    *max = seen.max;
    if (status == QOBS_OK && first)
        status = allocate(runtime, h, params->bins, error);
    if (status != QOBS_OK || seen.min > seen.max)
        return status;
    if (first)
        first_edges(h, seen.min, seen.max);
    else if ((double)seen.max > h->edges[h->bins])
        status = extend(runtime, params, h, (double)seen.max, error);
    if (status != QOBS_OK)
        return status;
    settle(h);
    count(params, plan, data, h);
    return QOBS_OK;
}

int qobs_histogram_merge_numpy(const struct runtime *runtime, const struct histogram_params *params, struct histogram *h,
                               const struct histogram *from, qobs_error *error)
{
    const double last = from->edges[from->bins];
    const int status = last > h->edges[h->bins] ? extend(runtime, params, h, last, error) : QOBS_OK;
    if (status != QOBS_OK)
        return status;
    settle(h);
    for (size_t i = 0; i < from->bins; i++) {
        const double centre = from->edges[i] + (from->edges[i + 1] - from->edges[i]) / 2;
        double *bin = &h->mass[centre < h->edges[0] ? 0 : centre > h->edges[h->bins] ? h->bins - 1 : bin_of(h, centre)];
        *bin = add_mass(*bin, from->mass[i], params->float32_counts);
    }
    return QOBS_OK;
}

const struct histogram_ops qobs_histogram_numpy = {0};

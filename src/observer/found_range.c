/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What is read of an observer's histograms: the range its preset finds in them, and scale and zero point for that. */
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "observer/found_range.h"
#include "range/range.h"
#include "measure/accumulators.h"

static int find_non_linear(const qobs_observer *o, float *min, float *max, qobs_error *error)
{
    const struct histogram *h = &o->state.histogram;
    const size_t size = (h->bins + qobs_non_linear_workspace(h->bins)) * sizeof(float);
    float *counts = qobs_allocate(&o->runtime, size);
    if (!counts)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes", size);
    for (size_t q = 0; q < h->qparams; q++) {
        const struct bin_range *range = &h->range[q];
        min[q] = range->lo;
        max[q] = range->hi;
        if (range->lo > range->hi)
            continue;
        for (size_t k = 0; k < h->bins; k++)
            counts[k] = (float)h->mass[q * h->bins + k];
        qobs_non_linear_search(counts, h->bins, range->lo, range->hi, o->stages.range.params.bins.numbers, counts + h->bins,
                               &min[q], &max[q]);
    }
    qobs_release(&o->runtime, counts, size);
    return QOBS_OK;
}

/* ---- Histograms grown by whole bins
 * --------------------------------------------------------------------------------------- */

void qobs_histogram_edges(const struct histogram *h, float *edges)
{
    for (size_t i = 0; i <= h->bins; i++)
        edges[i] = h->edges ? (float)h->edges[i] : qobs_bin_edge(&h->range[0], h->bins, i);
}

bool qobs_histogram_is_empty(const struct histogram *h)
{
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        if (h->mass[k] > 0)
            return false;
    return true;
}

static int find_amax(const qobs_observer *o, const struct histogram_view *h, double *workspace, float *amax, qobs_error *error)
{
    const struct bins_params *p = &o->stages.range.params.bins;
    switch (p->method) {
    case AMAX_ENTROPY:
        return qobs_amax_by_entropy(p, &o->stages.formula, h, workspace, amax, error);
    case AMAX_MSE:
        return qobs_amax_by_mse(p, &o->stages.formula, h, workspace, amax, error);
    default:
        *amax = qobs_percentile_modelopt(h, p->percentile);
        return QOBS_OK;
    }
}

static int find_in_bins(const qobs_observer *o, float *min, float *max, qobs_error *error)
{
    const struct histogram *h = &o->state.histogram;
    const struct range_ops *ops = o->stages.range.ops;
    const struct bins_params *p = &o->stages.range.params.bins;
    const size_t workspace = qobs_range_workspace(h->bins), size = workspace * sizeof(double) + (h->bins + 1) * sizeof(float);
    double *memory = qobs_allocate(&o->runtime, size);
    if (!memory)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes", size);
    float *edges = (float *)(void *)(memory + workspace);
    const struct histogram_view view = {.bins = h->bins, .counts = h->mass, .edges = edges};
    int status = QOBS_OK;
    qobs_histogram_edges(h, edges);
    *min = 0;
    if (ops == &qobs_range_percentile)
        qobs_percentile_quark(&view, p->symmetric, p->percentile, min, max);
    else if (ops == &qobs_range_bins_mse)
        status = qobs_amax_by_mse(p, &o->stages.formula, &view, memory, max, error);
    else
        status = find_amax(o, &view, memory, max, error);
    qobs_release(&o->runtime, memory, size);
    return status;
}

/* ---- Any
 * ------------------------------------------------------------------------------------------------------------------ */

int qobs_find_ranges(const qobs_observer *o, float *min, float *max, void *scale, void *zero_point, qobs_error *error)
{
    const struct range_ops *ops = o->stages.range.ops;
    struct range_view ranges = qobs_view_ranges(o);
    const size_t size = ranges.n * sizeof(float);
    float *found = qobs_allocate(&o->runtime, 2 * size);
    if (!found)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes of ranges", 2 * size);
    ranges.min = found;
    ranges.max = found + ranges.n;
    const fp_mode mode = fp_enter();
    int status = QOBS_OK;
    if (ops == &qobs_range_never) /* which never looks for a range */
        ranges = qobs_no_ranges();
    else if (ops == &qobs_range_non_linear)
        status = find_non_linear(o, found, found + ranges.n, error);
    else
        status = find_in_bins(o, found, found + 1, error);
    if (ops == &qobs_range_percentile && qobs_histogram_is_empty(&o->state.histogram))
        ranges.rank = RANK_TENSOR;
    if (status == QOBS_OK && (scale || zero_point))
        status = qobs_formula_qparams(&o->stages.formula, &ranges, scale, zero_point, error);
    fp_leave(mode);
    if (status == QOBS_OK && min)
        memcpy(min, ranges.min, size);
    if (status == QOBS_OK && max)
        memcpy(max, ranges.max, size);
    qobs_release(&o->runtime, found, 2 * size);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms from bytes. */
#include <math.h>

#include "base/error.h"
#include "observer/saved_state.h"

static bool range_is_valid(const struct bin_range *range)
{
    const bool empty = isinf(range->lo) && range->lo > 0 && isinf(range->hi) && range->hi < 0;
    return isfinite(range->step) && (empty || (isfinite(range->lo) && isfinite(range->hi) && range->lo <= range->hi));
}

static int load_edges(struct histogram *h, struct source *source, qobs_error *error)
{
    if ((size_t)(source->end - source->at) / sizeof *h->edges < h->bins + 1)
        return qobs_damaged(error, "its edges are not all there");
    qobs_get_elements(source, h->edges, h->bins + 1, sizeof *h->edges);
    for (size_t i = 0; i < h->bins; i++)
        if (!(h->edges[i] <= h->edges[i + 1]) || isinf(h->edges[i]) || isinf(h->edges[i + 1]))
            return qobs_damaged(error, "an edge cannot be");
    return QOBS_OK;
}

int qobs_load_histogram(qobs_observer *o, struct source *source, qobs_error *error)
{
    struct histogram *h = &o->kept.histogram;
    const uint64_t bins = qobs_get(source, 8), left = (uint64_t)(source->end - source->at);
    if (o->layout.dtype != QOBS_F32 || bins < 1 || bins > QOBS_MOST_BINS ||
        left / o->layout.qparams < 3 * sizeof(float) + bins * sizeof(double))
        return qobs_damaged(error, "its histograms are not all there");
    const int status = qobs_histogram_allocate(&o->runtime, o->stages.histogram.ops, h, o->layout.qparams, (size_t)bins, error);
    if (status != QOBS_OK)
        return status;
    for (size_t q = 0; q < h->qparams; q++) {
        qobs_get_elements(source, &h->range[q].lo, 1, sizeof(float));
        qobs_get_elements(source, &h->range[q].hi, 1, sizeof(float));
        qobs_get_elements(source, &h->range[q].step, 1, sizeof(float));
        if (!range_is_valid(&h->range[q]))
            return qobs_damaged(error, "the range of a histogram cannot be");
    }
    qobs_get_elements(source, h->mass, h->qparams * h->bins, sizeof *h->mass);
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        if (!(h->mass[k] >= 0 && isfinite(h->mass[k])))
            return qobs_damaged(error, "a count cannot be");
    return h->edges ? load_edges(h, source, error) : QOBS_OK;
}

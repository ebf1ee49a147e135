/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Results that are read from an observer's histograms. */
#include "observer/observer.h"
#include "range/from_histogram.h"

void qobs_read_bin_edges(const qobs_observer *o, float *out) { qobs_read_edges(&o->kept.histogram, out); }

bool qobs_histogram_is_empty(const qobs_observer *o) { return qobs_is_empty(&o->kept.histogram); }

void qobs_read_histogram(const qobs_observer *o, float *out)
{
    const struct histogram *h = &o->kept.histogram;
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        out[k] = (float)h->mass[k];
}

int qobs_read_found(const qobs_observer *o, float *min, float *max, void *scale, void *zero_point, qobs_error *error)
{
    const struct range_request request = {.runtime = &o->runtime,
                                          .rule = &o->stages.range,
                                          .formula = &o->stages.formula,
                                          .histogram = &o->kept.histogram,
                                          .rank = o->layout.range.ndim == 0 ? RANK_SCALAR : RANK_TENSOR,
                                          .min = min,
                                          .max = max,
                                          .scale = scale,
                                          .zero_point = zero_point};
    return qobs_find_range(&request, error);
}

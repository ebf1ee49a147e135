/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ONNX Runtime's HistogramCollector.compute_percentile: left edges of the first bins at which the cumulative share, in
 * double, reaches a share; the last edge if none does. */
#include "histogram/from_histogram.h"

/* numpy.searchsorted of the cumulative shares. They are NaN without elements; numpy sorts NaN last. */
static size_t first_bin(const struct histogram *h, double total, double share)
{
    double cumulative = 0;
    for (size_t i = 0; i < h->bins; i++) {
        cumulative += h->mass[i] / total;
        if (!(cumulative < share))
            return i;
    }
    return h->bins;
}

static int find(const struct runtime *runtime, const struct range_params *params, const struct formula *formula,
                const struct histogram *h, float *min, float *max, qobs_error *error)
{
    const double percentile = params->bins.percentile, cut = (100 - percentile) / 200;
    double total = 0;
    (void)runtime, (void)formula, (void)error;
    for (size_t i = 0; i < h->bins; i++)
        total += h->mass[i];
    if (params->bins.symmetric) {
        *max = (float)h->edges[first_bin(h, total, percentile / 100)];
        *min = -*max;
    } else {
        *max = (float)h->edges[first_bin(h, total, 1 - cut)];
        *min = (float)h->edges[first_bin(h, total, cut)];
    }
    return QOBS_OK;
}

const struct range_ops qobs_range_ort_percentile = {
    .reads = READS_PERCENTILE, .find = find, .found_threshold = true, .within_data = true};

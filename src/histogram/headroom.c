/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer's NVFP4ActHeadroomCalibrator.compute_amax: rho times a low percentile of the blocks' magnitudes, but
 * at least a high one. */
#include <math.h>

#include "base/error.h"
#include "histogram/from_histogram.h"

/* Bins with a magnitude below this part of the high percentile are no anchor. */
#define LEAST_ANCHOR 1e-6

/* The magnitude of the first bin from `floor` on at which the share is reached; 0: no block is counted there. */
static double magnitude_at(const struct headroom_params *p, const struct histogram *h, double percentile, size_t floor)
{
    float total = 0;
    for (size_t i = floor; i < h->bins; i++)
        total += (float)h->mass[i];
    if (!(total > 0))
        return 0;
    const float target = (float)(percentile / 100) * total;
    double sum = 0;
    size_t bin = h->bins - 1;
    for (size_t i = 0; i < h->bins; i++) {
        sum += i >= floor ? (double)(float)h->mass[i] : 0;
        if ((float)sum >= target) {
            bin = i;
            break;
        }
    }
    return exp2(p->log2_min + ((double)bin + 0.5) / (double)h->bins * (p->log2_max - p->log2_min));
}

/* *max is the largest magnitude on entry. */
static int find(const struct runtime *runtime, const struct range_params *params, const struct formula *formula,
                const struct histogram *h, float *min, float *max, qobs_error *error)
{
    const struct headroom_params *p = &params->headroom;
    const struct histogram_params bins = {.bins = h->bins, .log2_min = p->log2_min, .log2_max = p->log2_max};
    (void)runtime, (void)formula;
    const double largest = (double)*max;
    const double upper = p->upper_percentile >= 100 ? largest : magnitude_at(p, h, p->upper_percentile, 0);
    if (!(upper > 0))
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "amax: all blocks are zeros, upstream has none then");
    const double anchor = magnitude_at(p, h, p->anchor_percentile, qobs_log2_bin(&bins, (float)(upper * LEAST_ANCHOR)));
    const double headroom = p->rho * anchor;
    *max = (float)(!(anchor > 0) ? largest : headroom > upper ? headroom : upper);
    *min = -*max;
    return QOBS_OK;
}

const struct range_ops qobs_range_headroom = {
    .reads = READS_HEADROOM, .histogram = &(const struct histogram_range){.find = find, .found = FOUND_AMAX}};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer's NVFP4ActHeadroomCalibrator.compute_amax: rho times a low percentile of the blocks' magnitudes, but
 * at least a high one. */
#include <math.h>

#include "histogram/collect.h"
#include "histogram/from_histogram.h"
#include "plan/block_reader.h"

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
static int find(const struct range_request *r, float *min, float *max, qobs_error *error)
{
    const struct headroom_params *p = &r->rule->params.headroom;
    const struct histogram *h = r->histogram;
    const struct histogram_params bins = {.bins = h->bins, .log2_min = p->log2_min, .log2_max = p->log2_max};
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

/* ---- Its histogram ----------------------------------------------------------------------------------------------- */

/* Model-Optimizer's NVFP4ActHeadroomCalibrator: a histogram of the logarithms of the magnitudes of blocks along the
 * last dimension. Zeros pad a last block; blocks of zeros are not counted. The range of the batch is (-amax, amax). */

/* In float, as torch; frac is limited to the bins. */
size_t qobs_log2_bin(const struct histogram_params *params, float magnitude)
{
    const float low = (float)params->log2_min, width = (float)(params->log2_max - params->log2_min);
    const float share = ((float)log2((double)magnitude) - low) / width * (float)params->bins;
    return share >= (float)params->bins ? params->bins - 1 : share > 0 ? (size_t)share : 0;
}

/* Counts the blocks of the tensor, which the plan reads in C order. */
static void count(const struct histogram_params *params, const struct batch *batch, double *mass)
{
    const struct view *v = &batch->plan->value;
    const int64_t row = v->ndim > 0 ? v->shape[v->ndim - 1] : 1;
    struct element_reader e;
    float amax = 0;
    int64_t column = 0;
    qobs_element_reader_open(&e, batch->plan, batch->data);
    while (qobs_element_reader_next(&e)) {
        for (size_t i = 0; i < e.n; i++) {
            const float magnitude = fabsf(e.x[0][i]);
            if (isfinite(magnitude) && magnitude > amax)
                amax = magnitude;
            column++;
            if (column % params->block_size != 0 && column != row)
                continue;
            if (amax > 0)
                mass[qobs_log2_bin(params, amax)] += 1;
            amax = 0;
            column = column == row ? 0 : column;
        }
    }
}

static int accept(const struct histogram_rule *rule, const struct batch *batch, struct histogram *h, float *min,
                  float *max, struct nonfinite_count *nonfinite, qobs_error *error)
{
    const struct histogram_params *params = &rule->params;
    struct extrema extrema;
    RETURN_IF_FAILED(qobs_scan_extrema(batch, true, false, &extrema, error));
    RETURN_IF_FAILED(qobs_check_extrema(batch, params->nonfinite, &extrema, nonfinite, error));
    if (h->bins == 0)
        RETURN_IF_FAILED(qobs_histogram_allocate(batch->runtime, rule->ops, h, 1, params->bins, error));
    h->range[0] = (struct bin_range){.lo = (float)params->log2_min, .hi = (float)params->log2_max};
    *min = extrema.min > extrema.max ? extrema.min : -extrema.max;
    *max = extrema.max;
    count(params, batch, h->mass);
    return QOBS_OK;
}

static int merge(const struct histogram_rule *rule, const struct runtime *runtime, struct histogram *h,
                 const struct histogram *from, qobs_error *error)
{
    (void)rule, (void)runtime, (void)error;
    for (size_t i = 0; i < h->bins && i < from->bins; i++)
        h->mass[i] += from->mass[i];
    return QOBS_OK;
}

const struct histogram_ops qobs_histogram_log2 = {.accept = accept, .merge = merge};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Range finders: from a histogram to a range or to a magnitude amax that clips as little as possible. Pure functions of the
 * histogram; arguments have been checked (find.c). Upstream: quark/torch/quantization/observer/observer.py and
 * modelopt/torch/quantization/calib/histogram.py. */
#ifndef QOBS_RANGE_H
#define QOBS_RANGE_H

#include "formula/formula.h"
#include "range/range_rule.h"

/* counts[i] elements from edges[i] to edges[i + 1]. Counts are not negative, edges do not descend. */
struct histogram_view {
    size_t bins; /* at least 1 */
    const double *counts;
    const float *edges;
};

/* ---- Percentile: percent in [0, 100] ------------------------------------------------------------------------------ */

/* Model-Optimizer: the left edge of the first bin at which the cumulative share, in double, reaches percent; the last edge
 * where none does. */
float qobs_percentile_modelopt(const struct histogram_view *h, double percent);

/* Quark, shares in float. Symmetric: from 0 to the left edge of the first bin whose cumulative share reaches percent.
 * Otherwise upstream mixes its bounds up: from the first edge to the left edge of the first bin that holds more than next to
 * nothing. A histogram of nothing: 0 to 0. */
void qobs_percentile_quark(const struct histogram_view *h, bool symmetric, double percent, float *min, float *max);

/* The same, but asymmetric as meant: the least range of whole bins with at most (100 - percent) / 2 percent outside on
 * either side. */
void qobs_percentile(const struct histogram_view *h, bool symmetric, double percent, float *min, float *max);

/* ---- Entropy ------------------------------------------------------------------------------------------------------ */

/* What Model-Optimizer's entropy method looks at: bin 0 has the count of bin 1. */
struct entropy {
    size_t bins, cells;   /* to quantize to */
    size_t used;          /* bins that have elements */
    const size_t *index;  /* [used], ascending */
    const double *counts; /* [used] */
    const double *log;    /* [used], of the counts */
    const double *before; /* [used + 1], elements in all bins before */
};

/* `room` has qobs_entropy_workspace(bins) doubles. h has at least 2 bins. */
size_t qobs_entropy_workspace(size_t bins);
struct entropy qobs_entropy_prepare(const struct histogram_view *h, size_t cells, double *workspace);

/* Kullback-Leibler divergence, in double, from the histogram with everything from bin `kept` on moved into the bin before to
 * its first `kept` bins as quantized numbers hold them. Infinity where that bin is empty and something moves, NaN where all
 * bins are empty. */
double qobs_entropy_divergence(const struct entropy *e, size_t kept);

/* The number of kept bins, of first, first + stride, ... up to all, with the least divergence; of several the last; NaN
 * counts as the least, as in numpy.argmin. amax is the edge of that index. */
size_t qobs_entropy_find(const struct entropy *e, size_t first, size_t stride);

/* ---- Squared error ------------------------------------------------------------------------------------------------ */

/* The bins that count: those with elements. */
struct squared_error {
    size_t bins, used;           /* of the histogram; of them with elements */
    const float *centre, *count; /* [used] */
};

size_t qobs_squared_error_workspace(size_t bins); /* in floats */
struct squared_error qobs_squared_error_prepare(const struct histogram_view *h, float *workspace);

/* mean over all bins of count * (quantized centre - centre)^2, terms in float, their sum in double. NO_RESULT where upstream
 * has no scale for amax. */
int qobs_squared_error(const struct squared_error *e, const struct bins_params *params, const struct formula *formula, float amax,
                       double *mean, qobs_error *error);

/* The bin, of first, first + stride, ... whose centre is the amax with the least error; of several the first; NaN counts as
 * the least. */
int qobs_squared_error_find(const struct squared_error *e, const struct histogram_view *h, const struct bins_params *params,
                            const struct formula *formula, size_t first, size_t *bin, qobs_error *error);

/* (edges[bin + 1] + edges[bin]) / 2 in float. */
float qobs_bin_centre(const struct histogram_view *h, size_t bin);

/* ---- Non-linear search -------------------------------------------------------------------------------------------- */

/* torch.ao's HistogramObserver: clips from either side, 1e-5 of the elements at a time, as long as the squared error of
 * elements spread evenly over their bins and quantized to `cells` numbers falls. `room` has qobs_non_linear_workspace(bins)
 * floats. */
size_t qobs_non_linear_workspace(size_t bins);
void qobs_non_linear_search(const float *counts, size_t bins, float min, float max, double cells, float *workspace,
                            float *new_min, float *new_max);

/* ---- As a configuration says -------------------------------------------------------------------------------------- */

/* These check params->stride and start_bin. The workspace has qobs_range_workspace(bins) doubles. */
size_t qobs_range_workspace(size_t bins);
typedef int qobs_amax_finder(const struct bins_params *params, const struct formula *formula, const struct histogram_view *h,
                             double *workspace, float *amax, qobs_error *error);
qobs_amax_finder qobs_amax_by_entropy, qobs_amax_by_mse;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Ranges from histograms: qobs_find_range for the histograms of an observer, and the methods behind it, which are pure
 * functions of one histogram. Arguments of the methods are checked by their callers unless stated otherwise. Upstream:
 * quark/torch/quantization/observer/observer.py, modelopt/torch/quantization/calib/histogram.py and
 * torch/ao/quantization/observer.py. */
#pragma once

#include "histogram/histogram.h"
#include "stages/range_rule.h"

/* ---- Of an observer ---------------------------------------------------------------------------------------------- */

struct range_request {
    const struct runtime *runtime;
    const struct range_rule *rule;
    const struct formula *formula;
    const struct histogram *histogram;
    enum rank rank;                   /* of the ranges in upstream */
    const float *data_min, *data_max; /* the range of the elements of each histogram */
    float *min, *max;                 /* output: the range of each histogram */
    void *scale, *zero_point;         /* output: what the formula makes of the ranges. Each of the four may be NULL. */
    double *workspace;                /* qobs_range_workspace doubles; qobs_find_range sets this and the next */
    float *edges;                     /* bins + 1 */
};

/* Fails for settings that upstream refuses only here, and if the formula fails. */
int qobs_find_range(const struct range_request *request, qobs_error *error);

/* The bins + 1 edges of a histogram that grows by whole bins. */
void qobs_read_edges(const struct histogram *histogram, float *edges);

/* True if no element has been counted. */
bool qobs_is_empty(const struct histogram *histogram);

/* ---- One histogram ----------------------------------------------------------------------------------------------- */

/* counts[i] elements between edges[i] and edges[i + 1]. Counts are not negative, edges do not descend. */
struct histogram_view {
    size_t bins; /* at least 1 */
    const double *counts;
    const float *edges;
};

/* The workspace that every method has, in doubles. */
static inline size_t qobs_range_workspace(size_t bins) { return 4 * bins + 1; }

/* ---- Percentile: percent in [0, 100] ----------------------------------------------------------------------------- */

/* Model-Optimizer: the left edge of the first bin at which the cumulative share, in double, reaches percent; the last
 * edge if none does. */
float qobs_percentile_modelopt(const struct histogram_view *h, double percent);

/* Quark, with shares in float. Symmetric: from 0 to the left edge of the first bin whose cumulative share reaches
 * percent. Otherwise upstream confuses its bounds: from the first edge to the left edge of the first bin whose share
 * reaches (100 - percent) / 2 percent. An empty histogram gives 0 and 0. */
void qobs_percentile_quark(const struct histogram_view *h, bool symmetric, double percent, float *min, float *max);

/* Like Quark, but asymmetric as intended: the smallest range of complete bins that leaves at most (100 - percent) / 2
 * percent out on either side. */
void qobs_percentile(const struct histogram_view *h, bool symmetric, double percent, float *min, float *max);

/* ---- Entropy ----------------------------------------------------------------------------------------------------- */

/* A histogram as Model-Optimizer's entropy method reads it: bin 0 has the count of bin 1. Empty bins are left out. */
struct entropy {
    size_t bins;
    size_t levels;        /* quantized magnitudes */
    size_t used;          /* bins that are not empty */
    const size_t *index;  /* [used], ascending */
    const double *counts; /* [used] */
    const double *log;    /* [used], of the counts */
    const double *before; /* [used + 1], elements in all bins before */
};

/* h has at least 2 bins. */
struct entropy qobs_entropy_prepare(const struct histogram_view *h, size_t levels, double *workspace);

/* Kullback-Leibler divergence, in double. P is the first `inside` bins, with all elements above them added to the last
 * one. Q is those bins after quantization to the levels. Infinity if that last bin is empty and elements are added; NaN
 * if all bins are empty. */
double qobs_entropy_divergence(const struct entropy *e, size_t inside);

/* ---- Squared error ----------------------------------------------------------------------------------------------- */

/* The bins that are not empty. */
struct squared_error {
    size_t bins, used;           /* of the histogram; not empty */
    const float *centre, *count; /* [used] */
};

struct squared_error qobs_squared_error_prepare(const struct histogram_view *h, float *workspace);

/* The mean over all bins of count * (quantized centre - centre)^2: terms in float, their sum in double. q->centres
 * says how centres are quantized; only CENTRES_TORCH uses the formula. QOBS_ERROR_NO_RESULT: upstream has no scale for
 * amax. */
int qobs_squared_error(const struct squared_error *e, const struct bins_params *q, const struct formula *formula,
                       float amax, double *mean, qobs_error *error);

/* (edges[bin + 1] + edges[bin]) / 2 in float. */
float qobs_bin_centre(const struct histogram_view *h, size_t bin);

/* ---- Non-linear search ------------------------------------------------------------------------------------------- */

/* torch.ao's HistogramObserver: clips 1e-5 of the elements at a time from either side, as long as the squared error
 * falls. Elements are taken to be spread evenly over their bins and quantized to `numbers` numbers. Returns the error
 * of the range; NaN if max - min overflows float. The workspace has 3 floats a bin. */
double qobs_non_linear_search(const float *counts, size_t bins, float min, float max, double numbers, float *workspace,
                              float *new_min, float *new_max);

/* ---- Methods with checked parameters ----------------------------------------------------------------------------- */

struct found_amax {
    float amax;
    double score; /* that of the candidate: the mean squared error, or the divergence */
};

/* These check params->stride and start_bin. */
typedef int amax_finder(const struct bins_params *params, const struct formula *formula, const struct histogram_view *h,
                        double *workspace, struct found_amax *found, qobs_error *error);
amax_finder qobs_amax_by_entropy, qobs_amax_by_mse;

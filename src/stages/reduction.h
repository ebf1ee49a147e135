/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The reduction stage: what is measured of one batch for every qparam. */
#pragma once

#include "base/runtime.h"
#include "kernels/kernels.h"
#include "qobs/plan.h"

/* The treatment of NaN and infinite elements in a batch. */
enum nonfinite_mode {
    NONFINITE_REFUSE,
    NONFINITE_IGNORE,
    NONFINITE_PROPAGATE,
    NONFINITE_REFUSE_NAN /* histograms leave infinities out as upstream does, so PROPAGATE is the same for them */
};

/* Writes plan->qparams elements of the plan's dtype to min and to max; data is laid out as the plan's value. NaN and
 * infinities are counted. `mode` says if they fail with a message (min and max are then undefined), are left out, or
 * propagate as in torch.amin and torch.amax. A qparam without elements gets [0, 0]. Runs on the runtime's executor. */
typedef int reduce_fn(const struct runtime *runtime, const struct kernel_table *kernels, const qobs_plan *plan,
                      const unsigned char *data, enum nonfinite_mode mode, void *min, void *max,
                      struct nonfinite_count *nonfinite, qobs_error *error);

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

struct batch;     /* histogram/collect.h */
struct histogram; /* histogram/histogram.h */
struct histogram_rule;
struct bin_range;
struct extrema;

struct histogram_params {
    size_t bins;               /* of the first batch */
    bool magnitude;            /* elements are binned by their magnitude */
    bool skip_zeros;           /* zeros are not counted */
    bool float32_counts;       /* sums of counts are rounded to float32, as upstream's; counts of a batch end at 2^24 */
    bool shifted_counts;       /* old counts move with their bins if bins are added below them; upstream's do not */
    int64_t block_size;        /* elements along the last dimension whose magnitudes are binned by their logarithm */
    double log2_min, log2_max; /* the range of these logarithms */
    enum nonfinite_mode nonfinite;
};

/* Adds mass over the range `now` to mass over the range `next`. */
typedef void rebin_fn(const struct histogram_params *params, const struct bin_range *now, size_t bins,
                      const double *mass, const struct bin_range *next, size_t next_bins, double *next_mass);

struct histogram_ops {
    /* Adds a batch to *h, which may be empty (bins 0), and writes its extrema; a qparam without elements has infinity
     * and -infinity. After a failure *h is as it was. */
    int (*accept)(const struct histogram_rule *rule, const struct batch *batch, struct histogram *h, float *min,
                  float *max, struct nonfinite_count *nonfinite, qobs_error *error);
    /* Adds `from`, of as many qparams, to *h, over the ranges that hold both. After a failure *h is valid but of no
     * use. */
    int (*merge)(const struct histogram_rule *rule, const struct runtime *runtime, struct histogram *h,
                 const struct histogram *from, qobs_error *error);
    bool ranges_are_results; /* the extremes of the elements are results, too */
    bool integer_counts;     /* counts are a result as integers */
    bool stores_edges;       /* the edges do not follow from the range */

    /* The rest is for qobs_histogram_accept and qobs_histogram_merge. */

    /* The extrema that the histogram has to hold because of a batch with these extrema; NULL: the same. */
    struct extrema (*required_range)(const struct histogram_params *params, size_t bins, const struct extrema *extrema);
    /* The range and number of bins that hold `now`, which may be empty, and `extrema`, which are not inside. Fails if
     * there would be too many bins. Only a histogram of one qparam may change its number of bins. */
    int (*grow)(const struct histogram_params *params, const struct bin_range *now, size_t bins,
                const struct extrema *extrema, struct bin_range *next, size_t *next_bins, qobs_error *error);
    bool same_bins; /* grow never changes the number of bins */
    /* Adds mass over `now` to mass over `next`, which is 0: `move` for a histogram that has grown, `rebin` for that of
     * another observer. */
    rebin_fn *move, *rebin;
};

struct histogram_rule {
    const struct histogram_ops *ops; /* NULL: no histogram */
    struct histogram_params params;
};

/* ---- The stage --------------------------------------------------------------------------------------------------- */

struct reduction;

/* Writes the range of every qparam of the plan to min and max, in the dtype of qobs_reduced_dtype. A histogram
 * accepts the batch as well. After a failure the histogram is as it was, min and max are undefined. NULL: nothing is
 * measured. */
struct reduction_ops {
    int (*measure)(const struct reduction *reduction, const struct batch *batch, struct histogram *histogram, void *min,
                   void *max, struct nonfinite_count *nonfinite, qobs_error *error);
    reduce_fn *reduce;                     /* of a reduction to minimum and maximum or to magnitudes */
    bool magnitudes;                       /* means: those of magnitudes */
    const struct histogram_ops *histogram; /* NULL: none */
    bool f64_in_f32;                       /* ranges of F64 are F32 */
};

struct reduction {
    const struct reduction_ops *ops;
    enum nonfinite_mode nonfinite;
    bool in_f32;                     /* ranges are F32 whatever the dtype of the batch */
    bool in_f64;                     /* they are F64, of elements converted to F32 */
    bool f64_in_f32;                 /* those of F64 are */
    size_t numbers;                  /* thresholds by divergence: quantized magnitudes; 0: by deviation */
    struct histogram_rule histogram; /* ops NULL: there is no histogram */
};

/* The dtype of ranges of batches of that dtype. */
static inline qobs_dtype qobs_reduced_dtype(const struct reduction *reduction, qobs_dtype dtype)
{
    const bool in_f32 = reduction->in_f32 || (reduction->f64_in_f32 && dtype == QOBS_F64);
    return in_f32 ? QOBS_F32 : reduction->in_f64 ? QOBS_F64 : dtype;
}

/* True if elements of that dtype are converted to F32. */
static inline bool qobs_reduces_as_f32(const struct reduction *reduction, qobs_dtype dtype)
{
    return dtype != QOBS_F32 && (reduction->in_f64 || qobs_reduced_dtype(reduction, dtype) == QOBS_F32);
}

extern const struct reduction_ops qobs_reduction_none;       /* batches are only counted */
extern const struct reduction_ops qobs_reduction_minmax;     /* minimum and maximum */
extern const struct reduction_ops qobs_reduction_absmax;     /* (-m, m) for the largest magnitude m */
extern const struct reduction_ops qobs_reduction_absmax_f32; /* the same; F64 is rounded to F32 */
/* A histogram, and the range of its elements. */
extern const struct reduction_ops qobs_reduction_histogram_torch, qobs_reduction_histogram_quark,
    qobs_reduction_histogram_modelopt, qobs_reduction_histogram_ort, qobs_reduction_histogram_log2;
extern const struct reduction_ops qobs_reduction_tqt;            /* (-threshold, threshold) */
extern const struct reduction_ops qobs_reduction_mean;           /* (mean, mean) */
extern const struct reduction_ops qobs_reduction_mean_magnitude; /* (-mean, mean) of magnitudes */

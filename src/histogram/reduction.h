/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The reduction stage: what is measured of one batch for every qparam. */
#pragma once

#include "histogram/histogram.h"

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
    bool f64_in_f32; /* ranges of F64 are F32 */
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

extern const struct reduction_ops qobs_reduction_none;   /* batches are only counted */
extern const struct reduction_ops qobs_reduction_minmax; /* minimum and maximum */
extern const struct reduction_ops qobs_reduction_absmax; /* (-m, m) for the largest magnitude m */
extern const struct reduction_ops qobs_reduction_absmax_f32; /* the same; F64 is rounded to F32 */
/* A histogram, and the range of its elements. */
extern const struct reduction_ops qobs_reduction_histogram_torch, qobs_reduction_histogram_quark,
    qobs_reduction_histogram_modelopt, qobs_reduction_histogram_ort, qobs_reduction_histogram_log2;
extern const struct reduction_ops qobs_reduction_tqt;            /* (-threshold, threshold) */
extern const struct reduction_ops qobs_reduction_mean;           /* (mean, mean) */
extern const struct reduction_ops qobs_reduction_mean_magnitude; /* (-mean, mean) of magnitudes */

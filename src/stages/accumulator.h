/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The accumulator stage: how the ranges of a batch are combined with those of the batches before. */
#pragma once

#include "qobs/qobs.h"

/* n accumulated ranges (min, max) and those of a batch, all of one dtype. `first`: there is no state yet, and (min,
 * max) are the same memory as the batch's. */
struct range_update {
    qobs_dtype dtype;
    size_t n;
    void *min, *max;
    const void *batch_min, *batch_max;
    bool first;
    uint64_t batches; /* before this one */
};

enum { BFP_EMAX = 6 }; /* block floating point: exponent of the largest element under a scale of 1 */

/* How the ranges of several observers become one. */
enum merge_rule {
    MERGE_LAST,     /* the observer's own stay */
    MERGE_EXTREMES, /* the smallest minimum and the largest maximum */
    MERGE_MEANS     /* the mean of the minima and of the maxima */
};

struct accumulator_params {
    double averaging_constant; /* weight of the batch in a moving average */
    qobs_dtype scale_dtype;    /* block floating point: of the scale; 0: that of the ranges */
};

struct accumulator_ops {
    /* Not called for the first batch unless ranges are symmetric; NULL: the batch stays as it is. */
    void (*update)(const struct accumulator_params *params, const struct range_update *update);
    enum merge_rule merge;
    bool symmetric;   /* ranges are (-amax, amax) */
    bool counts_mode; /* counts which scales the batches give; the most frequent one is the result */
    bool averages;    /* reads averaging_constant */
    bool replaces;    /* the state is the last batch */
};

struct accumulator {
    const struct accumulator_ops *ops;
    struct accumulator_params params;
    enum merge_rule merge;
    bool replaces;           /* every batch replaces the state */
    bool restarts;           /* a batch of another shape replaces the state instead of being refused */
    bool starts_in_f32;      /* f64 ranges of the first batch are rounded to f32, as in Quark's buffers */
    bool skips_first_groups; /* llm-compressor of September 2025, mse: the ranges of a tensor, of channels and of the
                              * first group of each row are looked up under a name they are not stored by, so the batch
                              * replaces them */
};

void qobs_accumulate(const struct accumulator *accumulator, const struct range_update *update);

extern const struct accumulator_ops qobs_accumulate_last;           /* the last batch */
extern const struct accumulator_ops qobs_accumulate_extremes;       /* the extremes of all batches */
extern const struct accumulator_ops qobs_accumulate_lerp;           /* min * (1 - c) + batch * c, llm-compressor */
extern const struct accumulator_ops qobs_accumulate_moving_average; /* min + c * (batch - min), torch.ao */
extern const struct accumulator_ops qobs_accumulate_running_mean;   /* the mean of all batches */
extern const struct accumulator_ops qobs_accumulate_mode;           /* the extremes, and the most frequent scale */
extern const struct accumulator_ops qobs_accumulate_absmax;         /* the largest magnitude of all batches */
extern const struct accumulator_ops qobs_accumulate_absmax_last;    /* that of the last batch */
extern const struct accumulator_ops qobs_accumulate_absmax_first;   /* that of the first batch */
extern const struct accumulator_ops qobs_accumulate_bfp; /* the largest magnitude, doubled if an element does not fit */

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The accumulator stage: how the ranges of a batch are combined with those of the batches before. The arithmetic on
 * single elements is in accumulate.inl.h. */
#pragma once

#include "base/runtime.h"
#include "base/tensor.h"
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

/* The arithmetic of accumulators: a batch's ranges (lo, hi) update the accumulated ranges (min, max), n of each, all of
 * one dtype. */

/* min(min, lo), max(max, hi). NaN on either side stays, as in torch.min and torch.max. (min, max) are `step` elements
 * apart. */
void qobs_update_running(qobs_dtype dtype, size_t n, ptrdiff_t step, void *min, void *max, const void *lo,
                         const void *hi);

/* (-m, m) for the largest magnitude m of (min, max) and (lo, hi). NaN stays. `first`: only (lo, hi) count, which may
 * then be the same memory as (min, max). */
void qobs_update_absmax(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, bool first);

/* The mode, or most frequent value, of the scales and zero points of all batches: the result of Quark's power-of-two
 * observers. The earliest of equally frequent candidates is the mode. All channels of a batch together are one
 * candidate. */

struct mode_count {
    size_t n; /* scales, and zero points, of a candidate */
    size_t candidates;
    size_t workspace;      /* candidates there is memory for */
    uint64_t *count;       /* [workspace] batches that gave a candidate */
    unsigned char *values; /* [workspace] n scales, then n zero points, 4 bytes each */
};

/* The scales and the zero points of candidate i. */
unsigned char *qobs_mode_scale(const struct mode_count *mode_count, size_t i);
unsigned char *qobs_mode_zero_point(const struct mode_count *mode_count, size_t i);

/* Memory for that many more candidates of n scales each, so that qobs_mode_add cannot fail. */
int qobs_mode_reserve(const struct runtime *runtime, struct mode_count *mode_count, size_t n, size_t more,
                      qobs_error *error);

/* Adds `count` to the frequency of the values that have been written to candidate mode_count->candidates. */
void qobs_mode_add(struct mode_count *mode_count, uint64_t count);

/* Copies the mode's scales and zero points. Either may be NULL; there is at least one candidate. */
void qobs_mode_read(const struct mode_count *mode_count, void *scale, void *zero_point);

void qobs_mode_release(const struct runtime *runtime, struct mode_count *mode_count);

/* How many tokens a value has. */

/* llm-compressor's record_observed_tokens: the rows of a matrix; other tensors have no tokens. */
uint64_t qobs_tokens(const struct view *value);

/* AMD Quark's count: rows along the last dimension with an element other than 0. */
uint64_t qobs_nonzero_tokens(const struct view *value);

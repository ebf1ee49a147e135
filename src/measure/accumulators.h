/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The parts of accumulators. The arithmetic on single elements is in accumulate.inl.h. */
#pragma once

#include "base/runtime.h"
#include "base/tensor.h"
#include "stages/accumulator.h"

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

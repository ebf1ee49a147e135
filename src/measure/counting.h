/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What one thread counts of a batch; which part of the batch that is, collect.c says. */
#ifndef QOBS_STATISTIC_COUNTING_H
#define QOBS_STATISTIC_COUNTING_H

#include "measure/histogram.h"
#include "plan/loops.h"

/* A batch, the same for all threads. */
struct counting_job {
    const struct runtime *runtime;
    const struct qobs_kernels *kernels;
    const qobs_plan *plan;
    const unsigned char *data;
    const struct qobs_binning *binning;
    enum qobs_kernel_dtype dtype;
    qobs_histogram_rows_fn *rows;
    size_t element, bins;
    bool stops; /* counting, once an element lies outside */
};

/* Where one thread counts. */
struct counting {
    const struct counting_job *job;
    uint64_t *counts;
    struct qobs_extrema *seen;
    uint32_t *counters; /* of counters_size(bins), all 0 between qparams */
    uint64_t pending;   /* elements in them */
    bool stopped;
};

static inline size_t counters_size(size_t bins)
{
    return QOBS_COUNTER_COPIES * qobs_counter_stride(bins) * sizeof(uint32_t);
}

static inline void merge_seen(struct qobs_extrema *to, const struct qobs_extrema *from)
{
    to->min = from->min < to->min ? from->min : to->min;
    to->max = from->max > to->max ? from->max : to->max;
    to->nonfinite.nan += from->nonfinite.nan;
    to->nonfinite.inf += from->nonfinite.inf;
}

/* Adds everything the nest covers to counts and seen. */
void qobs_count_nest(struct counting *c, const struct loops *nest);

/* The same for a whole plan, run by run: where g_idx orders the columns or zeros pad blocks. */
void qobs_count_each_run(struct counting *c);

/* The same for n contiguous elements at x of the only qparam of a job that stops, whose binning widens; then counts are of the last
 * one. Fails where widening does. */
int qobs_count_widening(struct counting *c, struct qobs_widening *w, const unsigned char *x, int64_t n, qobs_error *error);

#endif

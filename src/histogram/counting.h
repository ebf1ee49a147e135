/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Counting by one thread. collect.c says which part of a batch that is. */
#pragma once

#include "histogram/binning.h"
#include "plan/loops.h"

/* A batch and what reads it. */
struct batch {
    const struct runtime *runtime;
    const struct kernel_table *kernels;
    const qobs_plan *plan;
    const unsigned char *data; /* of the plan's value */
};

/* A range that may grow while a batch is counted. */
struct growing_range {
    float min, max;
    bool expected; /* to grow */
    /* Sets min, max and the binning to what holds the extrema found so far. */
    int (*grow)(struct growing_range *range, qobs_error *error);
};

/* A batch and its binnings, the same for all threads. */
struct counting_job {
    struct batch batch;
    const struct binning *binning; /* [qparams] */
    enum kernel_dtype dtype;
    qobs_histogram_rows_fn *rows;
    size_t element; /* bytes */
    size_t bins;
    bool stops; /* counting, once an element is outside its binning */
};

/* The counters of one thread. */
struct counting {
    const struct counting_job *job;
    uint64_t *counts;        /* [qparams * bins] */
    struct extrema *extrema; /* [qparams] */
    uint32_t *counters;      /* counters_size(bins) bytes, all 0 between qparams */
    uint64_t pending;        /* elements in the counters */
    bool stopped;
};

static inline size_t counters_size(size_t bins)
{
    return QOBS_COUNTER_COPIES * qobs_counter_stride(bins) * sizeof(uint32_t);
}

/* Adds all elements of the loops to counts and extrema. */
void qobs_count_loops(struct counting *c, const struct loops *loops);

/* Adds all elements of the plan, run by run: for plans with g_idx or with padded blocks. */
void qobs_count_each_run(struct counting *c);

/* Adds n contiguous elements at x, all of the only qparam. The job stops, and its binning changes if `range` grows; the
 * counts are those under the last binning. Fails if growing does. */
int qobs_count_growing(struct counting *c, struct growing_range *range, const unsigned char *x, int64_t n,
                       qobs_error *error);

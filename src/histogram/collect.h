/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The histogram, or the extrema, of one batch for every qparam of its plan. Work runs on the runtime's executor;
 * results do not depend on it. Memory is a few arrays of `bins` counters for each thread. */
#pragma once

#include "histogram/binning.h"
#include "measure/reduce.h"
#include "plan/loops.h"

/* Counting by one thread. collect.c says which part of a batch that is. */

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

/* Counts the elements of qparam q under binning[q] into counts[q * bins] and writes their extrema to extrema[q]. All
 * binnings have the same number of bins. Zeros that pad a block count. `stopped` may be NULL. Otherwise counting stops
 * once an element is outside its binning; *stopped is then true and the counts are invalid, but the extrema are those
 * of all elements. */
int qobs_collect(const struct batch *batch, const struct binning *binning, uint64_t *counts, struct extrema *extrema,
                 bool *stopped, qobs_error *error);

/* The same for a batch of one qparam under the range that holds all of it, found in the same pass. `binning` is what
 * range->grow changes, except for the number of bins. *counted is false, and nothing is done, if the batch is not one
 * run of contiguous elements or is to be split over threads. */
int qobs_collect_growing(const struct batch *batch, struct growing_range *range, const struct binning *binning,
                         uint64_t *counts, struct extrema *extrema, bool *counted, qobs_error *error);

/* The extrema without counts, which is faster. */
int qobs_scan_extrema(const struct batch *batch, bool magnitude, bool skip_zeros, struct extrema *extrema,
                      qobs_error *error);

/* Sums up the NaN and infinities of all qparams. Fails, and names the place of the first, if there are any that `mode`
 * does not allow. */
int qobs_check_extrema(const struct batch *batch, enum nonfinite_mode mode, const struct extrema *extrema,
                       struct nonfinite_count *nonfinite, qobs_error *error);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A loop nest over memory whose innermost loops are one kernel call. Every granularity comes down to this: each dimension has
 * a stride in the input and one in the outputs, 0 where it is reduced. */
#ifndef QOBS_STATISTIC_NEST_H
#define QOBS_STATISTIC_NEST_H

#include "kernels/kernels.h"
#include "plan/plan.h"

struct nest_dimension {
    int64_t extent;
    int64_t in;  /* bytes */
    int64_t out; /* elements of min and max; 0: reduced */
};

struct nest {
    const unsigned char *base;
    int64_t out; /* index of the first output */
    int dimensions;
    struct nest_dimension dimension[MAX_AXES]; /* outermost first */
};

/* One of the rectangles of a plan as a nest. False: there is nothing for these `ends`. */
bool qobs_nest_of_plan(const qobs_plan *plan, const unsigned char *data, unsigned ends, struct nest *nest);

/* Sorts by stride, turns negative strides around and joins what is contiguous. Order of evaluation is free: minimum and maximum
 * do not depend on it. */
void qobs_nest_normalise(struct nest *nest);

/* Merges everything the nest covers into min and max; where min is NULL its magnitudes into max, which holds no sign. scratch:
 * qobs_nest_scratch bytes, magnitudes: for a min of NULL; NULL: some nests take longer. */
size_t qobs_nest_scratch(const struct nest *nest, size_t element, bool magnitudes);
void qobs_nest_minmax(const struct nest *nest, const struct qobs_kernels *kernels, enum qobs_kernel_dtype dtype,
                      size_t element, void *scratch, unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite);

#endif

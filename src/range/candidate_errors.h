/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Squared errors of candidate scales for every qparam of a plan: what Quark's and Model-Optimizer's searches have in common.
 * Each batch is searched while it is there, so that nothing of it needs to be kept. */
#ifndef QOBS_SEARCH_CANDIDATES_H
#define QOBS_SEARCH_CANDIDATES_H

#include "plan/plan.h"
#include "kernels/kernels.h"

enum { MOST_CANDIDATES = 512 };

struct candidates {
    size_t count;          /* 1 to MOST_CANDIDATES, the same for all */
    bool ignore_nonfinite; /* such elements count as 0; otherwise they make the errors of their qparam NaN */
    const float *weight; /* of an element's error, one for each index of the last axis of a qparam's elements; NULL: all 1 */
    void *argument;
    /* The scales of a qparam's candidates, and what its elements are quantized to, in compressed-tensors' way and without
     * zero points. Any thread. */
    void (*prepare)(void *argument, size_t qparam, struct qobs_quantizer *quantizer, float *scale);
    /* Instead, where upstream multiplies by a float that is no reciprocal of one: what x is multiplied by before it is
     * rounded, and what by after. */
    void (*prepare_factors)(void *argument, size_t qparam, struct qobs_quantizer *quantizer, float *up, double *down);
    /* Takes sum (quantized x - x)^2 over the qparam's elements for each candidate. Any thread, each qparam once. */
    void (*take)(void *argument, size_t qparam, const double *error);
};

/* How many doubles of room the search needs: for partial sums where there are few qparams. */
size_t qobs_candidates_workspace(const qobs_plan *plan, size_t count);

/* Runs on the runtime's executor; the errors depend neither on it nor on strides. */
void qobs_candidates_search(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                            const unsigned char *data, const struct candidates *candidates, double *workspace);

#endif

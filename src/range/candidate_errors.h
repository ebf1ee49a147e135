/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Squared errors of candidate scales for every qparam of a plan. Quark's and Model-Optimizer's searches are callbacks
 * of it. Each batch is searched while it is in memory; no element is stored. */
#pragma once

#include "range/range_rule.h"

enum { MAX_CANDIDATES = 512 };

/* Callbacks run on any thread, each once for a qparam. */
struct candidates {
    size_t count; /* 1 to MAX_CANDIDATES, the same for all qparams */
    void *argument;
    /* Writes the numbers that a qparam is quantized to and its candidate scales, in compressed-tensors' arithmetic
     * without zero points. Used if prepare_factors is NULL. */
    void (*prepare)(void *argument, size_t qparam, struct quantizer *quantizer, float *scale);
    /* Writes factors instead of scales: x is multiplied by `up` before rounding and by `down` after it. */
    void (*prepare_factors)(void *argument, size_t qparam, struct quantizer *quantizer, float *up, double *down);
    /* Receives sum weight * (quantized x - x)^2 over the qparam's elements for each candidate. If the batch has a gram,
     * receives e^T H e of all its blocks; scales are then those of e2m1. */
    void (*store)(void *argument, size_t qparam, const double *error);
};

/* The workspace in doubles: partial sums, if there are few qparams. hessian_block: columns of a block of the Hessian,
 * whose errors go together; 0: there is none. */
size_t qobs_candidates_workspace(const qobs_plan *plan, size_t count, int64_t hessian_block);

/* Runs on the batch's executor. Errors do not depend on the number of threads or on strides. With NONFINITE_IGNORE
 * elements that are not finite count as 0; else they make the errors of their qparam NaN. */
void qobs_candidates_search(const struct search_batch *batch, const struct search_state *state,
                            const struct candidates *candidates, double *workspace);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The searches of AMD Quark's observers (PerTensorPowOf2MinMSEObserver, PerChannelPowOf2MinMSEObserver,
 * PerBlockMXDiffsObserver): a base scale and a few powers of two around it, squared errors on the batch that has just been
 * observed. */
#ifndef QOBS_SEARCH_QUARK_H
#define QOBS_SEARCH_QUARK_H

#include "plan/plan.h"
#include "range/range_rule.h"

enum { POWERS_AROUND = 5 }; /* 4 times the base, twice, the base, half, a quarter */

/* How many doubles of room the two searches need. */
size_t qobs_search_powers_workspace(const qobs_plan *plan);
size_t qobs_search_blocks_workspace(const qobs_plan *plan, const struct range_params *params);

/* scale holds a power of two for each qparam of the plan and zero_point (float per tensor, int32 per channel) what goes with
 * it; all scales are multiplied by the one factor whose error, over all elements together, is least; the first of several.
 * error receives those of all factors. Returns the factor's index; where every error is NaN or infinite scales stay. */
int qobs_search_powers(const struct runtime *runtime, const struct qobs_kernels *kernels, const struct range_params *params,
                       const qobs_plan *plan, const unsigned char *data, float *scale, const void *zero_point, double *workspace,
                       double error[POWERS_AROUND]);

/* For every block, whose largest magnitude so far is in amax, in the plan's dtype: the steps by which the exponent of
 * 2^(ceil(log2(amax)) - emax) is lowered for the least error, 0 to `scope`, into best_step, with its error and that of step
 * 0. An error is NaN where every step's is. */
void qobs_search_blocks(const struct runtime *runtime, const struct qobs_kernels *kernels, const struct range_params *params,
                        const qobs_plan *plan, const unsigned char *data, const void *amax, double *workspace, int32_t *best_step,
                        double *error, double *error_before);

#endif

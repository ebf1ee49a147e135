/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum, or the largest magnitude, of one batch for every qparam of a plan. */
#pragma once

#include "kernels/kernels.h"
#include "plan/loops.h"
#include "plan/plan.h"
#include "qobs/plan.h"

/* The treatment of NaN and infinite elements in a batch. */

enum nonfinite_mode {
    NONFINITE_REFUSE,
    NONFINITE_IGNORE,
    NONFINITE_PROPAGATE,
    NONFINITE_REFUSE_NAN /* histograms leave infinities out as upstream does, so PROPAGATE is the same for them */
};

/* Minimum and maximum of nested loops over memory: chooses the kernel for the innermost loops and walks the others. */

/* Merges everything the loops cover into min and max, which are indexed by qparam. The loops are normalised by input.
 * If min is NULL, the magnitudes are merged into max, which holds no sign. scratch: qobs_minmax_scratch bytes, where
 * `magnitudes` says that min is NULL; without scratch (NULL) some loops take longer. */
size_t qobs_minmax_scratch(const struct loops *loops, size_t element, bool magnitudes);
void qobs_minmax_loops(const struct loops *loops, const struct kernel_table *kernels, enum kernel_dtype dtype,
                       size_t element, void *scratch, unsigned char *min, unsigned char *max,
                       struct nonfinite_count *nonfinite);

/* Sets n ranges to what merging changes: infinity and -infinity, or, if min is NULL, magnitudes of 0. */
void qobs_fill_identities(enum kernel_dtype dtype, size_t element, size_t n, void *min, void *max);

/* Writes plan->qparams elements of the plan's dtype to min and to max; data is laid out as the plan's value. NaN and
 * infinities are counted. `mode` says if they fail with a message (min and max are then undefined), are left out, or
 * propagate as in torch.amin and torch.amax. A qparam without elements gets [0, 0]. Runs on the runtime's executor. */
typedef int reduce_fn(const struct runtime *runtime, const struct kernel_table *kernels, const qobs_plan *plan,
                      const unsigned char *data, enum nonfinite_mode mode, void *min, void *max,
                      struct nonfinite_count *nonfinite, qobs_error *error);
reduce_fn qobs_reduce_minmax;

/* Does the same with (-m, m) for the largest magnitude m; faster. The plan has no g_idx. */
reduce_fn qobs_reduce_absmax;

/* Fails with the counts and the position of the first NaN or, if `infinities`, of the first element that is not finite.
 */
int qobs_fail_nonfinite(const qobs_plan *plan, const unsigned char *data, const struct nonfinite_count *counted,
                        bool infinities, qobs_error *error);

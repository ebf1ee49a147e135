/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum, or the largest magnitude, of one batch for every qparam of a plan. */
#pragma once

#include "kernels/kernels.h"
#include "plan/plan.h"
#include "qobs/plan.h"
#include "reduce/nonfinite.h"

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

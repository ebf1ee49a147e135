/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum, or the largest magnitude, of one batch for every qparam of a plan: strides to kernels. */
#ifndef QOBS_STATISTIC_REDUCE_H
#define QOBS_STATISTIC_REDUCE_H

#include "kernels/kernels.h"
#include "measure/nonfinite.h"
#include "plan/plan.h"

/* Writes plan->qparams elements of the plan's dtype to min and max each; data is what the plan's value stands for. NaN and
 * infinity are counted as `mode` asks for: refused with a message (min and max are then undefined), left out, or
 * propagated as torch.amin and torch.amax do. A qparam left without any element is (0, 0). Runs on the runtime's executor. */
int qobs_reduce_minmax(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                       const unsigned char *data, enum nonfinite_mode mode, void *min, void *max,
                       struct qobs_nonfinite *nonfinite, qobs_error *error);

/* The same with (-m, m) for the largest magnitude m, which takes less reading; for a plan without an order (no g_idx). */
int qobs_reduce_absmax(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                       const unsigned char *data, enum nonfinite_mode mode, void *min, void *max,
                       struct qobs_nonfinite *nonfinite, qobs_error *error);

/* Fails for what was counted, and says where the first NaN or, if `infinities`, the first element that is not finite is. */
int qobs_fail_nonfinite(const qobs_plan *plan, const unsigned char *data, const struct qobs_nonfinite *counted, bool infinities,
                qobs_error *error);

#endif

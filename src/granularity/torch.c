/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torch.ao's observers: per tensor, everything is reduced and the scale has shape (1,). */
#include "granularity/plan.h"

int qobs_flatten_torch(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    (void)config;
    (void)error;
    qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
    for (int i = 0; i < plan->value.ndim; i++)
        qobs_plan_add_axis(plan, AXIS_GROUP, plan->value.shape[i], plan->value.strides[i]);
    return QOBS_OK;
}

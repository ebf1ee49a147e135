/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torch.ao's observers: per tensor, everything is reduced to a 0-dimensional range; per channel, everything but
 * ch_axis. */
#include "base/error.h"
#include "plan/make_plan.h"

static int flatten_tensor(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    (void)error;
    qobs_plan_add_global(plan);
    if (params->scalar_scale)
        plan->scale = (struct shape){.ndim = 0};
    return QOBS_OK;
}

static int flatten_channel(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    if (plan->value.ndim < 2)
        return qobs_invalid(error, "value: has %d dimensions, %s needs at least 2", plan->value.ndim, params->name);
    const int axis = qobs_plan_find_ch_axis(plan, params->ch_axis, error);
    if (axis < 0)
        return QOBS_ERROR_INVALID_ARGUMENT;
    qobs_plan_add_dimension(plan, AXIS_QPARAM, axis);
    for (int i = 0; i < plan->value.ndim; i++)
        if (i != axis)
            qobs_plan_add_dimension(plan, AXIS_GROUP, i);
    return QOBS_OK;
}

static bool all_shared(const struct granularity_params *p, int64_t *rows, int64_t *columns)
{
    (void)p;
    *rows = *columns = 0;
    return true;
}

static bool row_shared(const struct granularity_params *p, int64_t *rows, int64_t *columns)
{
    *columns = 0;
    *rows = 1;
    return p->ch_axis == 0 || p->ch_axis == -2;
}

const struct granularity_ops qobs_granularity_tensor = {.flatten = flatten_tensor, .shared = all_shared};
const struct granularity_ops qobs_granularity_torch_channel = {.flatten = flatten_channel, .shared = row_shared};

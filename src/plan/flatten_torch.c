/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torch.ao's observers: per tensor, everything is reduced to a 0-dimensional range; per channel, everything but ch_axis. */
#include "base/error.h"
#include "plan/plan.h"

int qobs_flatten_tensor(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    (void)error;
    qobs_flatten_whole(plan);
    if (config->preset->family == FAMILY_QUARK)
        plan->scale = (struct shape){.ndim = 0};
    return QOBS_OK;
}

int qobs_flatten_torch_channel(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    const struct view *v = &plan->value;
    if (v->ndim < 2)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: has %d dimensions, %s needs at least 2", v->ndim,
                         config->preset->name);
    const int axis = config->ch_axis < 0 ? config->ch_axis + v->ndim : config->ch_axis;
    if (axis < 0 || axis >= v->ndim)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "ch_axis: is %d, value has dimensions %d to %d", config->ch_axis,
                         -v->ndim, v->ndim - 1);
    qobs_plan_add_axis(plan, AXIS_QPARAM, v->shape[axis], v->strides[axis]);
    for (int i = 0; i < v->ndim; i++)
        if (i != axis)
            qobs_plan_add_axis(plan, AXIS_GROUP, v->shape[i], v->strides[i]);
    return QOBS_OK;
}

int qobs_flatten_torch_qscheme(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    return qobs_config_has_channels(config) ? qobs_flatten_torch_channel(plan, config, error)
                                            : qobs_flatten_tensor(plan, config, error);
}

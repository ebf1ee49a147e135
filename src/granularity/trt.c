/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NVIDIA Model-Optimizer's calibrators: the axes named are kept, every other one is reduced to 1. A result of a single value has no
 * dimensions, and where all axes are kept upstream's list of those to reduce is empty, which to torch means all of them. */
#include "error.h"
#include "granularity/plan.h"

static int find_kept(const qobs_plan *plan, const qobs_config *config, bool kept[QOBS_MAX_NDIM], int *count, qobs_error *error)
{
    const int ndim = plan->value.ndim;
    for (int i = 0; i < config->axes.count; i++) {
        const int given = config->axes.axis[i], axis = given < 0 ? given + ndim : given;
        if (axis < 0 || axis >= ndim)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "axis: is %d, value has %d dimensions", given, ndim);
        *count += !kept[axis];
        kept[axis] = true;
    }
    return QOBS_OK;
}

int qobs_flatten_trt_axes(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    const struct view *v = &plan->value;
    bool kept[QOBS_MAX_NDIM] = {false};
    int count = 0;
    const int status = find_kept(plan, config, kept, &count, error);
    if (status != QOBS_OK)
        return status;
    if (count == 0 || count == v->ndim)
        return qobs_flatten_tensor(plan, config, error);
    int64_t values = 1;
    plan->range.ndim = v->ndim;
    for (int i = 0; i < v->ndim; i++) {
        plan->range.extent[i] = kept[i] ? v->shape[i] : 1;
        values *= plan->range.extent[i];
        if (kept[i])
            qobs_plan_add_axis(plan, AXIS_QPARAM, v->shape[i], v->strides[i]);
    }
    for (int i = 0; i < v->ndim; i++)
        if (!kept[i])
            qobs_plan_add_axis(plan, AXIS_GROUP, v->shape[i], v->strides[i]);
    if (values == 1)
        plan->range.ndim = 0;
    return QOBS_OK;
}

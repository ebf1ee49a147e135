/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Some dimensions kept, every other one reduced: torch's amin over a tuple of dimensions. */
#include "base/error.h"
#include "plan/plan.h"

int qobs_plan_find_kept(const qobs_plan *plan, const struct axes *axes, const char *name, bool kept[QOBS_MAX_NDIM], int *count,
                        qobs_error *error)
{
    const int ndim = plan->value.ndim;
    *count = 0;
    for (int i = 0; i < ndim; i++)
        kept[i] = false;
    for (int i = 0; i < axes->count; i++) {
        const int given = axes->axis[i], axis = given < 0 ? given + ndim : given;
        if (axis < 0 || axis >= ndim)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is %d, value has %d dimensions", name, given, ndim);
        *count += !kept[axis];
        kept[axis] = true;
    }
    return QOBS_OK;
}

void qobs_flatten_whole(qobs_plan *plan)
{
    plan->range = (struct shape){.ndim = 0};
    qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
    for (int i = 0; i < plan->value.ndim; i++)
        qobs_plan_add_axis(plan, AXIS_GROUP, plan->value.shape[i], plan->value.strides[i]);
}

void qobs_flatten_kept(qobs_plan *plan, const bool kept[QOBS_MAX_NDIM])
{
    const struct view *v = &plan->value;
    plan->range.ndim = v->ndim;
    for (int i = 0; i < v->ndim; i++) {
        plan->range.extent[i] = kept[i] ? v->shape[i] : 1;
        if (kept[i])
            qobs_plan_add_axis(plan, AXIS_QPARAM, v->shape[i], v->strides[i]);
    }
    for (int i = 0; i < v->ndim; i++)
        if (!kept[i])
            qobs_plan_add_axis(plan, AXIS_GROUP, v->shape[i], v->strides[i]);
}

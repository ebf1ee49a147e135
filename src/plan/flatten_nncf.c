/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NNCF: one range over the reduction axes, which stay as 1, or for each group along the only one, which becomes two
 * dimensions (reshape_weight_for_grouped_quantization in quantization/algorithms/weight_compression/
 * weight_lowering.py). */
#include "base/error.h"
#include "plan/make_plan.h"

static int flatten_groups(qobs_plan *plan, int axis, int64_t size, qobs_error *error)
{
    const struct view *v = &plan->value;
    RETURN_IF_FAILED(qobs_plan_check_divides(plan, "group_size: ", size, axis, error));
    if (v->ndim == QOBS_MAX_NDIM)
        return qobs_invalid(error, "value: its scale would have more than %d dimensions", QOBS_MAX_NDIM);
    for (int i = 0; i < v->ndim; i++) {
        const int64_t extent = i == axis ? v->shape[i] / size : v->shape[i];
        qobs_plan_add_axis(plan, AXIS_QPARAM, extent, i == axis ? size * v->strides[i] : v->strides[i]);
        plan->range.extent[i < axis ? i : i + (i > axis)] = extent;
    }
    qobs_plan_add_axis(plan, AXIS_GROUP, size, v->strides[axis]);
    plan->range.extent[axis + 1] = 1;
    plan->range.ndim = v->ndim + 1;
    return QOBS_OK;
}

static int flatten(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    unsigned reduced;
    int axis = plan->value.ndim - 1;
    RETURN_IF_FAILED(qobs_plan_find_axes(plan, &params->axes, "reduction_axes", &reduced, error));
    while (axis > 0 && !(reduced >> axis & 1))
        axis--;
    if (params->group_size < 0)
        qobs_plan_add_kept(plan, qobs_plan_all_axes(plan) & ~reduced);
    else
        RETURN_IF_FAILED(flatten_groups(plan, axis, params->group_size, error));
    plan->scale = plan->range;
    return QOBS_OK;
}

const struct granularity_ops qobs_granularity_nncf = {.flatten = flatten};

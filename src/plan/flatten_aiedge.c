/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ai-edge-quantizer: one range for the tensor or for each index of a dimension, with the others as 1, or for each block
 * along the last dimension (init_tensor_min_max in algorithms/uniform_quantize/common_quantize.py). */
#include "base/error.h"
#include "plan/make_plan.h"

static int flatten_blocks(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    const struct view *v = &plan->value;
    const int last = v->ndim - 1;
    if (v->ndim == 0 || v->shape[last] % params->block_size != 0)
        return qobs_invalid(error, "granularity: BLOCKWISE_%lld does not divide the last dimension of value, %lld",
                            (long long)params->block_size, v->ndim == 0 ? 1 : (long long)v->shape[last]);
    plan->range.ndim = v->ndim;
    for (int i = 0; i < last; i++) {
        plan->range.extent[i] = v->shape[i];
        qobs_plan_add_dimension(plan, AXIS_QPARAM, i);
    }
    plan->range.extent[last] = v->shape[last] / params->block_size;
    qobs_plan_add_groups(plan, last, params->block_size);
    plan->scale = plan->range;
    return QOBS_OK;
}

static int flatten(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    const int ndim = plan->value.ndim, given = params->ch_axis;
    const int axis = given < 0 ? given + ndim : given;
    bool kept[QOBS_MAX_NDIM] = {false};
    if (params->block_size > 0)
        return flatten_blocks(plan, params, error);
    if (!params->whole && (axis < 0 || axis >= ndim))
        return qobs_invalid(error, "quantized_dimension: is %d, value has %d dimensions", given, ndim);
    if (!params->whole)
        kept[axis] = true;
    if (params->whole)
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
    qobs_plan_add_kept(plan, kept);
    plan->scale = plan->range;
    return QOBS_OK;
}

const struct granularity_ops qobs_granularity_aiedge = {.flatten = flatten};

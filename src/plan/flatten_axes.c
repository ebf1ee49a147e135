/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer, ai-edge-quantizer and NNCF: dimensions are kept or reduced, and the last one may have groups. */
#include "plan/make_plan.h"

/* ---- Model-Optimizer --------------------------------------------------------------------------------------------- */

/* NVIDIA Model-Optimizer's calibrators: every axis that is not named is reduced to 1. A result of a single value has no
 * dimensions. If all axes are named, upstream's list of those to reduce is empty, and to torch an empty list means all
 * of them. */

static int flatten_axes(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    unsigned kept;
    int64_t values = 1;
    RETURN_IF_FAILED(qobs_plan_find_axes(plan, &params->axes, "axis", &kept, error));
    qobs_plan_add_kept_or_global(plan, kept);
    for (int i = 0; i < plan->range.ndim; i++)
        values *= plan->range.extent[i];
    if (values == 1)
        plan->range.ndim = 0;
    return QOBS_OK;
}

/* Runs of block_size along the last dimension; the results are one list. */
static int flatten_block(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    const struct view *v = &plan->value;
    const int last = v->ndim - 1;
    RETURN_IF_FAILED(qobs_plan_check_divides(plan, "block_size: ", params->block_size, last, error));
    int64_t blocks = v->shape[last] / params->block_size;
    for (int i = 0; i < last; i++)
        if (!qobs_multiply(blocks, v->shape[i], &blocks))
            return qobs_invalid(error, "value: has more than 2^63 blocks");
    qobs_plan_add_dimensions(plan, AXIS_QPARAM, 0, last);
    qobs_plan_add_groups(plan, last, params->block_size);
    plan->range = (struct shape){.ndim = 1, .extent = {blocks}};
    return QOBS_OK;
}

/* BiasCalibrator: the axes that are named are reduced, though its text says that they are kept. */
static int flatten_reduced(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    unsigned reduced;
    RETURN_IF_FAILED(qobs_plan_find_axes(plan, &params->axes, "axis", &reduced, error));
    if (reduced != 0 && reduced == qobs_plan_all_axes(plan)) /* dimensions stay, as 1 */
        qobs_plan_add_kept(plan, 0);
    else
        qobs_plan_add_kept_or_global(plan, qobs_plan_all_axes(plan) & ~reduced);
    return QOBS_OK;
}

const struct granularity_ops qobs_granularity_modelopt_axes = {.flatten = flatten_axes};
const struct granularity_ops qobs_granularity_modelopt_block = {.flatten = flatten_block};
const struct granularity_ops qobs_granularity_modelopt_reduced = {.flatten = flatten_reduced};

/* ---- ai-edge-quantizer ------------------------------------------------------------------------------------------- */

/* ai-edge-quantizer: one range for the tensor or for each index of a dimension, with the others as 1, or for each block
 * along the last dimension (init_tensor_min_max in algorithms/uniform_quantize/common_quantize.py). */

static int flatten_aiedge(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    const int last = plan->value.ndim - 1;
    int axis = 0;
    if (params->block_size > 0) {
        RETURN_IF_FAILED(qobs_plan_check_divides(plan, "granularity: BLOCKWISE_", params->block_size, last, error));
        qobs_plan_add_dimensions(plan, AXIS_QPARAM, 0, last);
        qobs_plan_add_groups(plan, last, params->block_size);
        return QOBS_OK;
    }
    if (!params->whole && (axis = qobs_plan_find_axis(plan, params->ch_axis, "quantized_dimension", error)) < 0)
        return QOBS_ERROR_INVALID_ARGUMENT;
    qobs_plan_add_kept(plan, params->whole ? 0 : 1u << axis);
    plan->scale = plan->range;
    return QOBS_OK;
}

const struct granularity_ops qobs_granularity_aiedge = {.flatten = flatten_aiedge};

/* ---- NNCF -------------------------------------------------------------------------------------------------------- */

/* NNCF: one range over the reduction axes, which stay as 1, or for each group along the only one, which becomes two
 * dimensions (reshape_weight_for_grouped_quantization in quantization/algorithms/weight_compression/
 * weight_lowering.py). */

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

static int flatten_nncf(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
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

const struct granularity_ops qobs_granularity_nncf = {.flatten = flatten_nncf};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NVIDIA Model-Optimizer's calibrators: every axis that is not named is reduced to 1. A result of a single value has no
 * dimensions. If all axes are named, upstream's list of those to reduce is empty, and to torch an empty list means all
 * of them. */
#include "base/error.h"
#include "plan/make_plan.h"

static int flatten_axes(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    bool kept[QOBS_MAX_NDIM] = {false};
    int count = 0;
    RETURN_IF_FAILED(qobs_plan_find_kept(plan, &params->axes, "axis", kept, &count, error));
    if (count == 0 || count == plan->value.ndim) {
        qobs_plan_add_global(plan);
        return QOBS_OK;
    }
    qobs_plan_add_kept(plan, kept);
    int64_t values = 1;
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
    if (v->ndim == 0 || v->shape[last] % params->block_size != 0)
        return qobs_invalid(error, "block_size: %lld does not divide the last dimension of value, %lld",
                            (long long)params->block_size, v->ndim == 0 ? 1 : (long long)v->shape[last]);
    int64_t blocks = v->shape[last] / params->block_size;
    for (int i = 0; i < last; i++) {
        qobs_plan_add_dimension(plan, AXIS_QPARAM, i);
        if (!qobs_multiply(blocks, v->shape[i], &blocks))
            return qobs_invalid(error, "value: has more than 2^63 blocks");
    }
    qobs_plan_add_groups(plan, last, params->block_size);
    plan->range = (struct shape){.ndim = 1, .extent = {blocks}};
    return QOBS_OK;
}

const struct granularity_ops qobs_granularity_modelopt_axes = {.flatten = flatten_axes};
const struct granularity_ops qobs_granularity_modelopt_block = {.flatten = flatten_block};

/* BiasCalibrator: the axes that are named are reduced, though its text says that they are kept. */
static int flatten_reduced(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    bool reduced[QOBS_MAX_NDIM] = {false}, kept[QOBS_MAX_NDIM];
    int count = 0;
    RETURN_IF_FAILED(qobs_plan_find_kept(plan, &params->axes, "axis", reduced, &count, error));
    for (int i = 0; i < plan->value.ndim; i++)
        kept[i] = !reduced[i];
    if (count > 0 && count < plan->value.ndim)
        qobs_plan_add_kept(plan, kept);
    else
        qobs_plan_add_global(plan);
    if (params->axes.count > 0 && count == plan->value.ndim) { /* dimensions stay, as 1 */
        plan->range.ndim = plan->value.ndim;
        for (int i = 0; i < plan->value.ndim; i++)
            plan->range.extent[i] = 1;
    }
    return QOBS_OK;
}

const struct granularity_ops qobs_granularity_modelopt_reduced = {.flatten = flatten_reduced};

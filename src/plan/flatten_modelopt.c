/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NVIDIA Model-Optimizer's calibrators: every axis that is not named is reduced to 1. A result of a single value has no
 * dimensions. If all axes are named, upstream's list of those to reduce is empty, and to torch an empty list means all
 * of them. */
#include "base/error.h"
#include "plan/make_plan.h"

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

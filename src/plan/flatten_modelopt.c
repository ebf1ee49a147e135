/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NVIDIA Model-Optimizer's calibrators: the axes named are kept, every other one is reduced to 1. A result of a single value has no
 * dimensions, and where all axes are kept upstream's list of those to reduce is empty, which to torch means all of them. */
#include "base/error.h"
#include "plan/plan.h"

int qobs_flatten_modelopt_axes(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    bool kept[QOBS_MAX_NDIM] = {false};
    int count = 0;
    const int status = qobs_plan_find_kept(plan, &config->axes, "axis", kept, &count, error);
    if (status != QOBS_OK)
        return status;
    if (count == 0 || count == plan->value.ndim) {
        qobs_flatten_whole(plan);
        return QOBS_OK;
    }
    qobs_flatten_kept(plan, kept);
    int64_t values = 1;
    for (int i = 0; i < plan->range.ndim; i++)
        values *= plan->range.extent[i];
    if (values == 1)
        plan->range.ndim = 0;
    return QOBS_OK;
}

/* Runs of block_size along the last dimension; the results are one list. */
int qobs_flatten_modelopt_block(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    const struct view *v = &plan->value;
    const int last = v->ndim - 1;
    if (v->ndim == 0 || v->shape[last] % config->block_size != 0)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "block_size: %lld does not divide the last dimension of value, %lld",
                         (long long)config->block_size, v->ndim == 0 ? 1 : (long long)v->shape[last]);
    int64_t blocks = v->shape[last] / config->block_size;
    for (int i = 0; i < last; i++) {
        qobs_plan_add_axis(plan, AXIS_QPARAM, v->shape[i], v->strides[i]);
        if (!qobs_multiply(blocks, v->shape[i], &blocks))
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: has more than 2^63 blocks");
    }
    const int outer = qobs_plan_add_outer(plan, v->shape[last], config->block_size, v->strides[last]);
    qobs_plan_add_inner(plan, outer, v->shape[last], config->block_size, v->strides[last]);
    plan->range = (struct shape){.ndim = 1, .extent = {blocks}};
    return QOBS_OK;
}

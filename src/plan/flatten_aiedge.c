/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ai-edge-quantizer: one range for the tensor or for each index of a dimension, with the others as 1, or for each block
 * along the last dimension (init_tensor_min_max in algorithms/uniform_quantize/common_quantize.py). */
#include "base/error.h"
#include "plan/make_plan.h"

static int flatten(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
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

const struct granularity_ops qobs_granularity_aiedge = {.flatten = flatten};

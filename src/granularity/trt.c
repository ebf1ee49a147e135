/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NVIDIA Model-Optimizer's calibrators: the axes named are kept, every other one is reduced to 1. A result of a single value has no
 * dimensions, and where all axes are kept upstream's list of those to reduce is empty, which to torch means all of them. */
#include "granularity/plan.h"

int qobs_flatten_trt_axes(qobs_plan *plan, const qobs_config *config, qobs_error *error)
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

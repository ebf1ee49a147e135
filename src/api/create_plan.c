/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The public constructor of plans: it checks the configuration and resolves its granularity. */
#include "base/error.h"
#include "config/stages.h"
#include "plan/make_plan.h"
#include "qobs/plan.h"

int qobs_plan_create(qobs_plan **result, const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                     const qobs_runtime *given, qobs_error *error)
{
    struct runtime runtime;
    struct granularity granularity;
    if (!result)
        return qobs_invalid(error, "plan: is NULL");
    RETURN_IF_FAILED(qobs_config_check(config, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, given, error));
    qobs_resolve_granularity(config, &granularity);
    return qobs_plan_new(result, &granularity, value, g_idx, &runtime, error);
}

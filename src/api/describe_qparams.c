/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The layout of qparams before any data is observed, and plans. */

#include "base/struct_size.h"
#include "observer/observer.h"
#include "plan/make_plan.h"
#include "qobs/stateless.h"

/* Asks an observer without state; false if it has no qparams. plan NULL: the preset looks at no tensor. */
static bool describe(const qobs_config *config, const qobs_plan *plan, const struct runtime *runtime,
                     qobs_qparam_layout *layout)
{
    qobs_observer o;
    qobs_observer_init(&o, config, runtime);
    if (plan)
        o.state.layout = qobs_layout_of(&o.stages, plan);
    qobs_dtype scale, zero_point;
    qobs_qparam_dtypes(&o, &o.state.layout, true, &scale, &zero_point);
    const struct shape shape = qobs_scale_shape(&o);
    memset(layout, 0, sizeof *layout);
    layout->count = 1;
    layout->scale_dtype = scale;
    layout->zero_point_dtype = zero_point;
    layout->ndim = shape.ndim;
    layout->has_global_scale = o.stages.traits.global != GLOBAL_NONE;
    for (int i = 0; i < shape.ndim; i++) {
        layout->shape[i] = shape.extent[i];
        layout->count *= (size_t)shape.extent[i];
    }
    layout->scale_size = layout->count * qobs_dtype_size(scale);
    layout->zero_point_size = layout->count * qobs_dtype_size(zero_point);
    return qobs_formula_has_qparams(&o.stages.formula);
}

int qobs_config_qparam_layout(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                              qobs_qparam_layout *layout, qobs_error *error)
{
    struct runtime runtime;
    qobs_plan *plan = NULL;
    qobs_qparam_layout own;
    qobs_tensor shaped;
    RETURN_IF_FAILED(out_check("layout", layout, SIZE_THROUGH(qobs_qparam_layout, has_global_scale), error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, NULL, error));
    RETURN_IF_FAILED(qobs_require(value, "value", error));
    RETURN_IF_FAILED(struct_size_check("value", value, SIZE_THROUGH(qobs_tensor, strides), sizeof shaped, error));
    memcpy(&shaped, value, sizeof shaped);
    shaped.struct_size = sizeof shaped;
    shaped.data = &shaped; /* not read; a caller need not have data yet */
    RETURN_IF_FAILED(qobs_config_check(config, error));
    if (qobs_preset_measures(config->preset))
        RETURN_IF_FAILED(qobs_plan_create(&plan, config, &shaped, g_idx, NULL, error));
    const bool has_qparams = describe(config, plan, &runtime, &own);
    qobs_plan_destroy(plan);
    if (!has_qparams)
        return qobs_invalid(error, "config: %s has no scale and zero point", qobs_config_preset(config));
    out_copy(layout, &own, sizeof own);
    return qobs_succeed(error);
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* The public constructor of plans: it checks the configuration and resolves its granularity. */

int qobs_plan_create(qobs_plan **result, const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                     const qobs_runtime *given, qobs_error *error)
{
    struct runtime runtime;
    struct granularity granularity;
    RETURN_IF_FAILED(qobs_require(result, "plan", error));
    RETURN_IF_FAILED(qobs_config_check(config, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, given, error));
    qobs_resolve_granularity(config, &granularity);
    return qobs_plan_new(result, &granularity, value, g_idx, &runtime, error);
}

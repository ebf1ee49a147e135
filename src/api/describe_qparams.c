/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The layout of qparams before any data is observed, and the call that does everything for one tensor. */
#include <string.h>

#include "api/prepared_quantizer.h"
#include "base/build.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "config/stages.h"
#include "observer/qparams.h"
#include "plan/make_plan.h"
#include "qobs/plan.h"
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
    *layout = (qobs_qparam_layout){.struct_size = sizeof *layout,
                                   .count = 1,
                                   .scale_dtype = scale,
                                   .zero_point_dtype = zero_point,
                                   .ndim = shape.ndim,
                                   .has_global_scale = o.stages.traits.global != GLOBAL_NONE};
    for (int i = 0; i < shape.ndim; i++) {
        layout->shape[i] = shape.extent[i];
        layout->count *= (size_t)shape.extent[i];
    }
    layout->scale_size = layout->count * qobs_dtype_size(scale);
    layout->zero_point_size = layout->count * qobs_dtype_size(zero_point);
    return qobs_formula_has_qparams(&o.stages.formula);
}

int qobs_config_layout(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                       qobs_qparam_layout *layout, qobs_error *error)
{
    struct runtime runtime;
    qobs_plan *plan = NULL;
    qobs_qparam_layout own;
    qobs_tensor shaped;
    RETURN_IF_FAILED(out_check("layout", layout, SIZE_THROUGH(qobs_qparam_layout, has_global_scale), error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, NULL, error));
    if (!value)
        RETURN_IF_FAILED(qobs_invalid(error, "value: is NULL, expected a tensor"));
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

int qobs_describe_qparams(const char *text, const qobs_tensor *value, qobs_qparam_layout *layout, qobs_error *error)
{
    qobs_config *config = NULL;
    int status = qobs_config_parse(&config, text, NULL, error);
    if (status == QOBS_OK)
        status = qobs_config_layout(config, value, NULL, layout, error);
    qobs_config_destroy(config);
    return status;
}

/* True if the qparams are those of the rows of a matrix, and there is room for them. */
static bool suits_rows(const struct row_quantizer *q, const struct view *v, const qobs_qparam_buffers *out)
{
    const struct row_geometry *g = &q->geometry;
    const bool rows =
        v->strides[1] == q->work.element && (v->shape[0] == 1 || v->strides[0] >= v->shape[1] * q->work.element);
    const size_t count = (size_t)(qobs_geometry_units(g, v->shape[0]) * g->per_unit);
    return rows && !(g->whole_units && v->shape[0] % g->unit != 0) && out->scale &&
           out->scale_size == count * qobs_dtype_size(q->scale_dtype) &&
           out->zero_point_size == (out->zero_point ? count * qobs_dtype_size(q->zero_point_dtype) : 0);
}

/* Computes the qparams by a prepared quantizer. False: that is none of its cases, or arguments are wrong. */
static bool compute_by_rows(const qobs_config *config, const qobs_tensor *value, const qobs_qparam_buffers *given,
                            const qobs_runtime *hooks, int *status, qobs_error *error)
{
    struct nonfinite_count nonfinite;
    struct row_quantizer q;
    struct runtime runtime;
    qobs_qparam_buffers out;
    struct view v;
    if (qobs_view_of_tensor(&v, value, "value", NULL) != QOBS_OK || v.ndim != 2 || v.elements == 0 ||
        qobs_runtime_resolve(&runtime, hooks, NULL) != QOBS_OK ||
        qobs_qparam_buffers_read(&out, given, NULL) != QOBS_OK)
        return false;
    const qobs_quantizer_args args = {.struct_size = sizeof args,
                                      .config = config,
                                      .dtype = v.dtype,
                                      .columns = v.shape[1],
                                      .dynamic = 1,
                                      .dequantized = 1}; /* codes are not wanted */
    if (qobs_row_quantizer_open(&q, &args, &runtime, NULL) != QOBS_OK || q.rule.has_global_scale ||
        !suits_rows(&q, &v, &out))
        return false;
    const struct row_call call = {
        .rows = v.shape[0], .x = v.data, .x_stride = v.strides[0], .scale = out.scale, .zero_point = out.zero_point};
    *status = qobs_quantize_rows_of(&q, &call, &nonfinite, error);
    if (*status == QOBS_OK && out.global_scale)
        *out.global_scale = 1;
    if (*status == QOBS_OK)
        qobs_succeed(error);
    return true;
}

/* Observes one tensor. */
static int compute_by_observer(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                               const qobs_qparam_buffers *out, const qobs_runtime *runtime, qobs_error *error)
{
    qobs_observer *observer = NULL;
    RETURN_IF_LEFT_OUT(observers, error);
    int status = qobs_observer_create(&observer, config, runtime, error);
    if (status == QOBS_OK)
        status = qobs_observer_observe(observer, value, g_idx, error);
    if (status == QOBS_OK)
        status = qobs_observer_qparams(observer, out, error);
    qobs_observer_destroy(observer);
    return status;
}

int qobs_config_qparams(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                        const qobs_qparam_buffers *out, const qobs_runtime *runtime, qobs_error *error)
{
    int status = QOBS_OK;
    if (!config)
        return qobs_invalid(error, "config: is NULL");
    return !g_idx && compute_by_rows(config, value, out, runtime, &status, error)
               ? status
               : compute_by_observer(config, value, g_idx, out, runtime, error);
}

int qobs_compute_qparams(const char *text, const qobs_tensor *value, const qobs_qparam_buffers *out,
                         const qobs_runtime *runtime, qobs_error *error)
{
    qobs_config *config = NULL;
    int status = qobs_config_parse(&config, text, runtime, error);
    if (status == QOBS_OK)
        status = qobs_config_qparams(config, value, NULL, out, runtime, error);
    qobs_config_destroy(config);
    return status;
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* The public constructor of plans: it checks the configuration and resolves its granularity. */

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

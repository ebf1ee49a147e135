/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The qparams of one tensor: by a prepared quantizer if it can, else by an observer. */
#include "api/open_quantizer.h"
#include "base/struct_size.h"
#include "observer/observer.h"
#include "qobs/stateless.h"

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
    RETURN_IF_LEFT_OUT(observers, error);
    qobs_observer *observer;
    RETURN_IF_FAILED(qobs_observer_create(&observer, config, runtime, error));
    int status = qobs_observer_observe(observer, value, g_idx, error);
    if (status == QOBS_OK)
        status = qobs_qparams_from_observer(observer, out, error);
    qobs_observer_destroy(observer);
    return status;
}

int qobs_config_qparams_from_tensor(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                                    const qobs_qparam_buffers *out, const qobs_runtime *runtime, qobs_error *error)
{
    int status = QOBS_OK;
    RETURN_IF_FAILED(qobs_require(config, "config", error));
    return !g_idx && compute_by_rows(config, value, out, runtime, &status, error)
               ? status
               : compute_by_observer(config, value, g_idx, out, runtime, error);
}

int qobs_qparams_from_tensor(const char *text, const qobs_tensor *value, const qobs_qparam_buffers *out,
                             const qobs_runtime *runtime, qobs_error *error)
{
    qobs_config *config;
    RETURN_IF_FAILED(qobs_require(text, "config", error));
    RETURN_IF_FAILED(qobs_config_parse(&config, text, runtime, error));
    const int status = qobs_config_qparams_from_tensor(config, value, NULL, out, runtime, error);
    qobs_config_destroy(config);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_gptq_block: checks its arguments. */
#include "base/build.h"
#include "base/fpenv.h"
#include "base/struct_size.h"
#include "config/stages.h"
#include "kernels/dispatch.h"
#include "number/convert.h"
#include "number/number.h"
#include "optimal/gptq_rows.h"
#include "quantize/row_quantizer.h"
#include "qobs/stateless.h"

static int check_matrix(const struct view *view, const char *name, int64_t rows, int64_t columns, qobs_error *error)
{
    if (view->ndim != 2)
        return qobs_invalid(error, "%s: has %d dimensions, allowed are 2", name, view->ndim);
    if (view->shape[0] == rows && view->shape[1] == columns)
        return QOBS_OK;
    return qobs_invalid(error, "%s: has shape (%lld, %lld), allowed is (%lld, %lld)", name, (long long)view->shape[0],
                        (long long)view->shape[1], (long long)rows, (long long)columns);
}

static int open_factor(struct gptq_rows *g, const struct view *view, qobs_error *error)
{
    const int64_t step = (int64_t)sizeof(float);
    RETURN_IF_FAILED(check_matrix(view, "factor", g->columns, g->columns, error));
    if (view->dtype != QOBS_F32)
        return qobs_invalid(error, "factor: dtype is %s, allowed is F32", qobs_dtype_name(view->dtype));
    if ((uintptr_t)view->data % sizeof(float) != 0 || view->strides[0] % step != 0 ||
        (view->strides[1] != step && view->shape[1] > 1))
        return qobs_invalid(error, "factor: has strides of %lld and %lld bytes, allowed are contiguous, aligned rows",
                            (long long)view->strides[0], (long long)view->strides[1]);
    g->factor = (const float *)(const void *)view->data;
    g->factor_stride = view->strides[0] / step;
    return QOBS_OK;
}

static int open_scale(struct gptq_rows *g, const struct view *scale, qobs_error *error)
{
    if (scale->ndim != 2)
        return qobs_invalid(error, "scale: has %d dimensions, allowed are 2", scale->ndim);
    if (scale->dtype != QOBS_F32 && scale->dtype != QOBS_BF16 && scale->dtype != QOBS_F16)
        return qobs_invalid(error, "scale: dtype is %s, allowed are F32, BF16 and F16", qobs_dtype_name(scale->dtype));
    if (scale->shape[1] > GPTQ_MOST_COLUMNS)
        return qobs_invalid(error, "scale: has %lld columns, allowed are at most %d", (long long)scale->shape[1],
                            GPTQ_MOST_COLUMNS);
    g->scale = scale;
    g->rows = scale->shape[0];
    g->columns = scale->shape[1];
    return QOBS_OK;
}

/* The four matrices of the caller. */
static int open_values(struct gptq_rows *g, const qobs_gptq_block_args *a, qobs_error *error)
{
    const size_t size = (size_t)(g->rows * g->columns) * sizeof(float);
    const struct {
        const char *name;
        float *array;
    } arrays[] = {{"value", a->value}, {"quantized", a->quantized}, {"errors", a->errors}, {"losses", a->losses}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (!arrays[i].array)
            return qobs_invalid(error, "%s: is NULL", arrays[i].name);
    if (a->value_size != size)
        return qobs_invalid(error, "value_size: is %zu, needed are %zu bytes", a->value_size, size);
    g->value = a->value;
    g->quantized = a->quantized;
    g->error = a->errors;
    g->loss = a->losses;
    return QOBS_OK;
}

static int check_finite(const struct gptq_rows *g, qobs_error *error)
{
    for (int64_t i = 0; i < g->rows * g->columns; i++)
        if ((bits_of_float(g->value[i]) & 0x7f800000) == 0x7f800000)
            return qobs_fail(error, QOBS_ERROR_NONFINITE, "value: [%lld][%lld] is %g", (long long)(i / g->columns),
                             (long long)(i % g->columns), (double)g->value[i]);
    return QOBS_OK;
}

int qobs_gptq_block(const qobs_gptq_block_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(QOBS_HAS_OPTIMAL, "optimal", error);
    struct runtime runtime;
    qobs_gptq_block_args a;
    struct quantize_rule rule;
    struct view factor, scale, zero_point;
    RETURN_IF_FAILED(ARGS_READ(qobs_gptq_block_args, &a, args, runtime, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    RETURN_IF_FAILED(qobs_config_check(a.config, error));
    RETURN_IF_FAILED(qobs_resolve_quantize(a.config, a.format, true, &rule, error));
    struct gptq_rows g = {.runtime = &runtime,
                          .kernels = qobs_kernels_active(),
                          .quantizer = &rule.quantizer,
                          .positive_zero = rule.positive_zero};
    RETURN_IF_FAILED(qobs_view_of_tensor(&scale, a.scale, "scale", error));
    RETURN_IF_FAILED(open_scale(&g, &scale, error));
    RETURN_IF_FAILED(qobs_view_of_tensor(&factor, a.factor, "factor", error));
    RETURN_IF_FAILED(open_factor(&g, &factor, error));
    if (a.zero_point) {
        RETURN_IF_FAILED(qobs_view_of_tensor(&zero_point, a.zero_point, "zero_point", error));
        RETURN_IF_FAILED(check_matrix(&zero_point, "zero_point", g.rows, g.columns, error));
        g.zero_point = &zero_point;
    }
    RETURN_IF_FAILED(open_values(&g, &a, error));
    if (scale.elements == 0)
        return qobs_succeed(error);
    RETURN_IF_FAILED(check_finite(&g, error));
    const fp_mode mode = fp_enter();
    const int status = qobs_gptq_rows(&g, error);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

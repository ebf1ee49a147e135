/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_fake_quantize: checks its arguments and chooses the quantizer. */
#include <math.h>

#include "base/error.h"
#include "config/stages.h"
#include "formula/fake_quantize.h"
#include "formula/qparam_view.h"
#include "kernels/dispatch.h"
#include "qobs/format.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"

/* An array of qparams has an element for each qparam of the plan, in C order without gaps. */
static int check_qparams(const struct view *v, const char *name, int64_t qparams, qobs_error *error)
{
    if (v->elements != qparams)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: has %lld elements, the granularity gives %lld", name,
                         (long long)v->elements, (long long)qparams);
    int64_t expected = (int64_t)qobs_dtype_size(v->dtype);
    for (int i = v->ndim - 1; i >= 0 && v->elements > 0; i--) {
        if (v->shape[i] > 1 && v->strides[i] != expected)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "%s: strides[%d] is %lld, C order without gaps needs %lld", name, i,
                             (long long)v->strides[i], (long long)expected);
        expected *= v->shape[i];
    }
    return QOBS_OK;
}

static int check_scale(const struct view *v, qobs_dtype value, bool torch, qobs_error *error)
{
    if (v->dtype == QOBS_F32 || (v->dtype == value && !torch))
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "scale: dtype is %s, allowed are F32%s%s",
                     qobs_dtype_name(v->dtype), torch || value == QOBS_F32 ? "" : " and that of value, ",
                     torch || value == QOBS_F32 ? "" : qobs_dtype_name(value));
}

/* torch requires zero points to be among the quantized integers. */
static int check_zero_points(const struct view *v, const struct qobs_quantizer *q, qobs_error *error)
{
    for (int64_t i = 0; i < v->elements; i++) {
        const double z = qobs_qparam_at(v->data, v->dtype, i);
        if (!(z >= q->quant_min && z <= q->quant_max) || z != floor(z))
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "zero_point: element %lld is %g, allowed are the integers %.0f to %.0f", (long long)i, z,
                             q->quant_min, q->quant_max);
    }
    return QOBS_OK;
}

/* The quantizer of the format, or of the configuration if the format is NULL. */
static int choose_quantizer(struct qobs_quantizer *q, const qobs_config *config, const qobs_format *format,
                            qobs_error *error)
{
    const char *preset = config->preset->name;
    struct formula formula;
    qobs_resolve_formula(config, &formula);
    const int64_t quant_min = (int64_t)formula.params.quant_min, quant_max = (int64_t)formula.params.quant_max;
    switch (config->preset->family) {
    case FAMILY_TORCH:
        if (format)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "format: is %s, but %s quantizes to the integers of its dtype", format->name, preset);
        qobs_quantizer_for_integers(q, quant_min, quant_max, true);
        return QOBS_OK;
    case FAMILY_LLMC:
        if (!format && config->type == TYPE_INT) {
            qobs_quantizer_for_integers(q, quant_min, quant_max, false);
            return QOBS_OK;
        }
        format = format ? format : qobs_format_at(config->num_bits == 4 ? FORMAT_E2M1 : FORMAT_E4M3);
        break;
    default:
        break;
    }
    if (!format)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "format: is NULL, which %s leaves open", preset);
    qobs_quantizer_for_format(q, format);
    return QOBS_OK;
}

static int check_out(const qobs_tensor *value, void *out, const int64_t *strides, qobs_error *error)
{
    if (!out)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "out: is NULL");
    for (int i = 0; strides && i < value->ndim; i++)
        if (strides[i] == 0 && value->shape[i] > 1)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "out_strides: entry %d is 0, elements would share memory", i);
    return QOBS_OK;
}

int qobs_fake_quantize(const qobs_config *config, const qobs_format *format, const qobs_tensor *value,
                       const qobs_tensor *g_idx, const qobs_tensor *scale, const qobs_tensor *zero_point,
                       const float *global_scale, void *out, const int64_t *out_strides, const qobs_runtime *hooks,
                       qobs_error *error)
{
    struct runtime runtime;
    struct view scales, zero_points = {0};
    qobs_plan *plan = NULL, *out_plan = NULL;
    struct fake_quantize f = {.runtime = &runtime, .kernels = qobs_kernels_active(), .global_scale = global_scale};
    int status = qobs_runtime_resolve(&runtime, hooks, error);
    if (status == QOBS_OK)
        status = qobs_plan_create(&plan, config, value, g_idx, hooks, error);
    if (status != QOBS_OK)
        return status;
    status = choose_quantizer(&f.quantizer, config, format, error);
    if (status != QOBS_OK || plan->value.elements == 0)
        goto done;
    status = check_out(value, out, out_strides, error);
    if (status == QOBS_OK)
        status = qobs_view_of_tensor(&scales, scale, "scale", error);
    if (status == QOBS_OK)
        status = check_qparams(&scales, "scale", plan->qparams, error);
    if (status == QOBS_OK)
        status = check_scale(&scales, value->dtype, f.quantizer.torch, error);
    if (status == QOBS_OK && zero_point) {
        status = qobs_view_of_tensor(&zero_points, zero_point, "zero_point", error);
        if (status == QOBS_OK)
            status = check_qparams(&zero_points, "zero_point", plan->qparams, error);
        if (status == QOBS_OK && f.quantizer.torch)
            status = check_zero_points(&zero_points, &f.quantizer, error);
    }
    if (status != QOBS_OK)
        goto done;
    f.scale = scales.data;
    f.scale_dtype = scales.dtype;
    f.zero_point = zero_points.data;
    f.zero_point_dtype = zero_points.dtype;
    const qobs_tensor written = {sizeof written, out, value->dtype, value->ndim, value->shape, out_strides};
    status = qobs_plan_create(&out_plan, config, &written, NULL, hooks, error);
    if (status == QOBS_OK)
        status = qobs_fake_quantize_plan(&f, plan, value->data, out_plan, out, error);
done:
    qobs_plan_destroy(plan);
    qobs_plan_destroy(out_plan);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

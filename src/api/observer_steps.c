/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observing, and the single steps of it that upstream's classes have as functions. */
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/struct_size.h"
#include "config/settings.h"
#include "observer/observer.h"
#include "observer/searches.h"
#include "observer/qparams.h"
#include "plan/make_plan.h"
#include "qobs/plan.h"
#include "measure/reduce.h"

static int no_observer(qobs_error *error) { return qobs_invalid(error, "observer: is NULL"); }

int qobs_observer_observe(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx, qobs_error *error)
{
    const struct observed_batch batch = {.value = value, .g_idx = g_idx, .forward = true};
    return o ? qobs_accept_batch(o, &batch, error) : no_observer(error);
}

int qobs_observer_observe_importance(qobs_observer *o, const qobs_tensor *activations, qobs_error *error)
{
    struct view view;
    if (!o)
        return no_observer(error);
    const bool could = qobs_setting_find(o->config.preset, "hessian_block_size");
    if (!o->stages.range.params.importance)
        return qobs_invalid(error, "observer: %s does not weigh columns%s", o->config.preset->name,
                            could ? " without hessian_block_size" : "");
    RETURN_IF_FAILED(qobs_view_of_tensor(&view, activations, "activations", error));
    const fp_mode mode = fp_enter();
    const int status = qobs_observe_activations(o, &view, error);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

int qobs_observer_record_tokens(qobs_observer *o, const qobs_tensor *value, qobs_error *error)
{
    struct view view;
    if (!o)
        return no_observer(error);
    const int status = qobs_view_of_tensor(&view, value, "value", error);
    enum kernel_dtype unused;
    if (status != QOBS_OK)
        return status;
    if (!qobs_kernel_dtype_of(view.dtype, &unused))
        return qobs_invalid(error, "value: dtype is %s, allowed are F32, BF16, F16 and F64",
                            qobs_dtype_name(view.dtype));
    qobs_add_tokens(o, &view);
    return qobs_succeed(error);
}

static int read_range_buffers(qobs_range_buffers *out, const qobs_range_buffers *given, qobs_error *error)
{
    if (!given)
        return qobs_invalid(error, "out: is NULL");
    const int status = ARGS_READ(qobs_range_buffers, out, given, size, error);
    if (status == QOBS_OK && (!out->min || !out->max))
        return qobs_invalid(error, "%s: is NULL", out->min ? "max" : "min");
    return status;
}

int qobs_observer_update_min_max(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx,
                                 const qobs_range_buffers *given, qobs_error *error)
{
    qobs_range_buffers out;
    if (!o)
        return no_observer(error);
    RETURN_IF_FAILED(read_range_buffers(&out, given, error));
    if (!qobs_has_min_max(&o->stages))
        return qobs_invalid(error, "observer: %s has no minimum and maximum", o->config.preset->name);
    const struct request request = {.ranges = true, .min = out.min, .max = out.max, .range_size = out.size};
    const struct observed_batch batch = {.value = value, .g_idx = g_idx, .request = &request};
    return qobs_accept_batch(o, &batch, error);
}

static int update_qparams(qobs_observer *o, const struct observed_batch *observed, const qobs_qparam_buffers *given,
                          qobs_error *error)
{
    qobs_qparam_buffers out;
    RETURN_IF_FAILED(qobs_qparam_buffers_read(&out, given, error));
    const struct request request = {.qparams = &out};
    struct observed_batch batch = *observed;
    batch.request = &request;
    return qobs_accept_batch(o, &batch, error);
}

int qobs_observer_update_qparams(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx,
                                 const qobs_qparam_buffers *out, qobs_error *error)
{
    const struct observed_batch batch = {.value = value, .g_idx = g_idx};
    return o ? update_qparams(o, &batch, out, error) : no_observer(error);
}

int qobs_observer_update_qparams_along_dim(qobs_observer *o, const qobs_tensor *value, const int *dim, size_t count,
                                           const qobs_qparam_buffers *out, qobs_error *error)
{
    if (!o)
        return no_observer(error);
    if (!o->stages.traits.qparams_along_dim)
        return qobs_invalid(error, "observer: only those of llmc with version 2025-09 have this");
    if ((!dim && count > 0) || count > QOBS_MAX_NDIM)
        return qobs_invalid(error, "dim: %s", dim ? "has more entries than dimensions" : "is NULL");
    struct axes axes = {.count = (int)count};
    for (size_t i = 0; i < count; i++)
        axes.axis[i] = dim[i];
    const struct observed_batch batch = {.value = value, .axes = &axes};
    return update_qparams(o, &batch, out, error);
}

/* ---- The global range -------------------------------------------------------------------------------------------- */

static int check_global(const qobs_observer *o, const qobs_plan *plan, size_t size, qobs_error *error)
{
    const size_t element = qobs_dtype_size(plan->dtype);
    if (size != element)
        return qobs_invalid(error, "size: is %zu bytes for min and for max, expected %zu", size, element);
    if (plan->value.elements == 0 && o->global_range.dtype == 0)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "value: has no elements, and there is nothing from before");
    return qobs_check_batch_dtype(o, plan->dtype, qobs_state_is_empty(&o->state), error);
}

/* The tensor's range, searched if the preset searches. */
static int measure_global(const qobs_observer *o, const qobs_plan *plan, const qobs_tensor *value,
                          struct global_range *batch, qobs_error *error)
{
    struct nonfinite_count nonfinite = {0};
    batch->dtype = plan->dtype;
    const int status = qobs_reduce_minmax(&o->runtime, o->kernels, plan, value->data, o->stages.reduction.nonfinite,
                                          batch->min, batch->max, &nonfinite, error);
    if (status != QOBS_OK || !qobs_range_searches(o->stages.range.ops))
        return status;
    return qobs_search_global(o, plan, value->data, batch->min, batch->max, error);
}

int qobs_observer_update_global_min_max(qobs_observer *o, const qobs_tensor *value, const qobs_range_buffers *given,
                                        qobs_error *error)
{
    qobs_range_buffers out;
    struct global_range batch = {0};
    qobs_plan *plan;
    if (!o)
        return no_observer(error);
    if (!o->stages.traits.has_global_range)
        return qobs_invalid(error, "observer: only those of llmc with version 2025-09 or 2025-10 have a global range");
    RETURN_IF_FAILED(read_range_buffers(&out, given, error));
    RETURN_IF_FAILED(qobs_plan_new(&plan, &qobs_whole_tensor, value, NULL, &o->runtime, error));
    int status = check_global(o, plan, out.size, error);
    const fp_mode mode = fp_enter();
    if (status == QOBS_OK && plan->value.elements > 0) {
        status = measure_global(o, plan, value, &batch, error);
        if (status == QOBS_OK) {
            qobs_accumulate_global(&o->stages.accumulator, &o->global_range, &batch);
            o->fused = false;
        }
    }
    fp_leave(mode);
    qobs_plan_destroy(plan);
    if (status != QOBS_OK)
        return status;
    memcpy(out.min, o->global_range.min, out.size);
    memcpy(out.max, o->global_range.max, out.size);
    return qobs_succeed(error);
}

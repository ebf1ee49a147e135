/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observing, and the single steps of it that upstream's classes have as functions. */

#include "base/fpenv.h"
#include "base/struct_size.h"
#include "config/settings.h"
#include "observer/observer.h"
#include "plan/make_plan.h"
#include "qobs/experimental.h"

int qobs_observer_observe(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx, qobs_error *error)
{
    const struct observed_batch batch = {.value = value, .g_idx = g_idx, .forward = true};
    return qobs_accept_batch(o, &batch, error);
}

int qobs_observer_observe_importance(qobs_observer *o, const qobs_tensor *activations, qobs_error *error)
{
    struct view view;
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    const bool could = qobs_setting_find(o->config.preset, "hessian_block_size");
    if (!o->stages.range.params.importance)
        return qobs_invalid(error, "observer: %s does not weigh columns%s", o->config.preset->name,
                            could ? " without hessian_block_size" : "");
    RETURN_IF_FAILED(qobs_view_of_tensor(&view, activations, "activations", error));
    FP_SCOPE;
    return qobs_finish(qobs_observe_activations(o, &view, error), error);
}

int qobs_observer_record_tokens(qobs_observer *o, const qobs_tensor *value, qobs_error *error)
{
    struct view view;
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    RETURN_IF_FAILED(qobs_view_of_tensor(&view, value, "value", error));
    RETURN_IF_FAILED(qobs_require_kernel_dtype(view.dtype, "value", error));
    o->counts.tokens += qobs_tokens(&view);
    if (o->stages.traits.counts_nonzero_tokens)
        o->counts.nonzero_tokens += qobs_nonzero_tokens(&view);
    return qobs_succeed(error);
}

static int read_range_buffers(qobs_range_buffers *out, const qobs_range_buffers *given, qobs_error *error)
{
    RETURN_IF_FAILED(STRUCTURE_READ("out", qobs_range_buffers, out, given, size, error));
    RETURN_IF_FAILED(qobs_require(out->min, "min", error));
    return qobs_require(out->max, "max", error);
}

int qobs_observer_update_min_max(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx,
                                 const qobs_range_buffers *given, qobs_error *error)
{
    qobs_range_buffers out;
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    RETURN_IF_FAILED(read_range_buffers(&out, given, error));
    if (!qobs_has_min_max(&o->stages))
        return qobs_invalid(error, "observer: %s has no minimum and maximum", o->config.preset->name);
    const struct request request = {.min = out.min, .max = out.max, .range_size = out.size};
    const struct observed_batch batch = {.value = value, .g_idx = g_idx, .request = &request};
    return qobs_accept_batch(o, &batch, error);
}

static int update_qparams(qobs_observer *o, struct observed_batch batch, const qobs_qparam_buffers *given,
                          qobs_error *error)
{
    qobs_qparam_buffers out;
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    RETURN_IF_FAILED(qobs_qparam_buffers_read(&out, given, error));
    const struct request request = {.qparams = &out};
    batch.request = &request;
    return qobs_accept_batch(o, &batch, error);
}

int qobs_observer_update_qparams(qobs_observer *o, const qobs_tensor *value, const qobs_tensor *g_idx,
                                 const qobs_qparam_buffers *out, qobs_error *error)
{
    return update_qparams(o, (struct observed_batch){.value = value, .g_idx = g_idx}, out, error);
}

int qobs_observer_update_qparams_along_dim(qobs_observer *o, const qobs_tensor *value, const int *dim, size_t count,
                                           const qobs_qparam_buffers *out, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    if (!o->stages.traits.qparams_along_dim)
        return qobs_invalid(error, "observer: only those of llmc with version 2025-09 have this");
    if ((!dim && count > 0) || count > QOBS_MAX_NDIM)
        return qobs_invalid(error, "dim: %s", dim ? "has more entries than dimensions" : "is NULL");
    struct axes axes = {.count = (int)count};
    for (size_t i = 0; i < count; i++)
        axes.axis[i] = dim[i];
    return update_qparams(o, (struct observed_batch){.value = value, .axes = &axes}, out, error);
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

/* Accumulates the tensor's range, searched if the preset searches. */
static int observe_global(qobs_observer *o, const qobs_plan *plan, qobs_error *error)
{
    struct nonfinite_count nonfinite = {0};
    struct global_range batch = {.dtype = plan->dtype};
    if (plan->value.elements == 0)
        return QOBS_OK;
    RETURN_IF_FAILED(qobs_reduce_minmax(&o->runtime, o->kernels, plan, plan->value.data, o->stages.reduction.nonfinite,
                                        batch.min, batch.max, &nonfinite, error));
    if (qobs_range_searches(o->stages.range.ops))
        RETURN_IF_FAILED(qobs_search_global(o, plan, &batch, error));
    qobs_accumulate_global(&o->stages.accumulator, &o->global_range, &batch);
    o->fused = false;
    return QOBS_OK;
}

int qobs_observer_update_global_min_max(qobs_observer *o, const qobs_tensor *value, const qobs_range_buffers *given,
                                        qobs_error *error)
{
    qobs_range_buffers out;
    qobs_plan *plan;
    RETURN_IF_FAILED(qobs_require(o, "observer", error));
    if (!o->stages.traits.has_global_range)
        return qobs_invalid(error, "observer: only those of llmc with version 2025-09 or 2025-10 have a global range");
    RETURN_IF_FAILED(read_range_buffers(&out, given, error));
    RETURN_IF_FAILED(qobs_plan_new(&plan, &qobs_whole_tensor, value, NULL, &o->runtime, error));
    int status = check_global(o, plan, out.size, error);
    FP_SCOPE;
    if (status == QOBS_OK)
        status = observe_global(o, plan, error);
    qobs_plan_destroy(plan);
    RETURN_IF_FAILED(status);
    memcpy(out.min, o->global_range.min, out.size);
    memcpy(out.max, o->global_range.max, out.size);
    return qobs_succeed(error);
}

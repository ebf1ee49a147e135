/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The life of a plan: the granularity adds axes, shapes follow from the axes, g_idx adds the order of columns. */
#include "plan/make_plan.h"

#include <string.h>

#include "base/error.h"
#include "plan/granularity.h"

/* A plan for value without axes yet. */
static int begin(qobs_plan *plan, const qobs_tensor *value, const struct runtime *runtime, qobs_error *error)
{
    enum kernel_dtype unused;
    /* Axes and shapes are not cleared here, because that would cost a small tensor much of its time. */
    plan->runtime = *runtime;
    plan->range.ndim = plan->scale.ndim = -1;
    plan->keying = KEYING_NONE;
    plan->as_f32 = plan->padded = false;
    plan->ndim = plan->axes = 0;
    plan->order = plan->start = NULL;
    RETURN_IF_FAILED(qobs_view_of_tensor(&plan->value, value, "value", error));
    plan->dtype = plan->value.dtype;
    return qobs_kernel_dtype_of(plan->dtype, &unused)
               ? QOBS_OK
               : qobs_invalid(error, "value: dtype is %s, allowed are F32, BF16, F16 and F64",
                              qobs_dtype_name(plan->dtype));
}

int qobs_plan_make(qobs_plan *plan, const struct granularity *granularity, const qobs_tensor *value,
                   const qobs_tensor *g_idx, const struct runtime *runtime, qobs_error *error)
{
    struct view index;
    RETURN_IF_FAILED(begin(plan, value, runtime, error));
    if (g_idx)
        RETURN_IF_FAILED(qobs_view_of_tensor(&index, g_idx, "g_idx", error));
    RETURN_IF_FAILED(granularity->ops->flatten(plan, &granularity->params, error));
    RETURN_IF_FAILED(qobs_plan_set_shapes(plan, error));
    const int status = g_idx ? qobs_plan_order_columns(plan, granularity, &index, error) : QOBS_OK;
    if (status == QOBS_OK)
        return qobs_succeed(error);
    qobs_plan_unmake(plan);
    return status;
}

void qobs_plan_unmake(qobs_plan *plan) { qobs_plan_release_order(plan); }

int qobs_plan_make_along(qobs_plan *plan, enum keying keying, const qobs_tensor *value, const struct axes *axes,
                         const struct runtime *runtime, qobs_error *error)
{
    bool kept[QOBS_MAX_NDIM];
    int count = 0;
    RETURN_IF_FAILED(begin(plan, value, runtime, error));
    RETURN_IF_FAILED(qobs_plan_find_kept(plan, axes, "dim", kept, &count, error));
    plan->keying = keying;
    if (count > 0 && count < plan->value.ndim)
        qobs_plan_add_kept(plan, kept);
    else
        qobs_plan_add_global(plan);
    return qobs_plan_set_shapes(plan, error);
}

static qobs_plan *allocate(const struct runtime *runtime, qobs_error *error)
{
    qobs_plan *plan = qobs_allocate(runtime, sizeof *plan);
    if (!plan)
        qobs_no_memory(error, "plan: no memory for %zu bytes", sizeof *plan);
    return plan;
}

/* Hands over a plan that has been made, or releases its memory. */
static int finish(qobs_plan **result, qobs_plan *plan, const struct runtime *runtime, int status)
{
    if (status == QOBS_OK)
        *result = plan;
    else
        qobs_release(runtime, plan, sizeof *plan);
    return status;
}

int qobs_plan_new(qobs_plan **result, const struct granularity *granularity, const qobs_tensor *value,
                  const qobs_tensor *g_idx, const struct runtime *runtime, qobs_error *error)
{
    qobs_plan *plan = allocate(runtime, error);
    return plan ? finish(result, plan, runtime, qobs_plan_make(plan, granularity, value, g_idx, runtime, error))
                : QOBS_ERROR_OUT_OF_MEMORY;
}

int qobs_plan_new_along(qobs_plan **result, enum keying keying, const qobs_tensor *value, const struct axes *axes,
                        const struct runtime *runtime, qobs_error *error)
{
    qobs_plan *plan = allocate(runtime, error);
    return plan ? finish(result, plan, runtime, qobs_plan_make_along(plan, keying, value, axes, runtime, error))
                : QOBS_ERROR_OUT_OF_MEMORY;
}

void qobs_plan_destroy(qobs_plan *plan)
{
    if (!plan)
        return;
    const struct runtime runtime = plan->runtime;
    qobs_plan_unmake(plan);
    qobs_release(&runtime, plan, sizeof *plan);
}

int qobs_plan_shape(const qobs_plan *plan, int64_t *shape, size_t size)
{
    if (!plan || !shape || size < (size_t)plan->ndim * sizeof *shape)
        return 0;
    memcpy(shape, plan->shape, (size_t)plan->ndim * sizeof *shape);
    return plan->ndim;
}

/* ---- Granularity ------------------------------------------------------------------------------------------------- */

/* The words of granularity settings, and the granularity of observers without ranges. */

const char *qobs_base_name_text(int base_name)
{
    static const char *const text[] = {[BASE_WEIGHT] = "weight", [BASE_INPUT] = "input", [BASE_OUTPUT] = "output",
                                       [BASE_Q] = "q",           [BASE_K] = "k",         [BASE_V] = "v"};
    return base_name >= 0 && base_name <= BASE_V ? text[base_name] : "?";
}

const char *qobs_strategy_text(int strategy)
{
    static const char *const text[] = {[STRATEGY_TENSOR] = "tensor",      [STRATEGY_CHANNEL] = "channel",
                                       [STRATEGY_GROUP] = "group",        [STRATEGY_TENSOR_GROUP] = "tensor_group",
                                       [STRATEGY_BLOCK] = "block",        [STRATEGY_TOKEN] = "token",
                                       [STRATEGY_ATTN_HEAD] = "attn_head"};
    return strategy > STRATEGY_NONE && strategy <= STRATEGY_ATTN_HEAD ? text[strategy] : "?";
}

static int fail_without_ranges(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    (void)plan;
    return qobs_invalid(error, "config: %s looks at no tensor", params->name);
}

const struct granularity_ops qobs_granularity_none = {.flatten = fail_without_ranges};

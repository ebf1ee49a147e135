/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The life of a plan: the granularity adds axes, shapes follow from the axes, g_idx adds the order of columns.
 * Sizes that do not fit 64 bits fail with a message. */
#include "plan/make_plan.h"

#include <string.h>

#include "base/error.h"
#include "plan/granularity.h"

/* ---- Axes, and the shapes that follow from them ---------------------------------------------------------------------
 */

/* An empty tensor may have a long dimension, too. */
#define MOST_QPARAMS (INT64_C(1) << 48)

int qobs_plan_add_axis(qobs_plan *plan, enum axis_role role, int64_t extent, int64_t stride)
{
    plan->axis[plan->axes] =
        (struct axis){.role = role, .extent = extent, .stride = stride, .outer = -1, .unpadded = extent};
    return plan->axes++;
}

int qobs_plan_add_dimension(qobs_plan *plan, enum axis_role role, int dimension)
{
    return qobs_plan_add_axis(plan, role, plan->value.shape[dimension], plan->value.strides[dimension]);
}

void qobs_plan_add_dimensions(qobs_plan *plan, enum axis_role role, int first, int end)
{
    for (int i = first; i < end; i++)
        qobs_plan_add_dimension(plan, role, i);
}

/* The qparam axis of a split dimension. */
static int add_outer(qobs_plan *plan, int dimension, int64_t size)
{
    const int64_t length = plan->value.shape[dimension], stride = plan->value.strides[dimension];
    /* A single group never uses the stride; size * stride might overflow. */
    return qobs_plan_add_axis(plan, AXIS_QPARAM, length / size + (length % size != 0),
                              size < length ? size * stride : 0);
}

/* Its group axis, which comes later. */
static void add_inner(qobs_plan *plan, int outer, int dimension, int64_t size)
{
    const int inner = qobs_plan_add_axis(plan, AXIS_GROUP, size, plan->value.strides[dimension]);
    plan->axis[inner].outer = outer;
    plan->axis[inner].unpadded = plan->value.shape[dimension];
}

void qobs_plan_add_groups(qobs_plan *plan, int dimension, int64_t size)
{
    const int outer = add_outer(plan, dimension, size);
    add_inner(plan, outer, dimension, size);
}

void qobs_plan_add_blocks(qobs_plan *plan, const int64_t block[2])
{
    const int rows = add_outer(plan, 0, block[0]), columns = add_outer(plan, 1, block[1]);
    add_inner(plan, rows, 0, block[0]);
    add_inner(plan, columns, 1, block[1]);
}

int qobs_plan_find_ch_axis(const qobs_plan *plan, int ch_axis, qobs_error *error)
{
    const int ndim = plan->value.ndim, axis = ch_axis < 0 ? ch_axis + ndim : ch_axis;
    if (axis >= 0 && axis < ndim)
        return axis;
    qobs_invalid(error, "ch_axis: is %d, value has dimensions %d to %d", ch_axis, -ndim, ndim - 1);
    return -1;
}

int qobs_plan_find_kept(const qobs_plan *plan, const struct axes *axes, const char *name, bool kept[QOBS_MAX_NDIM],
                        int *count, qobs_error *error)
{
    const int ndim = plan->value.ndim;
    *count = 0;
    for (int i = 0; i < ndim; i++)
        kept[i] = false;
    for (int i = 0; i < axes->count; i++) {
        const int given = axes->axis[i], axis = given < 0 ? given + ndim : given;
        if (axis < 0 || axis >= ndim)
            return qobs_invalid(error, "%s: is %d, value has %d dimensions", name, given, ndim);
        *count += !kept[axis];
        kept[axis] = true;
    }
    return QOBS_OK;
}

void qobs_plan_add_kept(qobs_plan *plan, const bool kept[QOBS_MAX_NDIM])
{
    const struct view *v = &plan->value;
    plan->range.ndim = v->ndim;
    for (int i = 0; i < v->ndim; i++) {
        plan->range.extent[i] = kept[i] ? v->shape[i] : 1;
        if (kept[i])
            qobs_plan_add_dimension(plan, AXIS_QPARAM, i);
    }
    for (int i = 0; i < v->ndim; i++)
        if (!kept[i])
            qobs_plan_add_dimension(plan, AXIS_GROUP, i);
}

void qobs_plan_add_global(qobs_plan *plan)
{
    plan->range = (struct shape){.ndim = 0};
    qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
    qobs_plan_add_dimensions(plan, AXIS_GROUP, 0, plan->value.ndim);
}

static void copy_shape(struct shape *to, const struct shape *from)
{
    to->ndim = from->ndim;
    for (int i = 0; i < from->ndim; i++)
        to->extent[i] = from->extent[i];
}

/* The flattened shape is the product of the observations, the shape of scale, the product of the group axes. */
static int set_shapes(qobs_plan *plan, qobs_error *error)
{
    static const struct shape one = {.ndim = 1, .extent = {1}};
    struct shape qparams;
    qparams.ndim = 0;
    int64_t observations = 1, group = 1, all;
    plan->qparams = 1;
    bool fits = true;
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        switch (a->role) {
        case AXIS_OBSERVATION:
            fits &= qobs_multiply(observations, a->extent, &observations);
            break;
        case AXIS_QPARAM:
            fits &= qobs_multiply(plan->qparams, a->extent, &plan->qparams);
            if (qparams.ndim == QOBS_MAX_NDIM)
                return qobs_invalid(error, "value: its scale would have more than %d dimensions", QOBS_MAX_NDIM);
            qparams.extent[qparams.ndim++] = a->extent;
            break;
        case AXIS_GROUP:
            fits &= qobs_multiply(group, a->extent, &group);
            break;
        }
    }
    if (!fits || !qobs_multiply(observations, plan->qparams, &all) || !qobs_multiply(all, group, &all) ||
        !qobs_multiply(all, 8, &all))
        return qobs_invalid(error, "value: its padded size exceeds 2^63 bytes");
    if (plan->qparams > MOST_QPARAMS)
        return qobs_invalid(error, "value: gives %lld qparams, allowed are 2^48", (long long)plan->qparams);
    const struct shape *middle = plan->scale.ndim < 0 ? &qparams : &plan->scale;
    plan->shape[plan->ndim++] = observations;
    for (int i = 0; i < middle->ndim; i++)
        plan->shape[plan->ndim++] = middle->extent[i];
    plan->shape[plan->ndim++] = group;
    if (plan->range.ndim < 0)
        copy_shape(&plan->range, &qparams);
    if (plan->scale.ndim < 0)
        copy_shape(&plan->scale, plan->range.ndim > 0 ? &plan->range : &one);
    return QOBS_OK;
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

/* A plan for value without axes yet. */
static int begin(qobs_plan *plan, const qobs_tensor *value, const struct runtime *runtime, qobs_error *error)
{
    /* Axes and shapes are not cleared here, because that would cost a small tensor much of its time. */
    plan->runtime = *runtime;
    plan->range.ndim = plan->scale.ndim = -1;
    plan->keying = KEYING_NONE;
    plan->as_f32 = plan->padded = false;
    plan->ndim = plan->axes = 0;
    plan->order = plan->start = NULL;
    RETURN_IF_FAILED(qobs_view_of_tensor(&plan->value, value, "value", error));
    plan->dtype = plan->value.dtype;
    return qobs_require_kernel_dtype(plan->dtype, "value", error);
}

int qobs_plan_make(qobs_plan *plan, const struct granularity *granularity, const qobs_tensor *value,
                   const qobs_tensor *g_idx, const struct runtime *runtime, qobs_error *error)
{
    struct view index;
    RETURN_IF_FAILED(begin(plan, value, runtime, error));
    if (g_idx)
        RETURN_IF_FAILED(qobs_view_of_tensor(&index, g_idx, "g_idx", error));
    RETURN_IF_FAILED(granularity->ops->flatten(plan, &granularity->params, error));
    RETURN_IF_FAILED(set_shapes(plan, error));
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
    return set_shapes(plan, error);
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

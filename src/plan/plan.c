/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "plan/plan.h"

#include <string.h>

#include "base/error.h"

/* An empty tensor may have a long dimension, too. */
#define MOST_QPARAMS (INT64_C(1) << 48)

int qobs_plan_add_axis(qobs_plan *plan, enum axis_role role, int64_t extent, int64_t stride)
{
    plan->axis[plan->axes] = (struct axis){.role = role, .extent = extent, .stride = stride, .outer = -1, .unpadded = extent};
    return plan->axes++;
}

int qobs_plan_add_outer(qobs_plan *plan, int64_t length, int64_t piece, int64_t stride)
{
    /* With one piece the stride is never used; piece * stride might not fit. */
    return qobs_plan_add_axis(plan, AXIS_QPARAM, length / piece + (length % piece != 0), piece < length ? piece * stride : 0);
}

void qobs_plan_add_inner(qobs_plan *plan, int outer, int64_t length, int64_t piece, int64_t stride)
{
    const int fine = qobs_plan_add_axis(plan, AXIS_GROUP, piece, stride);
    plan->axis[fine].outer = outer;
    plan->axis[fine].unpadded = length;
}

static void copy_shape(struct shape *to, const struct shape *from)
{
    to->ndim = from->ndim;
    for (int i = 0; i < from->ndim; i++)
        to->extent[i] = from->extent[i];
}

/* The flattened shape: observations multiplied, the shape of scale, group multiplied; and what the granularity has not said
 * about the shapes of the results. */
static int finish(qobs_plan *plan, qobs_error *error)
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
                return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: its scale would have more than %d dimensions",
                                 QOBS_MAX_NDIM);
            qparams.extent[qparams.ndim++] = a->extent;
            break;
        case AXIS_GROUP:
            fits &= qobs_multiply(group, a->extent, &group);
            break;
        }
    }
    if (!fits || !qobs_multiply(observations, plan->qparams, &all) || !qobs_multiply(all, group, &all) ||
        !qobs_multiply(all, 8, &all))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: its padded size exceeds 2^63 bytes");
    if (plan->qparams > MOST_QPARAMS)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: gives %lld qparams, allowed are 2^48",
                         (long long)plan->qparams);
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

static int64_t columns_of(const qobs_plan *plan)
{
    return plan->value.shape[plan->value.ndim - 1];
}

static int64_t groups_of(const qobs_plan *plan)
{
    return plan->axis[plan->axis[plan->axes - 1].outer].extent;
}

/* Does -1 in g_idx say that it has not been filled in? Version 2025-10 sorts it like any other number. */
static bool minus_one_is_none(const qobs_config *config)
{
    return config->version != VERSION_2025_10;
}

/* The entries of g_idx, which are group numbers below the number of columns; *none: it has not been filled in. */
static int read_g_idx(const qobs_plan *plan, const qobs_config *config, const struct view *g_idx, int64_t *group, bool *none,
                      qobs_error *error)
{
    const int64_t columns = columns_of(plan);
    for (int64_t i = 0; i < columns; i++) {
        const unsigned char *p = g_idx->data + i * g_idx->strides[0];
        int32_t narrow;
        if (g_idx->dtype == QOBS_I32) {
            memcpy(&narrow, p, sizeof narrow);
            group[i] = narrow;
        } else {
            memcpy(&group[i], p, sizeof group[i]);
        }
        if (group[i] < -1 || group[i] >= columns)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "g_idx: entry %lld is %lld, allowed are 0 to %lld",
                             (long long)i, (long long)group[i], (long long)columns - 1);
        *none |= group[i] == -1 && minus_one_is_none(config);
    }
    return QOBS_OK;
}

/* Where groups start that are pieces of group_size, or as long as g_idx names them. first[v + 1] is where value v starts in the
 * order of the columns. */
static int start_groups(qobs_plan *plan, const qobs_config *config, const int64_t *first, qobs_error *error)
{
    const int64_t columns = columns_of(plan), groups = groups_of(plan);
    int64_t named = 0;
    if (!config->ragged && config->version != VERSION_2025_09) {
        for (int64_t g = 0; g <= groups; g++)
            plan->start[g] = g < groups ? g * config->group_size : columns;
        return QOBS_OK;
    }
    for (int64_t v = 0; v < columns; v++) {
        const int64_t end = v + 2 <= columns ? first[v + 2] : columns;
        if (first[v + 1] == end)
            continue;
        if (named < groups)
            plan->start[named] = first[v + 1];
        named++;
    }
    plan->start[groups] = columns;
    if (named == groups)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "g_idx: names %lld groups, group_size %lld makes %lld of %lld columns",
                     (long long)named, (long long)config->group_size, (long long)groups, (long long)columns);
}

/* The columns in the order of a stable ascending sort of g_idx, by counting, and where the groups start. */
static int order_columns(qobs_plan *plan, const qobs_config *config, const struct view *g_idx, qobs_error *error)
{
    const int64_t columns = columns_of(plan);
    const size_t size = (size_t)columns * sizeof(int64_t);
    const size_t starts = ((size_t)groups_of(plan) + 1) * sizeof(int64_t), firsts = size + 2 * sizeof(int64_t);
    int64_t *group = qobs_allocate(&plan->runtime, size);
    int64_t *first = qobs_allocate(&plan->runtime, firsts);
    int64_t *order = qobs_allocate(&plan->runtime, size);
    int64_t *start = qobs_allocate(&plan->runtime, starts);
    bool none = false;
    int status = group && first && order && start ? QOBS_OK : QOBS_ERROR_OUT_OF_MEMORY;
    if (status != QOBS_OK)
        qobs_fail(error, status, "g_idx: no memory for %lld columns", (long long)columns);
    else
        status = read_g_idx(plan, config, g_idx, group, &none, error);
    if (status == QOBS_OK && !none) {
        /* first[v + 2] counts value v, then the sums make first[v + 1] its place; filling moves that to the next value's. */
        memset(first, 0, firsts);
        for (int64_t i = 0; i < columns; i++)
            first[group[i] + 2]++;
        for (int64_t v = 1; v <= columns + 1; v++)
            first[v] += first[v - 1];
        plan->start = start;
        status = start_groups(plan, config, first, error);
        for (int64_t i = 0; i < columns; i++)
            order[first[group[i] + 1]++] = i;
        plan->order = order;
        order = start = NULL;
    }
    qobs_release(&plan->runtime, group, size);
    qobs_release(&plan->runtime, first, firsts);
    qobs_release(&plan->runtime, order, size);
    qobs_release(&plan->runtime, start, starts);
    return status;
}

static int check_g_idx(const qobs_plan *plan, const qobs_config *config, const struct view *g_idx, qobs_error *error)
{
    const enum strategy strategy = qobs_config_strategy(config);
    const bool weight = config->base_name == BASE_WEIGHT || config->version == VERSION_2025_09;
    if (config->preset->family != FAMILY_LLMC || !weight || (strategy != STRATEGY_GROUP && strategy != STRATEGY_TENSOR_GROUP))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "g_idx: goes with base name weight and strategy group or tensor_group, not with %s and %s",
                         qobs_base_name_text(config->base_name), qobs_strategy_text((int)strategy));
    if (g_idx->dtype != QOBS_I32 && g_idx->dtype != QOBS_I64)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "g_idx: dtype is %s, allowed are I32 and I64",
                         qobs_dtype_name(g_idx->dtype));
    const int64_t columns = plan->value.ndim > 0 ? plan->value.shape[plan->value.ndim - 1] : 0;
    if (columns > UINT32_MAX)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "g_idx: value has %lld columns, allowed are %lld",
                         (long long)columns, (long long)UINT32_MAX);
    if (g_idx->ndim != 1 || g_idx->shape[0] != columns)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "g_idx: has %d dimensions and %lld entries, expected 1 and %lld",
                         g_idx->ndim, (long long)g_idx->elements, (long long)columns);
    return QOBS_OK;
}

static int flatten_nothing(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    (void)plan;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "config: %s looks at no tensor", config->preset->name);
}

/* A plan for value without axes yet. */
static int begin(qobs_plan *plan, const qobs_tensor *value, const struct runtime *runtime, qobs_error *error)
{
    enum qobs_kernel_dtype unused;
    /* Axes and shapes are written as they are added: a small tensor should not wait for them. */
    plan->runtime = *runtime;
    plan->range.ndim = plan->scale.ndim = -1;
    plan->keying = KEYING_NONE;
    plan->as_f32 = plan->padded = false;
    plan->ndim = plan->axes = 0;
    plan->order = plan->start = NULL;
    const int status = qobs_view_of_tensor(&plan->value, value, "value", error);
    if (status != QOBS_OK)
        return status;
    plan->dtype = plan->value.dtype;
    return qobs_kernel_dtype_of(plan->dtype, &unused)
               ? QOBS_OK
               : qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: dtype is %s, allowed are F32, BF16, F16 and F64",
                           qobs_dtype_name(plan->dtype));
}

static qobs_plan *allocate(const struct runtime *runtime, qobs_error *error)
{
    qobs_plan *plan = qobs_allocate(runtime, sizeof *plan);
    if (!plan)
        qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "plan: no memory for %zu bytes", sizeof *plan);
    return plan;
}

int qobs_plan_make(qobs_plan *plan, const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                   const struct runtime *runtime, qobs_error *error)
{
    struct view index;
    int status = qobs_config_check(config, error);
    if (status != QOBS_OK)
        return status;
    status = begin(plan, value, runtime, error);
    if (status == QOBS_OK && g_idx)
        status = qobs_view_of_tensor(&index, g_idx, "g_idx", error);
    static int (*const flatten[])(qobs_plan *, const qobs_config *, qobs_error *) = {
        [GRANULARITY_NONE] = flatten_nothing,
        [GRANULARITY_LLMC] = qobs_flatten_llmc,
        [GRANULARITY_TENSOR] = qobs_flatten_tensor,
        [GRANULARITY_TORCH_CHANNEL] = qobs_flatten_torch_channel,
        [GRANULARITY_TORCH_QSCHEME] = qobs_flatten_torch_qscheme,
        [GRANULARITY_QUARK_CHANNEL] = qobs_flatten_quark_channel,
        [GRANULARITY_QUARK_GROUP] = qobs_flatten_quark_group,
        [GRANULARITY_QUARK_BLOCK] = qobs_flatten_quark_block,
        [GRANULARITY_MODELOPT_AXES] = qobs_flatten_modelopt_axes,
        [GRANULARITY_MODELOPT_BLOCK] = qobs_flatten_modelopt_block,
    };
    if (status == QOBS_OK)
        status = flatten[config->preset->granularity](plan, config, error);
    if (status == QOBS_OK)
        status = finish(plan, error);
    if (status == QOBS_OK && g_idx)
        status = check_g_idx(plan, config, &index, error);
    if (status == QOBS_OK && g_idx && plan->value.elements > 0)
        status = order_columns(plan, config, &index, error);
    if (status == QOBS_OK)
        return qobs_succeed(error);
    qobs_plan_unmake(plan);
    return status;
}

void qobs_plan_unmake(qobs_plan *plan)
{
    if (plan->order)
        qobs_release(&plan->runtime, plan->order, (size_t)columns_of(plan) * sizeof(int64_t));
    if (plan->start)
        qobs_release(&plan->runtime, plan->start, ((size_t)groups_of(plan) + 1) * sizeof(int64_t));
}

int qobs_plan_create(qobs_plan **result, const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                     const qobs_runtime *given, qobs_error *error)
{
    if (!result)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "plan: is NULL");
    struct runtime runtime;
    int status = qobs_config_check(config, error);
    if (status == QOBS_OK)
        status = qobs_runtime_resolve(&runtime, given, error);
    if (status != QOBS_OK)
        return status;
    qobs_plan *plan = allocate(&runtime, error);
    if (!plan)
        return QOBS_ERROR_OUT_OF_MEMORY;
    status = qobs_plan_make(plan, config, value, g_idx, &runtime, error);
    if (status == QOBS_OK)
        *result = plan;
    else
        qobs_release(&runtime, plan, sizeof *plan);
    return status;
}

int qobs_plan_make_along(qobs_plan *plan, const qobs_config *config, const qobs_tensor *value, const struct axes *axes,
                         const struct runtime *runtime, qobs_error *error)
{
    bool kept[QOBS_MAX_NDIM];
    int count = 0;
    int status = qobs_config_check(config, error);
    if (status == QOBS_OK)
        status = begin(plan, value, runtime, error);
    if (status == QOBS_OK)
        status = qobs_plan_find_kept(plan, axes, "dim", kept, &count, error);
    if (status != QOBS_OK)
        return status;
    plan->keying = config->version == VERSION_2025_09 ? KEYING_DEFAULT : KEYING_NONE;
    if (count > 0 && count < plan->value.ndim)
        qobs_flatten_kept(plan, kept);
    else
        qobs_flatten_whole(plan);
    return finish(plan, error);
}

int qobs_plan_create_along(qobs_plan **result, const qobs_config *config, const qobs_tensor *value, const struct axes *axes,
                           const struct runtime *runtime, qobs_error *error)
{
    qobs_plan *plan = allocate(runtime, error);
    if (!plan)
        return QOBS_ERROR_OUT_OF_MEMORY;
    const int status = qobs_plan_make_along(plan, config, value, axes, runtime, error);
    if (status == QOBS_OK)
        *result = plan;
    else
        qobs_release(runtime, plan, sizeof *plan);
    return status;
}

void qobs_plan_destroy(qobs_plan *plan)
{
    if (!plan)
        return;
    const struct runtime runtime = plan->runtime;
    qobs_plan_unmake(plan);
    qobs_release(&runtime, plan, sizeof *plan);
}

int qobs_plan_shape(const qobs_plan *plan, int64_t *shape)
{
    if (!plan || !shape)
        return 0;
    memcpy(shape, plan->shape, (size_t)plan->ndim * sizeof *shape);
    return plan->ndim;
}

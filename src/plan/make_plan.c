/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The life of a plan: the granularity adds axes, shapes follow from the axes, g_idx adds the order of columns.
 * Sizes that do not fit 64 bits fail with a message. */
#include "plan/make_plan.h"

#include <string.h>

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

int qobs_plan_find_axis(const qobs_plan *plan, int given, const char *name, qobs_error *error)
{
    const int ndim = plan->value.ndim, axis = given < 0 ? given + ndim : given;
    if (axis >= 0 && axis < ndim)
        return axis;
    qobs_invalid(error, "%s: is %d, value has %d dimensions, allowed are %d to %d", name, given, ndim, -ndim, ndim - 1);
    return -1;
}

int qobs_plan_find_axes(const qobs_plan *plan, const struct axes *axes, const char *name, unsigned *found,
                        qobs_error *error)
{
    *found = 0;
    for (int i = 0; i < axes->count; i++) {
        const int axis = qobs_plan_find_axis(plan, axes->axis[i], name, error);
        if (axis < 0)
            return QOBS_ERROR_INVALID_ARGUMENT;
        *found |= 1u << axis;
    }
    return QOBS_OK;
}

int qobs_plan_check_divides(const qobs_plan *plan, const char *what, int64_t size, int dimension, qobs_error *error)
{
    if (dimension < 0)
        return qobs_invalid(error, "%s%lld needs a value with a dimension", what, (long long)size);
    if (plan->value.shape[dimension] % size == 0)
        return QOBS_OK;
    return qobs_invalid(error, "%s%lld does not divide dimension %d of value, %lld", what, (long long)size, dimension,
                        (long long)plan->value.shape[dimension]);
}

unsigned qobs_plan_all_axes(const qobs_plan *plan) { return (1u << plan->value.ndim) - 1; }

void qobs_plan_add_kept(qobs_plan *plan, unsigned kept)
{
    const struct view *v = &plan->value;
    if (kept == 0)
        qobs_plan_add_axis(plan, AXIS_QPARAM, 1, 0);
    plan->range.ndim = v->ndim;
    for (int i = 0; i < v->ndim; i++) {
        plan->range.extent[i] = kept >> i & 1 ? v->shape[i] : 1;
        if (kept >> i & 1)
            qobs_plan_add_dimension(plan, AXIS_QPARAM, i);
    }
    for (int i = 0; i < v->ndim; i++)
        if (!(kept >> i & 1))
            qobs_plan_add_dimension(plan, AXIS_GROUP, i);
}

void qobs_plan_add_kept_or_global(qobs_plan *plan, unsigned kept)
{
    if (kept == 0 || kept == qobs_plan_all_axes(plan))
        qobs_plan_add_global(plan);
    else
        qobs_plan_add_kept(plan, kept);
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

/* ---- g_idx --------------------------------------------------------------------------------------------------------
 */

/* The columns of a weight sorted by the group each belongs to (llm-compressor's activation ordering). */

static int64_t columns_of(const qobs_plan *plan) { return plan->value.shape[plan->value.ndim - 1]; }

static int64_t groups_of(const qobs_plan *plan) { return plan->axis[plan->axis[plan->axes - 1].outer].extent; }

/* Reads the entries of g_idx: group numbers below the number of columns. Sets *none if g_idx is not filled in. */
static int read_g_idx(const qobs_plan *plan, const struct granularity_params *params, const struct view *g_idx,
                      int64_t *group, bool *none, qobs_error *error)
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
            return qobs_invalid(error, "g_idx: entry %lld is %lld, allowed are 0 to %lld", (long long)i,
                                (long long)group[i], (long long)columns - 1);
        *none |= group[i] == -1 && params->minus_one_is_none;
    }
    return QOBS_OK;
}

/* Sets the position at which each group starts. first[v + 1] is the position of the first column with value v. */
static int start_groups(qobs_plan *plan, const struct granularity_params *params, const int64_t *first,
                        qobs_error *error)
{
    const int64_t columns = columns_of(plan), groups = groups_of(plan);
    int64_t named = 0;
    if (!params->named_groups) {
        for (int64_t g = 0; g <= groups; g++)
            plan->start[g] = g < groups ? g * params->group_size : columns;
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
    return qobs_invalid(error, "g_idx: names %lld groups, group_size %lld makes %lld of %lld columns", (long long)named,
                        (long long)params->group_size, (long long)groups, (long long)columns);
}

/* A stable ascending counting sort of the columns by g_idx. */
static int sort_columns(qobs_plan *plan, const struct granularity_params *params, const struct view *g_idx,
                        qobs_error *error)
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
        status = read_g_idx(plan, params, g_idx, group, &none, error);
    if (status == QOBS_OK && !none) {
        /* first[v + 2] counts value v. The sums make first[v + 1] the position of its first column; filling advances
         * that to the first column of the next value. */
        memset(first, 0, firsts);
        for (int64_t i = 0; i < columns; i++)
            first[group[i] + 2]++;
        for (int64_t v = 1; v <= columns + 1; v++)
            first[v] += first[v - 1];
        plan->start = start;
        status = start_groups(plan, params, first, error);
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

static int check_g_idx(const qobs_plan *plan, const struct granularity *granularity, const struct view *g_idx,
                       qobs_error *error)
{
    const enum strategy strategy = granularity->params.strategy;
    if (!granularity->ops->g_idx || !qobs_has_groups(strategy))
        return qobs_invalid(error,
                            "g_idx: goes with base name weight and strategy group or tensor_group, not with %s and %s",
                            qobs_word_text(qobs_base_names, granularity->params.base_name),
                            strategy == STRATEGY_NONE ? "none" : qobs_word_text(qobs_strategies, strategy));
    if (g_idx->dtype != QOBS_I32 && g_idx->dtype != QOBS_I64)
        return qobs_invalid(error, "g_idx: dtype is %s, allowed are I32 and I64", qobs_dtype_name(g_idx->dtype));
    const int64_t columns = plan->value.ndim > 0 ? plan->value.shape[plan->value.ndim - 1] : 0;
    if (columns > UINT32_MAX)
        return qobs_invalid(error, "g_idx: value has %lld columns, allowed are %lld", (long long)columns,
                            (long long)UINT32_MAX);
    if (g_idx->ndim != 1 || g_idx->shape[0] != columns)
        return qobs_invalid(error, "g_idx: has %d dimensions and %lld entries, expected 1 and %lld", g_idx->ndim,
                            (long long)g_idx->elements, (long long)columns);
    return QOBS_OK;
}

static int order_columns(qobs_plan *plan, const struct granularity *granularity, const struct view *g_idx,
                         qobs_error *error)
{
    const int status = check_g_idx(plan, granularity, g_idx, error);
    return status != QOBS_OK || plan->value.elements == 0 ? status
                                                          : sort_columns(plan, &granularity->params, g_idx, error);
}

void qobs_plan_unmake(qobs_plan *plan)
{
    if (plan->order)
        qobs_release(&plan->runtime, plan->order, (size_t)columns_of(plan) * sizeof(int64_t));
    if (plan->start)
        qobs_release(&plan->runtime, plan->start, ((size_t)groups_of(plan) + 1) * sizeof(int64_t));
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
    const int status = g_idx ? order_columns(plan, granularity, &index, error) : QOBS_OK;
    if (status == QOBS_OK)
        return qobs_succeed(error);
    qobs_plan_unmake(plan);
    return status;
}

int qobs_plan_new(qobs_plan **result, const struct granularity *granularity, const qobs_tensor *value,
                  const qobs_tensor *g_idx, const struct runtime *runtime, qobs_error *error)
{
    qobs_plan *plan = qobs_allocate(runtime, sizeof *plan);
    RETURN_IF_FAILED(qobs_require_memory(plan, "plan", sizeof *plan, error));
    const int status = qobs_plan_make(plan, granularity, value, g_idx, runtime, error);
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

int qobs_plan_shape(const qobs_plan *plan, int64_t *shape, size_t size)
{
    if (!plan || !shape || size < (size_t)plan->ndim * sizeof *shape)
        return 0;
    memcpy(shape, plan->shape, (size_t)plan->ndim * sizeof *shape);
    return plan->ndim;
}

/* ---- Granularity ------------------------------------------------------------------------------------------------- */

/* The words of granularity settings, and the granularity of observers without ranges. */

const struct word qobs_base_names[] = {{"weight", BASE_WEIGHT},
                                       {"input", BASE_INPUT},
                                       {"output", BASE_OUTPUT},
                                       {"q", BASE_Q},
                                       {"k", BASE_K},
                                       {"v", BASE_V},
                                       {0}};
const struct word qobs_strategies[] = {{"tensor", STRATEGY_TENSOR},       {"channel", STRATEGY_CHANNEL},
                                       {"group", STRATEGY_GROUP},         {"tensor_group", STRATEGY_TENSOR_GROUP},
                                       {"block", STRATEGY_BLOCK},         {"token", STRATEGY_TOKEN},
                                       {"attn_head", STRATEGY_ATTN_HEAD}, {0}};

static int fail_without_ranges(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    (void)plan;
    return qobs_invalid(error, "config: %s looks at no tensor", params->name);
}

const struct granularity_ops qobs_granularity_none = {.flatten = fail_without_ranges};

static int flatten_along(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    unsigned kept;
    RETURN_IF_FAILED(qobs_plan_find_axes(plan, &params->axes, "dim", &kept, error));
    plan->keying = params->keying;
    qobs_plan_add_kept_or_global(plan, kept);
    return QOBS_OK;
}

const struct granularity_ops qobs_granularity_along = {.flatten = flatten_along};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads g_idx, sorts the columns by it and finds where each group starts. */
#include <string.h>

#include "base/error.h"
#include "plan/loops.h"
#include "plan/make_plan.h"

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
    if (!granularity->ops->g_idx || (strategy != STRATEGY_GROUP && strategy != STRATEGY_TENSOR_GROUP))
        return qobs_invalid(error,
                            "g_idx: goes with base name weight and strategy group or tensor_group, not with %s and %s",
                            qobs_base_name_text(granularity->params.base_name), qobs_strategy_text((int)strategy));
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

int qobs_plan_order_columns(qobs_plan *plan, const struct granularity *granularity, const struct view *g_idx,
                            qobs_error *error)
{
    const int status = check_g_idx(plan, granularity, g_idx, error);
    return status != QOBS_OK || plan->value.elements == 0 ? status
                                                          : sort_columns(plan, &granularity->params, g_idx, error);
}

void qobs_plan_release_order(qobs_plan *plan)
{
    if (plan->order)
        qobs_release(&plan->runtime, plan->order, (size_t)columns_of(plan) * sizeof(int64_t));
    if (plan->start)
        qobs_release(&plan->runtime, plan->start, ((size_t)groups_of(plan) + 1) * sizeof(int64_t));
}

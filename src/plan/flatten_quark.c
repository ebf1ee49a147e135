/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AMD Quark's observers: an axis is swapped with the first (channels) or the last one (groups, blocks); the order of
 * the others stays. */
#include "plan/make_plan.h"

/* The dimensions of value in the order they have after ch_axis and dimension `place` are swapped. */
static int swap_axis(const qobs_plan *plan, const struct granularity_params *params, int place,
                     int order[QOBS_MAX_NDIM], qobs_error *error)
{
    const struct view *v = &plan->value;
    if (v->ndim < 1)
        return qobs_invalid(error, "value: has no dimensions, %s needs at least 1", params->name);
    const int axis = qobs_plan_find_axis(plan, params->ch_axis, "ch_axis", error);
    if (axis < 0)
        return QOBS_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < v->ndim; i++)
        order[i] = i;
    order[place] = axis;
    order[axis] = place;
    return QOBS_OK;
}

/* A range for each index of ch_axis; a 1-dimensional value (a bias) has one for each element. */
static int flatten_channel(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    int order[QOBS_MAX_NDIM];
    RETURN_IF_FAILED(swap_axis(plan, params, 0, order, error));
    qobs_plan_add_dimension(plan, AXIS_QPARAM, order[0]);
    for (int i = 1; i < plan->value.ndim; i++)
        qobs_plan_add_dimension(plan, AXIS_GROUP, order[i]);
    return QOBS_OK;
}

/* Upstream's group_size -1: all of the second dimension after the swap is reduced. For 2-dimensional values that is a
 * row. */
static int flatten_row_groups(qobs_plan *plan, const struct granularity_params *params, const int *order,
                              qobs_error *error)
{
    if (plan->value.ndim < 2)
        return qobs_invalid(error, "value: has 1 dimension, %s with group_size -1 needs at least 2", params->name);
    int64_t rows = 1;
    for (int i = 0; i < plan->value.ndim; i++)
        if (i != 1) {
            qobs_plan_add_dimension(plan, AXIS_QPARAM, order[i]);
            rows *= plan->value.shape[order[i]];
        }
    qobs_plan_add_dimension(plan, AXIS_GROUP, order[1]);
    plan->scale = (struct shape){.ndim = 2, .extent = {rows, 1}};
    return QOBS_OK;
}

/* Runs of group_size along the axis. The scales are a row of groups for each row. So are the ranges if the last run of
 * a row is padded, else they are one list. */
static int flatten_group(qobs_plan *plan, const struct granularity_params *params, qobs_error *error)
{
    int order[QOBS_MAX_NDIM];
    const int last = plan->value.ndim - 1;
    RETURN_IF_FAILED(swap_axis(plan, params, last < 0 ? 0 : last, order, error));
    if (params->group_size == -1)
        return flatten_row_groups(plan, params, order, error);
    if (!params->ragged)
        RETURN_IF_FAILED(qobs_plan_check_divides(plan, "group_size: ", params->group_size, order[last], error));
    int64_t rows = 1;
    for (int i = 0; i < last; i++) {
        qobs_plan_add_dimension(plan, AXIS_QPARAM, order[i]);
        rows *= plan->value.shape[order[i]];
    }
    qobs_plan_add_groups(plan, order[last], params->group_size);
    const int64_t length = plan->value.shape[order[last]], groups = plan->axis[last].extent;
    plan->padded = length % params->group_size != 0;
    plan->scale = (struct shape){.ndim = 2, .extent = {rows, groups}};
    plan->range = params->ragged ? plan->scale : (struct shape){.ndim = 1, .extent = {rows * groups}};
    return QOBS_OK;
}

const struct granularity_ops qobs_granularity_quark_channel = {.flatten = flatten_channel};
const struct granularity_ops qobs_granularity_quark_group = {.flatten = flatten_group};

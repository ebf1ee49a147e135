/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AMD Quark's observers: an axis is swapped with the first (channels) or the last one (groups, blocks), the rest keeps its
 * order. */
#include "base/error.h"
#include "plan/plan.h"

/* ch_axis as an index; the dimensions of value in the order they have after it has changed places with `place`. */
static int swap_axis(const qobs_plan *plan, const qobs_config *config, int place, int order[QOBS_MAX_NDIM],
                     qobs_error *error)
{
    const struct view *v = &plan->value;
    if (v->ndim < 1)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: has no dimensions, %s needs at least 1",
                         config->preset->name);
    const int axis = config->ch_axis < 0 ? config->ch_axis + v->ndim : config->ch_axis;
    if (axis < 0 || axis >= v->ndim)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "ch_axis: is %d, value has dimensions %d to %d",
                         config->ch_axis, -v->ndim, v->ndim - 1);
    for (int i = 0; i < v->ndim; i++)
        order[i] = i;
    order[place] = axis;
    order[axis] = place;
    return QOBS_OK;
}

static void add(qobs_plan *plan, enum axis_role role, int dimension)
{
    qobs_plan_add_axis(plan, role, plan->value.shape[dimension], plan->value.strides[dimension]);
}

/* A range for each index of ch_axis; a 1-dimensional value (a bias) has one for each element. */
int qobs_flatten_quark_channel(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    int order[QOBS_MAX_NDIM];
    const int status = swap_axis(plan, config, 0, order, error);
    if (status != QOBS_OK)
        return status;
    add(plan, AXIS_QPARAM, order[0]);
    for (int i = 1; i < plan->value.ndim; i++)
        add(plan, AXIS_GROUP, order[i]);
    return QOBS_OK;
}

/* Upstream's group_size -1: the second dimension, once swapped, is reduced whole. For 2-dimensional values that is a row. */
static int whole_groups(qobs_plan *plan, const qobs_config *config, const int *order, qobs_error *error)
{
    if (plan->value.ndim < 2)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "value: has 1 dimension, %s with group_size -1 needs at least 2", config->preset->name);
    int64_t rows = 1;
    for (int i = 0; i < plan->value.ndim; i++)
        if (i != 1) {
            add(plan, AXIS_QPARAM, order[i]);
            rows *= plan->value.shape[order[i]];
        }
    add(plan, AXIS_GROUP, order[1]);
    plan->scale = (struct shape){.ndim = 2, .extent = {rows, 1}};
    return QOBS_OK;
}

/* The rows along the axis and the pieces of them; returns how many rows there are. */
static int64_t add_rows_of_pieces(qobs_plan *plan, const qobs_config *config, const int *order)
{
    const int last = plan->value.ndim - 1;
    const int64_t length = plan->value.shape[order[last]], stride = plan->value.strides[order[last]];
    int64_t rows = 1;
    for (int i = 0; i < last; i++) {
        add(plan, AXIS_QPARAM, order[i]);
        rows *= plan->value.shape[order[i]];
    }
    const int outer = qobs_plan_add_outer(plan, length, config->group_size, stride);
    qobs_plan_add_inner(plan, outer, length, config->group_size, stride);
    return rows;
}

/* Runs of group_size along the axis. The ranges are one list, the scales a row of groups for each row. */
int qobs_flatten_quark_group(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    int order[QOBS_MAX_NDIM];
    const int last = plan->value.ndim - 1;
    const int status = swap_axis(plan, config, last < 0 ? 0 : last, order, error);
    if (status != QOBS_OK)
        return status;
    if (config->group_size == -1)
        return whole_groups(plan, config, order, error);
    const int64_t length = plan->value.shape[order[last]], groups = length / config->group_size;
    if (length % config->group_size != 0)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "group_size: %lld does not divide dimension %d (ch_axis) of value, %lld",
                         (long long)config->group_size, order[last], (long long)length);
    const int64_t rows = add_rows_of_pieces(plan, config, order);
    plan->range = (struct shape){.ndim = 1, .extent = {rows * groups}};
    plan->scale = (struct shape){.ndim = 2, .extent = {rows, groups}};
    return QOBS_OK;
}

/* The same with the last run of a row filled up; ranges and scales are a row of blocks for each row. */
int qobs_flatten_quark_block(qobs_plan *plan, const qobs_config *config, qobs_error *error)
{
    int order[QOBS_MAX_NDIM];
    const int last = plan->value.ndim - 1;
    const int status = swap_axis(plan, config, last < 0 ? 0 : last, order, error);
    if (status != QOBS_OK)
        return status;
    const int64_t length = plan->value.shape[order[last]];
    const int64_t rows = add_rows_of_pieces(plan, config, order);
    plan->padded = length % config->group_size != 0;
    plan->range = plan->scale =
        (struct shape){.ndim = 2, .extent = {rows, length / config->group_size + (plan->padded ? 1 : 0)}};
    return QOBS_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Making plans: a granularity applied to a tensor. */
#pragma once

#include "plan/plan.h"
#include "qobs/plan.h"

/* The building blocks of granularity rules: they append axes to a plan that has a value but no axes yet. */

/* Each appends one axis and returns its index. */
int qobs_plan_add_axis(qobs_plan *plan, enum axis_role role, int64_t extent, int64_t stride);
int qobs_plan_add_dimension(qobs_plan *plan, enum axis_role role, int dimension);

/* Appends the dimensions from `first` up to before `end`. */
void qobs_plan_add_dimensions(qobs_plan *plan, enum axis_role role, int first, int end);

/* Splits a dimension into groups of `size` elements: a qparam axis of ceil(length / size) and a group axis. */
void qobs_plan_add_groups(qobs_plan *plan, int dimension, int64_t size);

/* Splits the first two dimensions into blocks: two qparam axes, then two group axes. */
void qobs_plan_add_blocks(qobs_plan *plan, const int64_t block[2]);

/* ch_axis as an index of a dimension, or -1 with a message. */
int qobs_plan_find_ch_axis(const qobs_plan *plan, int ch_axis, qobs_error *error);

/* Marks the dimensions of value among `axes`; negative ones count from the end. `name` is the argument's name for
 * messages. */
int qobs_plan_find_kept(const qobs_plan *plan, const struct axes *axes, const char *name, bool kept[QOBS_MAX_NDIM],
                        int *count, qobs_error *error);

/* One range for each index of the kept dimensions, or one for the tensor. */
void qobs_plan_add_kept(qobs_plan *plan, const bool kept[QOBS_MAX_NDIM]);
void qobs_plan_add_global(qobs_plan *plan);

/* g_idx: the columns of a weight sorted by the group each belongs to (llm-compressor's activation ordering). */

/* Checks g_idx against a plan that has its axes, then sets order and start of the plan. Both stay NULL if g_idx is not
 * filled in. */
int qobs_plan_order_columns(qobs_plan *plan, const struct granularity *granularity, const struct view *g_idx,
                            qobs_error *error);
void qobs_plan_release_order(qobs_plan *plan);

/* Makes a plan in memory of the caller. g_idx may be NULL. After success the caller calls qobs_plan_unmake; after a
 * failure nothing is left to release. */
int qobs_plan_make(qobs_plan *plan, const struct granularity *granularity, const qobs_tensor *value,
                   const qobs_tensor *g_idx, const struct runtime *runtime, qobs_error *error);
void qobs_plan_unmake(qobs_plan *plan);

/* Does the same in allocated memory; qobs_plan_destroy releases it. */
int qobs_plan_new(qobs_plan **result, const struct granularity *granularity, const qobs_tensor *value,
                  const qobs_tensor *g_idx, const struct runtime *runtime, qobs_error *error);

/* These keep the dimensions `axes` and reduce every other one to 1. None kept, or all, give one range for the tensor.
 */
int qobs_plan_make_along(qobs_plan *plan, enum keying keying, const qobs_tensor *value, const struct axes *axes,
                         const struct runtime *runtime, qobs_error *error);
int qobs_plan_new_along(qobs_plan **result, enum keying keying, const qobs_tensor *value, const struct axes *axes,
                        const struct runtime *runtime, qobs_error *error);

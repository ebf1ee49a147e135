/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Making plans: a granularity applied to a tensor. */
#pragma once

#include "plan/plan.h"

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

/* The dimension that an argument names, or -1 with a message; negative ones count from the end. Several as bits. */
int qobs_plan_find_axis(const qobs_plan *plan, int given, const char *name, qobs_error *error);
int qobs_plan_find_axes(const qobs_plan *plan, const struct axes *axes, const char *name, unsigned *found,
                        qobs_error *error);
unsigned qobs_plan_all_axes(const qobs_plan *plan);

/* Fails unless `size`, before which the message has `what`, divides the dimension; below 0: there is none. */
int qobs_plan_check_divides(const qobs_plan *plan, const char *what, int64_t size, int dimension, qobs_error *error);

/* One range for each index of the kept dimensions, with the others as 1; one without dimensions for the tensor; or that
 * if all or none are kept: to torch an empty list of dimensions to reduce means all of them. */
void qobs_plan_add_kept(qobs_plan *plan, unsigned kept);
void qobs_plan_add_global(qobs_plan *plan);
void qobs_plan_add_kept_or_global(qobs_plan *plan, unsigned kept);

/* Makes a plan in memory of the caller. g_idx may be NULL. After success the caller calls qobs_plan_unmake; after a
 * failure nothing is left to release. */
int qobs_plan_make(qobs_plan *plan, const struct granularity *granularity, const qobs_tensor *value,
                   const qobs_tensor *g_idx, const struct runtime *runtime, qobs_error *error);
void qobs_plan_unmake(qobs_plan *plan);

/* Does the same in allocated memory; qobs_plan_destroy releases it. */
int qobs_plan_new(qobs_plan **result, const struct granularity *granularity, const qobs_tensor *value,
                  const qobs_tensor *g_idx, const struct runtime *runtime, qobs_error *error);

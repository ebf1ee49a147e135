/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Making plans: a granularity applied to a tensor. */
#pragma once

#include "plan/plan.h"

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

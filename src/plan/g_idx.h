/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* g_idx: the columns of a weight sorted by the group each belongs to (llm-compressor's activation ordering). */
#pragma once

#include "plan/plan.h"

/* Checks g_idx against a plan that has its axes, then sets order and start of the plan. Both stay NULL if g_idx is not
 * filled in. */
int qobs_plan_order_columns(qobs_plan *plan, const struct granularity *granularity, const struct view *g_idx,
                            qobs_error *error);
void qobs_plan_release_order(qobs_plan *plan);

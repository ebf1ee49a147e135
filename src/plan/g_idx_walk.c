/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rows, runs and elements of a plan whose columns g_idx orders. Elements are gathered one by one. */
#include "plan/loops.h"

#include <string.h>

/* The last axis is that of columns within groups, the one before that of groups; all others are rows. */
static const struct axis *columns_of(const qobs_plan *plan) { return &plan->axis[plan->axes - 1]; }
static int64_t groups_of(const qobs_plan *plan) { return plan->axis[columns_of(plan)->outer].extent; }

void qobs_g_idx_rows_of(const qobs_plan *plan, const unsigned char *in, const qobs_plan *out_plan, unsigned char *out,
                        struct g_idx_rows *rows)
{
    const int last = plan->axes - 1, count = plan->axis[last].outer;
    rows->columns = plan->axis[last].unpadded;
    rows->groups = groups_of(plan);
    rows->rows = 1;
    rows->column_in = plan->axis[last].stride;
    rows->column_out = out_plan ? out_plan->axis[last].stride : 0;
    rows->loops.in = in;
    rows->loops.out = out;
    rows->loops.qparam = 0;
    rows->loops.count = count;
    for (int i = count - 1; i >= 0; i--) {
        const struct axis *a = &plan->axis[i];
        rows->loops.loop[i] =
            (struct loop){a->extent, a->stride, out_plan ? out_plan->axis[i].stride : 0, rows->rows * rows->groups};
        rows->rows *= a->extent;
    }
}

void qobs_g_idx_groups(const qobs_plan *plan, uint32_t *group)
{
    for (int64_t g = 0; g < groups_of(plan); g++)
        for (int64_t i = plan->start[g]; i < plan->start[g + 1]; i++)
            group[plan->order[i]] = (uint32_t)g;
}

int64_t qobs_g_idx_longest_group(const qobs_plan *plan)
{
    int64_t longest = 0;
    for (int64_t g = 0; g < groups_of(plan); g++)
        longest = plan->start[g + 1] - plan->start[g] > longest ? plan->start[g + 1] - plan->start[g] : longest;
    return longest;
}

/* ---- Runs ------------------------------------------------------------------------------------------------------ */

int64_t qobs_g_idx_run_count(const qobs_plan *plan)
{
    return plan->qparams / groups_of(plan) * columns_of(plan)->unpadded;
}

void qobs_g_idx_run(const qobs_plan *plan, int64_t index, qobs_run *run)
{
    const struct axis *column = columns_of(plan);
    const int64_t place = index % column->unpadded;
    int64_t row = index / column->unpadded, group = 0;
    for (int64_t low = 0, high = groups_of(plan) - 1; low <= high;) {
        const int64_t middle = (low + high) / 2;
        if (plan->start[middle] <= place)
            low = (group = middle) + 1;
        else
            high = middle - 1;
    }
    *run = (qobs_run){.length = 1, .stride = column->stride, .offset = plan->order[place] * column->stride};
    run->qparam = row * groups_of(plan) + group;
    for (int i = column->outer - 1; i >= 0; i--) {
        run->offset += row % plan->axis[i].extent * plan->axis[i].stride;
        row /= plan->axis[i].extent;
    }
}

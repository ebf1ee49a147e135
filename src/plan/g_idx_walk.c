/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "plan/g_idx_walk.h"

#include <string.h>

#include "plan/gather.h"

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

/* ---- Runs -------------------------------------------------------------------------------------------------------------- */

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

/* ---- Elements of a qparam ---------------------------------------------------------------------------------------------- */

static void place(const struct element_source *source, struct elements *e)
{
    const qobs_plan *plan = source->plan;
    const int outer = columns_of(plan)->outer;
    const int64_t group = e->position[outer];
    e->offset = 0;
    for (int i = 0; i < outer; i++)
        e->offset += e->position[i] * plan->axis[i].stride;
    e->order = plan->order + plan->start[group];
    e->count = plan->start[group + 1] - plan->start[group];
    e->stride[0] = columns_of(plan)->stride;
}

static void next(const struct element_source *source, struct elements *e)
{
    const qobs_plan *plan = source->plan;
    for (int i = columns_of(plan)->outer; i >= 0 && ++e->position[i] == plan->axis[i].extent; i--)
        e->position[i] = 0;
    place(source, e);
}

static struct qobs_prefetch memory_of(const struct element_source *source, const struct elements *e, int64_t first, int64_t end)
{
    (void)source, (void)e, (void)first, (void)end;
    return (struct qobs_prefetch){NULL, NULL};
}

static void load(const struct element_source *source, const struct elements *e, int64_t first, size_t n, double factor, float *out)
{
    const size_t size = qobs_dtype_size(source->plan->dtype);
    unsigned char gathered[QOBS_SEARCH_MOST * 8];
    for (size_t i = 0; i < n; i++)
        memcpy(gathered + i * size, source->data + e->offset + e->order[first + (int64_t)i] * e->stride[0], size);
    source->load(gathered, n, factor, source->finite_only, out);
    pad_lanes(out, n);
}

static void weights(const struct element_source *source, const struct elements *e, int64_t first, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = source->column_weight ? source->column_weight[e->order[first + (int64_t)i]] : 1;
    pad_lanes(out, n);
}

const struct gather qobs_gather_g_idx = {place, next, memory_of, load, weights};

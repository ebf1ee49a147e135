/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The elements of qparams in the order of g_idx: the columns of a group lie anywhere in a row. */
#include <string.h>

#include "plan/gather.h"
#include "qobs/plan.h"

static const struct axis *columns_of(const qobs_plan *plan) { return &plan->axis[plan->axes - 1]; }

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

static struct prefetch_ahead memory_of(const struct element_source *source, const struct elements *e, int64_t first,
                                       int64_t end)
{
    (void)source, (void)e, (void)first, (void)end;
    return (struct prefetch_ahead){NULL, NULL};
}

static void load(const struct element_source *source, const struct elements *e, int64_t first, size_t n, double factor,
                 float *out)
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

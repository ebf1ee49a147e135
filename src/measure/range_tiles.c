/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Tiles of about 64 KB: the ranges of their qparams are found right before these are searched. */
#include "measure/reduce.h"

enum { TILE_BYTES = 1 << 16 }; /* fits L2 of every machine */

static bool is_split(const qobs_plan *plan, int axis)
{
    bool split = false;
    for (int i = 0; i < plan->axes; i++)
        split = split || plan->axis[i].outer == axis;
    return split;
}

void qobs_range_tiles_of(struct range_tiles *t, const qobs_plan *plan, int64_t parts)
{
    int outermost = 0;
    while (outermost < plan->axes && plan->axis[outermost].extent == 1)
        outermost++;
    *t = (struct range_tiles){.plan = plan, .axis = -1, .entries = 1, .qparams = plan->qparams, .most = 1};
    if (plan->order || outermost == plan->axes || plan->axis[outermost].role != AXIS_QPARAM ||
        is_split(plan, outermost) || plan->axis[outermost].extent < parts)
        return;
    const struct axis *a = &plan->axis[outermost];
    const int64_t bytes = plan->value.elements / a->extent * (int64_t)qobs_dtype_size(plan->dtype);
    t->axis = outermost;
    t->entries = a->extent;
    t->qparams = plan->qparams / a->extent;
    t->most = bytes < TILE_BYTES ? TILE_BYTES / bytes : 1;
    t->bytes = a->stride == bytes && bytes <= TILE_BYTES ? bytes : 0;
}

/* The begin of a qparam's memory, as if the qparams of an entry followed each other in it. */
static const unsigned char *share_of(const struct range_tiles *t, const unsigned char *data, int64_t qparam)
{
    return data + qparam / t->qparams * t->bytes + qparam % t->qparams * t->bytes / t->qparams;
}

struct prefetch_ahead qobs_range_tile_prefetch(const struct range_tiles *t, const unsigned char *data, size_t first,
                                               size_t count, size_t end)
{
    const int64_t from = (int64_t)first + t->most * t->qparams, after = from + (int64_t)count, last = (int64_t)end;
    if (t->bytes == 0 || from >= last)
        return (struct prefetch_ahead){NULL, NULL};
    return (struct prefetch_ahead){share_of(t, data, from), share_of(t, data, after < last ? after : last)};
}

bool qobs_range_tile_reduce(const struct range_tiles *t, const struct kernel_table *kernels, const unsigned char *data,
                            enum nonfinite_mode mode, int64_t first, int64_t count, unsigned char *min,
                            unsigned char *max)
{
    const struct runtime alone = {0}; /* one thread and no allocator: the reduction does without scratch */
    const int64_t at = first * t->qparams * (int64_t)qobs_dtype_size(t->plan->dtype);
    struct nonfinite_count nonfinite = {0};
    qobs_plan tile = *t->plan;
    tile.axis[t->axis].extent = count;
    tile.qparams = count * t->qparams;
    qobs_reduce_minmax(&alone, kernels, &tile, data + first * tile.axis[t->axis].stride,
                       mode == NONFINITE_IGNORE ? mode : NONFINITE_PROPAGATE, min + at, max + at, &nonfinite, NULL);
    return nonfinite.nan == 0 && nonfinite.inf == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Splits the rows of a batch for threads and calls the kernel that spreads the columns of a row over groups. */
#include <string.h>

#include "base/error.h"
#include "base/split.h"
#include "measure/reduce.h"
#include "plan/loops.h"

/* Rows with gaps between their elements are copied, this many at a time: a multiple of every kernel's lanes. */
enum { COPIED_ROWS = 64 };

struct indexed {
    const struct kernel_table *kernels;
    enum kernel_dtype dtype;
    size_t element;
    unsigned char *min, *max;
    struct g_idx_rows rows;
    bool gaps;                /* between the elements of a row */
    uint32_t *group;          /* of each column */
    unsigned char *workspace; /* of each part: the kernel's scratch, then copied rows if there are gaps */
    size_t scratch, copied;   /* bytes */
    struct nonfinite_count nonfinite[SPLIT_MAX_PARTS];
};

static void copy_row(const struct indexed *d, const unsigned char *x, unsigned char *to)
{
    for (int64_t j = 0; j < d->rows.columns; j++)
        memcpy(to + (size_t)j * d->element, x + j * d->rows.column_in, d->element);
}

/* n rows from `row` on, `stride` bytes apart. */
static void reduce_rows(const struct indexed *d, int64_t row, int64_t n, int64_t stride, unsigned char *workspace,
                        struct nonfinite_count *nonfinite)
{
    const int64_t columns = d->rows.columns, groups = d->rows.groups, step = d->gaps ? COPIED_ROWS : n;
    for (int64_t first = 0; first < n; first += step) {
        const int64_t some = n - first < step ? n - first : step;
        const struct loop_entry at = qobs_loops_at(&d->rows.loops, row + first);
        const size_t out = (size_t)at.qparam * d->element;
        for (int64_t i = 0; d->gaps && i < some; i++)
            copy_row(d, at.in + i * stride, workspace + d->scratch + (size_t)(i * columns) * d->element);
        d->kernels->minmax_indexed[d->dtype](d->gaps ? workspace + d->scratch : at.in,
                                             d->gaps ? (ptrdiff_t)((size_t)columns * d->element) : (ptrdiff_t)stride,
                                             (size_t)some, (size_t)columns, d->group, (size_t)groups, d->min + out,
                                             d->max + out, workspace, nonfinite);
    }
}

static void reduce_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct indexed *d = argument;
    const struct loops *loops = &d->rows.loops;
    const struct loop *innermost = loops->count > 0 ? &loops->loop[loops->count - 1] : &qobs_single_loop;
    for (int64_t row = from, n; row < to; row += n) {
        n = innermost->extent - row % innermost->extent;
        n = n < to - row ? n : to - row;
        reduce_rows(d, row, n, innermost->in, d->workspace + (size_t)part * (d->scratch + d->copied),
                    &d->nonfinite[part]);
    }
}

/* A part has at least COPIED_ROWS rows. */
static struct split split_rows(const struct runtime *runtime, const struct indexed *d)
{
    const int64_t rows = d->rows.rows, most = rows / COPIED_ROWS;
    const struct split_rule rule = {
        .min_total = 1 << 18, .parts_per_thread = 1, .max_parts = most < SPLIT_MAX_PARTS ? most : SPLIT_MAX_PARTS};
    return qobs_split(runtime, &rule, rows, rows * d->rows.columns * (int64_t)d->element, 0); /* bytes */
}

int qobs_reduce_indexed(const struct runtime *runtime, const struct kernel_table *kernels, const qobs_plan *plan,
                        const unsigned char *data, unsigned char *min, unsigned char *max,
                        struct nonfinite_count *nonfinite, qobs_error *error)
{
    struct indexed d = {.kernels = kernels, .element = qobs_dtype_size(plan->dtype), .min = min, .max = max};
    qobs_kernel_dtype_of(plan->dtype, &d.dtype);
    qobs_g_idx_rows_of(plan, data, NULL, NULL, &d.rows);
    d.gaps = d.rows.column_in != (int64_t)d.element;
    const struct split split = split_rows(runtime, &d);
    d.scratch = QOBS_INDEXED_SCRATCH((size_t)d.rows.groups);
    d.copied = d.gaps ? COPIED_ROWS * (size_t)d.rows.columns * d.element : 0;
    const size_t index = (size_t)d.rows.columns * sizeof *d.group,
                 size = index + (size_t)split.parts * (d.scratch + d.copied);
    d.group = qobs_allocate(runtime, size);
    if (!d.group)
        return qobs_no_memory(error, "g_idx: no memory for %zu bytes", size);
    d.workspace = (unsigned char *)d.group + index;
    qobs_g_idx_groups(plan, d.group);
    qobs_split_run(runtime, &split, reduce_part, &d);
    for (int64_t i = 0; i < split.parts; i++) {
        nonfinite->nan += d.nonfinite[i].nan;
        nonfinite->inf += d.nonfinite[i].inf;
    }
    qobs_release(runtime, d.group, size);
    return QOBS_OK;
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

/* Tiles of about 64 KB: the ranges of their qparams are found right before these are searched. */

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

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "measure/reduce_indexed.h"

#include <string.h>

#include "base/error.h"
#include "plan/split.h"

/* Rows with gaps between their elements are copied that many at a time, which is a multiple of every kernel's lanes. */
enum { STRIP = 64 };

struct indexed {
    const struct qobs_kernels *kernels;
    enum qobs_kernel_dtype dtype;
    size_t element;
    const qobs_plan *plan;
    const unsigned char *data;
    unsigned char *min, *max;
    int64_t rows, columns, groups;
    bool gaps;
    uint32_t *group; /* of each column */
    unsigned char *workspace; /* for each part: the kernel's scratch, then a strip of rows where there are gaps */
    size_t scratch, strip;
    struct qobs_nonfinite nonfinite[SPLIT_MAX_PARTS];
};

static const unsigned char *row_at(const struct indexed *d, int64_t row)
{
    const unsigned char *x = d->data;
    for (int i = d->plan->axis[d->plan->axes - 1].outer - 1; i >= 0; i--) {
        x += row % d->plan->axis[i].extent * d->plan->axis[i].stride;
        row /= d->plan->axis[i].extent;
    }
    return x;
}

static void copy_row(const struct indexed *d, const unsigned char *x, unsigned char *to)
{
    const int64_t stride = d->plan->axis[d->plan->axes - 1].stride;
    for (int64_t j = 0; j < d->columns; j++)
        memcpy(to + (size_t)j * d->element, x + j * stride, d->element);
}

/* Rows that one stride leads along, from `row` on. */
static void do_rows(const struct indexed *d, int64_t row, int64_t n, int64_t stride, unsigned char *workspace,
                    struct qobs_nonfinite *nonfinite)
{
    const int64_t step = d->gaps ? STRIP : n;
    for (int64_t first = 0; first < n; first += step) {
        const int64_t some = n - first < step ? n - first : step;
        const size_t out = (size_t)((row + first) * d->groups) * d->element;
        const unsigned char *x = row_at(d, row + first);
        for (int64_t i = 0; d->gaps && i < some; i++)
            copy_row(d, x + i * stride, workspace + d->scratch + (size_t)(i * d->columns) * d->element);
        d->kernels->minmax_indexed[d->dtype](d->gaps ? workspace + d->scratch : x,
                                             d->gaps ? (ptrdiff_t)((size_t)d->columns * d->element) : (ptrdiff_t)stride,
                                             (size_t)some, (size_t)d->columns, d->group, (size_t)d->groups, d->min + out,
                                             d->max + out, workspace, nonfinite);
    }
}

static void reduce_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct indexed *d = argument;
    const int last = d->plan->axis[d->plan->axes - 1].outer - 1; /* the axis of rows, if there is one */
    const int64_t run = last < 0 ? 1 : d->plan->axis[last].extent, stride = last < 0 ? 0 : d->plan->axis[last].stride;
    for (int64_t row = from, n; row < to; row += n) {
        n = run - row % run;
        n = n < to - row ? n : to - row;
        do_rows(d, row, n, stride, d->workspace + (size_t)part * (d->scratch + d->strip), &d->nonfinite[part]);
    }
}

/* A part has at least STRIP rows. */
static struct split split_rows(const struct runtime *runtime, const struct indexed *d)
{
    const int64_t strips = d->rows / STRIP;
    const struct split_rule rule = {
        .min_total = 1 << 18, .parts_per_thread = 1, .max_parts = strips < SPLIT_MAX_PARTS ? strips : SPLIT_MAX_PARTS};
    return qobs_split(runtime, &rule, d->rows, d->rows * d->columns * (int64_t)d->element, 0); /* bytes */
}

int qobs_reduce_indexed(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                        const unsigned char *data, unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite,
                        qobs_error *error)
{
    const struct axis *fine = &plan->axis[plan->axes - 1];
    struct indexed d = {.kernels = kernels,
                        .element = qobs_dtype_size(plan->dtype),
                        .plan = plan,
                        .data = data,
                        .min = min,
                        .max = max,
                        .columns = fine->unpadded,
                        .groups = plan->axis[fine->outer].extent};
    qobs_kernel_dtype_of(plan->dtype, &d.dtype);
    d.rows = plan->qparams / d.groups;
    d.gaps = fine->stride != (int64_t)d.element;
    const struct split split = split_rows(runtime, &d);
    d.scratch = QOBS_INDEXED_SCRATCH((size_t)d.groups);
    d.strip = d.gaps ? STRIP * (size_t)d.columns * d.element : 0;
    const size_t index = (size_t)d.columns * sizeof *d.group, size = index + (size_t)split.parts * (d.scratch + d.strip);
    d.group = qobs_allocate(runtime, size);
    if (!d.group)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "g_idx: no memory for %zu bytes", size);
    d.workspace = (unsigned char *)d.group + index;
    for (int64_t g = 0; g < d.groups; g++)
        for (int64_t i = plan->start[g]; i < plan->start[g + 1]; i++)
            d.group[plan->order[i]] = (uint32_t)g;
    qobs_split_run(runtime, &split, reduce_part, &d);
    for (int64_t i = 0; i < split.parts; i++) {
        nonfinite->nan += d.nonfinite[i].nan;
        nonfinite->inf += d.nonfinite[i].inf;
    }
    qobs_release(runtime, d.group, size);
    return QOBS_OK;
}

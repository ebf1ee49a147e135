/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The elements of qparams in memory order. Moving to the next qparam only moves an offset, unless a split dimension
 * reaches its short last group. */
#include "plan/gather.h"

#include <string.h>

#include "plan/loops.h"
#include "qobs/plan.h"

int64_t qobs_elements_most(const qobs_plan *plan)
{
    int64_t most = 1;
    if (plan->order)
        return qobs_g_idx_longest_group(plan);
    for (int i = 0; i < plan->axes; i++)
        most *= plan->axis[i].role == AXIS_QPARAM ? 1 : plan->axis[i].extent;
    return most;
}

void qobs_elements_at(const struct element_source *source, int64_t qparam, struct elements *e)
{
    e->gather = source->plan->order ? &qobs_gather_g_idx : &qobs_gather_memory;
    for (int i = source->plan->axes - 1; i >= 0; i--) {
        const struct axis *a = &source->plan->axis[i];
        e->position[i] = a->role == AXIS_QPARAM ? qparam % a->extent : 0;
        qparam /= a->role == AXIS_QPARAM ? a->extent : 1;
    }
    e->gather->place(source, e);
}

/* ---- Memory order ---------------------------------------------------------------------------------------------- */

/* Appends an axis, or extends the one before if that continues through the same memory. */
static void add_axis(struct elements *e, int64_t extent, int64_t stride, bool may_join)
{
    const int last = e->axes - 1;
    e->count *= extent;
    if (may_join && last >= 0 && e->stride[last] == stride * extent) {
        e->extent[last] *= extent;
        e->stride[last] = stride;
        return;
    }
    e->extent[e->axes] = extent;
    e->stride[e->axes++] = stride;
}

static void place(const struct element_source *source, struct elements *e)
{
    const qobs_plan *plan = source->plan;
    e->offset = 0;
    e->column = 0;
    e->axes = 0;
    e->count = 1;
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        if (a->role == AXIS_QPARAM) {
            e->offset += e->position[i] * a->stride;
            continue;
        }
        const int64_t before = a->outer < 0 ? 0 : e->position[a->outer] * a->extent;
        const int64_t present = a->outer < 0 || a->unpadded - before > a->extent ? a->extent : a->unpadded - before;
        if (i == plan->axes - 1)
            e->column = before;
        add_axis(e, present, a->stride, !source->column_weight);
    }
    if (e->axes == 0)
        add_axis(e, 1, (int64_t)qobs_dtype_size(plan->dtype), false);
}

/* Does what place() would do if only the offset and the column change; false: the number of elements changes, too. */
static bool advance(const struct element_source *source, int axis, struct elements *e)
{
    const qobs_plan *plan = source->plan;
    const struct axis *last = &plan->axis[plan->axes - 1];
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        if (a->outer == axis && (e->position[axis] + 1) * a->extent > a->unpadded)
            return false;
    }
    e->offset += plan->axis[axis].stride;
    if (last->outer == axis)
        e->column += last->extent;
    return true;
}

static void next(const struct element_source *source, struct elements *e)
{
    bool carried = false;
    for (int i = source->plan->axes - 1; i >= 0; i--) {
        const struct axis *a = &source->plan->axis[i];
        if (a->role != AXIS_QPARAM)
            continue;
        if (++e->position[i] < a->extent) {
            if (carried || !advance(source, i, e))
                place(source, e);
            return;
        }
        e->position[i] = 0;
        carried = true;
    }
    place(source, e);
}

/* A run along the last axis that begins with element `first`: returns its length, at most n. *inner is the index along
 * that axis, *offset that of the run's index 0 in bytes. */
static size_t run_at(const struct elements *e, int64_t first, size_t n, int64_t *offset, int64_t *inner)
{
    const int last = e->axes - 1;
    *offset = e->offset;
    *inner = first;
    if (first >= e->extent[last]) {
        int64_t outer = first / e->extent[last];
        *inner = first % e->extent[last];
        for (int i = last - 1; i >= 0; i--) {
            *offset += outer % e->extent[i] * e->stride[i];
            outer /= e->extent[i];
        }
    }
    const int64_t left = e->extent[last] - *inner;
    return left < (int64_t)n ? (size_t)left : n;
}

static struct prefetch_ahead memory_of(const struct element_source *source, const struct elements *e, int64_t first,
                                       int64_t end)
{
    const int64_t size = (int64_t)qobs_dtype_size(source->plan->dtype);
    const unsigned char *const x = source->data + e->offset;
    if (e->axes != 1 || e->stride[0] != size || first >= e->count)
        return (struct prefetch_ahead){NULL, NULL};
    return (struct prefetch_ahead){x + first * size, x + (end < e->count ? end : e->count) * size};
}

static void load(const struct element_source *source, const struct elements *e, int64_t first, size_t n, double factor,
                 float *out)
{
    const size_t size = qobs_dtype_size(source->plan->dtype);
    const int64_t stride = e->stride[e->axes - 1];
    unsigned char gathered[QOBS_SEARCH_MOST * 8];
    for (size_t done = 0, length; done < n; done += length) {
        int64_t offset, inner;
        length = run_at(e, first + (int64_t)done, n - done, &offset, &inner);
        const unsigned char *x = source->data + offset + inner * stride;
        if (stride != (int64_t)size) {
            for (size_t i = 0; i < length; i++)
                memcpy(gathered + i * size, x + (int64_t)i * stride, size);
            x = gathered;
        }
        source->load(x, length, factor, source->finite_only, out + done);
    }
    pad_lanes(out, n);
}

static void weights(const struct element_source *source, const struct elements *e, int64_t first, size_t n, float *out)
{
    for (size_t done = 0, length; done < n; done += length) {
        int64_t offset, inner;
        length = run_at(e, first + (int64_t)done, n - done, &offset, &inner);
        for (size_t i = 0; i < length; i++)
            out[done + i] = source->column_weight ? source->column_weight[e->column + inner + (int64_t)i] : 1;
    }
    pad_lanes(out, n);
}

const struct gather qobs_gather_memory = {place, next, memory_of, load, weights};

/* ---- In the order of g_idx --------------------------------------------------------------------------------------- */

/* The elements of qparams in the order of g_idx: the columns of a group lie anywhere in a row. */

static const struct axis *columns_of(const qobs_plan *plan) { return &plan->axis[plan->axes - 1]; }

static void g_idx_place(const struct element_source *source, struct elements *e)
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

static void g_idx_next(const struct element_source *source, struct elements *e)
{
    const qobs_plan *plan = source->plan;
    for (int i = columns_of(plan)->outer; i >= 0 && ++e->position[i] == plan->axis[i].extent; i--)
        e->position[i] = 0;
    g_idx_place(source, e);
}

static struct prefetch_ahead g_idx_memory_of(const struct element_source *source, const struct elements *e,
                                             int64_t first, int64_t end)
{
    (void)source, (void)e, (void)first, (void)end;
    return (struct prefetch_ahead){NULL, NULL};
}

static void g_idx_load(const struct element_source *source, const struct elements *e, int64_t first, size_t n,
                       double factor, float *out)
{
    const size_t size = qobs_dtype_size(source->plan->dtype);
    unsigned char gathered[QOBS_SEARCH_MOST * 8];
    for (size_t i = 0; i < n; i++)
        memcpy(gathered + i * size, source->data + e->offset + e->order[first + (int64_t)i] * e->stride[0], size);
    source->load(gathered, n, factor, source->finite_only, out);
    pad_lanes(out, n);
}

static void g_idx_weights(const struct element_source *source, const struct elements *e, int64_t first, size_t n,
                          float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = source->column_weight ? source->column_weight[e->order[first + (int64_t)i]] : 1;
    pad_lanes(out, n);
}

const struct gather qobs_gather_g_idx = {g_idx_place, g_idx_next, g_idx_memory_of, g_idx_load, g_idx_weights};

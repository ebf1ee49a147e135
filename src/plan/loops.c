/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Loops over tiles. A plan's axes become loops one to one; normalising then sorts them by stride with an insertion
 * sort, because there are few of them. */
#include "plan/loops.h"

#include <string.h>

#include "base/error.h"
#include "qobs/plan.h"

const struct loop qobs_single_loop = {1, 0, 0, 0};

unsigned qobs_plan_tiles(const qobs_plan *plan)
{
    unsigned n = 1;
    for (int i = 0; i < plan->axes; i++)
        n <<= plan->axis[i].outer >= 0;
    return n;
}

static void advance(struct loops *loops, const struct loop *loop, int64_t entries)
{
    loops->in += entries * loop->in;
    if (loops->out)
        loops->out += entries * loop->out;
    loops->qparam += entries * loop->qparam;
}

bool qobs_loops_of_tile(const qobs_plan *plan, unsigned tails, const unsigned char *in, const qobs_plan *out_plan,
                        unsigned char *out, struct loops *loops)
{
    int64_t qparams = 1;
    loops->in = in;
    loops->out = out;
    loops->qparam = 0;
    loops->count = plan->axes;
    for (int i = plan->axes - 1; i >= 0; i--) {
        const struct axis *a = &plan->axis[i];
        const bool apart = a->role == AXIS_QPARAM;
        loops->loop[i] =
            (struct loop){a->extent, a->stride, out_plan ? out_plan->axis[i].stride : 0, apart ? qparams : 0};
        qparams *= apart ? a->extent : 1;
    }
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *inner = &plan->axis[i];
        if (inner->outer < 0)
            continue;
        struct loop *outer = &loops->loop[inner->outer];
        const int64_t full = inner->unpadded / inner->extent, left = inner->unpadded % inner->extent;
        outer->extent = tails & 1 ? left > 0 : full;
        if (tails & 1) {
            advance(loops, outer, full);
            loops->loop[i].extent = left;
        }
        tails >>= 1;
    }
    for (int i = 0; i < loops->count; i++)
        if (loops->loop[i].extent == 0)
            return false;
    return true;
}

static int64_t stride_of(const struct loop *loop, enum loop_order order)
{
    return order == LOOPS_BY_OUTPUT ? loop->out : loop->in;
}

/* True if a belongs outside b. Strides are positive; a loop that reads the same memory again (stride 0) is outside of
 * all others. */
static bool is_outside(const struct loop *a, const struct loop *b, enum loop_order order)
{
    const int64_t from = stride_of(a, order), to = stride_of(b, order);
    return from == 0 || to == 0 ? from == 0 && to != 0 : from > to;
}

static bool continues(const struct loop *outer, const struct loop *inner)
{
    return outer->in == inner->in * inner->extent && outer->out == inner->out * inner->extent &&
           outer->qparam == inner->qparam * inner->extent;
}

void qobs_loops_normalise(struct loops *loops, enum loop_order order)
{
    int n = 0;
    for (int i = 0; i < loops->count; i++) {
        struct loop d = loops->loop[i];
        if (d.extent == 1)
            continue;
        if (stride_of(&d, order) < 0) {
            advance(loops, &d, d.extent - 1);
            d = (struct loop){d.extent, -d.in, -d.out, -d.qparam};
        }
        int at = n++;
        for (; at > 0 && is_outside(&d, &loops->loop[at - 1], order); at--)
            loops->loop[at] = loops->loop[at - 1];
        loops->loop[at] = d;
    }
    int joined = 0;
    for (int i = 0; i < n; i++) {
        const struct loop d = loops->loop[i];
        if (joined > 0 && continues(&loops->loop[joined - 1], &d))
            loops->loop[joined - 1] = (struct loop){loops->loop[joined - 1].extent * d.extent, d.in, d.out, d.qparam};
        else
            loops->loop[joined++] = d;
    }
    loops->count = joined;
}

struct loop_entry qobs_loops_at(const struct loops *loops, int64_t index)
{
    struct loop_entry at = {loops->in, loops->out, loops->qparam};
    for (int i = loops->count - 1; i >= 0; i--) {
        const struct loop *d = &loops->loop[i];
        const int64_t entry = i > 0 ? index % d->extent : index;
        at.in += entry * d->in;
        if (at.out)
            at.out += entry * d->out;
        at.qparam += entry * d->qparam;
        index = i > 0 ? index / d->extent : 0;
    }
    return at;
}

int64_t qobs_loops_elements(const struct loops *loops)
{
    int64_t elements = 1;
    for (int i = 0; i < loops->count; i++)
        elements *= loops->loop[i].extent;
    return elements;
}

void qobs_loops_cut(struct loops *loops, int loop, int64_t from, int64_t to)
{
    advance(loops, &loops->loop[loop], from);
    loops->loop[loop].extent = to - from;
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

/* The runs of a plan in the order of the flattened value, and a copy of the flattened value. */

/* A run goes along the last axis. */
static int64_t run_extent(const qobs_plan *plan) { return plan->axes == 0 ? 1 : plan->axis[plan->axes - 1].extent; }

int64_t qobs_plan_run_count(const qobs_plan *plan)
{
    if (!plan)
        return 0;
    if (plan->order)
        return qobs_g_idx_run_count(plan);
    int64_t runs = plan->padded ? 2 : 1; /* the data, then the padding, of each row */
    for (int i = 0; i < plan->axes; i++)
        runs *= plan->axis[i].extent;
    return runs == 0 ? 0 : runs / run_extent(plan);
}

int qobs_plan_run(const qobs_plan *plan, int64_t index, qobs_run *run, qobs_error *error)
{
    if (!plan || !run)
        return qobs_invalid(error, "%s: is NULL", plan ? "run" : "plan");
    if (index < 0 || index >= qobs_plan_run_count(plan))
        return qobs_invalid(error, "index: is %lld, allowed are 0 to %lld", (long long)index,
                            (long long)qobs_plan_run_count(plan) - 1);
    if (plan->order) {
        qobs_g_idx_run(plan, index, run);
        return qobs_succeed(error);
    }
    const bool padding = plan->padded && index % 2 == 1;
    const int64_t length = run_extent(plan);
    int64_t position[MAX_AXES] = {0};
    int64_t rest = plan->padded ? index / 2 : index;
    for (int i = plan->axes - 2; i >= 0; i--) {
        position[i] = rest % plan->axis[i].extent;
        rest /= plan->axis[i].extent;
    }
    *run = (qobs_run){.length = length, .stride = plan->axes > 0 ? plan->axis[plan->axes - 1].stride : 0};
    int64_t present = length; /* elements of the run that are not padding */
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        if (a->role == AXIS_QPARAM)
            run->qparam = run->qparam * a->extent + position[i];
        run->offset += position[i] * a->stride;
        if (a->outer < 0)
            continue;
        const int64_t first = position[a->outer] * a->extent + position[i];
        if (i == plan->axes - 1)
            present = first + present > a->unpadded ? a->unpadded - first : present;
        else if (first >= a->unpadded)
            present = 0;
    }
    if (present < 0)
        present = 0;
    run->length = padding ? length - present : present;
    if (padding)
        run->offset = QOBS_PADDING;
    return qobs_succeed(error);
}

static bool same_layout(const struct view *a, const struct view *b)
{
    bool same = a->dtype == b->dtype && a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i] && a->strides[i] == b->strides[i];
    return same;
}

int qobs_plan_copy(const qobs_plan *plan, const qobs_tensor *value, void *out, size_t size, qobs_error *error)
{
    if (!plan || !out)
        return qobs_invalid(error, "%s: is NULL", plan ? "out" : "plan");
    struct view view;
    RETURN_IF_FAILED(qobs_view_of_tensor(&view, value, "value", error));
    if (!same_layout(&view, &plan->value))
        return qobs_invalid(error, "value: its dtype, shape or strides are not those of the plan");
    const size_t element = qobs_dtype_size(plan->dtype);
    const int64_t runs = qobs_plan_run_count(plan);
    size_t needed = 0;
    qobs_run run = {0};
    for (int64_t i = 0; i < runs; i++) {
        qobs_plan_run(plan, i, &run, NULL);
        needed += (size_t)run.length * element;
    }
    if (size != needed)
        return qobs_invalid(error, "size: is %zu bytes, expected %zu", size, needed);
    unsigned char *to = out;
    for (int64_t i = 0; i < runs; i++) {
        qobs_plan_run(plan, i, &run, NULL);
        for (int64_t j = 0; j < run.length; j++, to += element) {
            if (run.offset == QOBS_PADDING)
                memset(to, 0, element);
            else
                memcpy(to, view.data + run.offset + j * run.stride, element);
        }
    }
    return qobs_succeed(error);
}

/* ---- Matrices of any number of rows ------------------------------------------------------------------------------ */

bool qobs_row_geometry_of(const struct granularity *granularity, int64_t columns, struct row_geometry *geometry)
{
    struct row_geometry g = {.columns = columns};
    if (!granularity->ops->shared || !granularity->ops->shared(&granularity->params, &g.unit, &g.run))
        return false;
    if (g.run <= 0 || g.run > columns)
        g.run = columns;
    g.full = columns / g.run;
    g.left = columns % g.run;
    g.per_unit = g.full + (g.left > 0);
    g.whole_units = g.unit > 1 && granularity->ops->whole_units;
    *geometry = g;
    return true;
}

bool qobs_row_loops(const struct row_geometry *g, const struct row_span *s, unsigned tile, struct loops *loops)
{
    const int64_t unit = qobs_geometry_unit(g, s->rows), units = s->rows / unit, left_rows = s->rows % unit;
    const int64_t runs = s->columns / g->run, left_columns = s->columns % g->run;
    const bool last_rows = tile & 1, last_run = tile & 2;
    const struct loop loop[] = {
        {last_rows ? left_rows > 0 : units, unit * s->in_stride, unit * s->out_stride, g->per_unit},
        {last_run ? left_columns > 0 : runs, g->run * s->in_element, g->run * s->out_element, 1},
        {last_rows ? left_rows : unit, s->in_stride, s->out_stride, 0},
        {last_run ? left_columns : g->run, s->in_element, s->out_element, 0},
    };
    const int64_t row = last_rows ? units : 0, run = last_run ? runs : 0;
    loops->in = s->in + row * loop[0].in + run * loop[1].in;
    loops->out = s->out ? s->out + row * loop[0].out + run * loop[1].out : NULL;
    loops->qparam = s->qparam + row * loop[0].qparam + run;
    loops->count = sizeof loop / sizeof *loop;
    for (int i = 0; i < loops->count; i++) {
        if (loop[i].extent == 0)
            return false;
        loops->loop[i] = loop[i];
    }
    return true;
}

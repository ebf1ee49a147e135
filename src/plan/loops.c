/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Loops over tiles. A plan's axes become loops one to one; normalising then sorts them by stride with an insertion
 * sort, because there are few of them. */
#include "plan/loops.h"

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

void qobs_loops_join(struct loops *loops)
{
    int joined = 0;
    for (int i = 0; i < loops->count; i++) {
        const struct loop d = loops->loop[i];
        if (d.extent == 1)
            continue;
        if (joined > 0 && continues(&loops->loop[joined - 1], &d))
            loops->loop[joined - 1] = (struct loop){loops->loop[joined - 1].extent * d.extent, d.in, d.out, d.qparam};
        else
            loops->loop[joined++] = d;
    }
    loops->count = joined;
}

void qobs_loops_of_view(const struct view *view, int dimensions, struct loops *loops)
{
    loops->in = view->data;
    loops->out = NULL;
    loops->qparam = 0;
    loops->count = 0;
    for (int i = 0; i < dimensions; i++)
        loops->loop[loops->count++] = (struct loop){view->shape[i], view->strides[i], 0, 0};
    qobs_loops_join(loops);
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
    loops->count = n;
    qobs_loops_join(loops);
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

void qobs_loops_walk(const struct loop *loop, int count, struct loop_entry at, loop_visit *visit, void *argument)
{
    if (count == 0) {
        visit(argument, &at);
        return;
    }
    for (int64_t i = 0; i < loop->extent; i++) {
        const struct loop_entry entry = {at.in + i * loop->in, at.out ? at.out + i * loop->out : NULL,
                                         at.qparam + i * loop->qparam};
        qobs_loops_walk(loop + 1, count - 1, entry, visit, argument);
    }
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
    g.whole_units = g.unit > 1 && granularity->params.whole_blocks;
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

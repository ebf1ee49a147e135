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

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks lie along the qparam axis with the smallest stride. If qparams are closer to each other than elements, each
 * element is read for all qparams of a block before the next one. */
#include "plan/gather_block.h"

#include "number/native.h"

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* The last group of a split dimension may be short. It is a block of its own then. */
static bool has_tail(const qobs_plan *plan, int outer)
{
    for (int i = 0; i < plan->axes; i++)
        if (plan->axis[i].outer == outer)
            return plan->axis[i].unpadded < plan->axis[outer].extent * plan->axis[i].extent;
    return false;
}

void qobs_gather_blocks_of(struct gather_blocks *s, const qobs_plan *plan, int most)
{
    *s = (struct gather_blocks){.plan = plan, .most = most, .along = -1, .parts = 1, .count = 1};
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        const bool closer = s->along < 0 || magnitude(a->stride) < magnitude(plan->axis[s->along].stride);
        if (a->role == AXIS_QPARAM && a->extent > 1 && closer)
            s->along = i;
    }
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        if (i == s->along) {
            const bool tail = has_tail(plan, i);
            s->parts = (a->extent - tail + most - 1) / most + tail;
        }
        if (a->role == AXIS_QPARAM)
            s->count *= (size_t)(i == s->along ? s->parts : a->extent);
    }
}

void qobs_gather_block_at(const struct gather_blocks *s, size_t index, struct gather_block *block)
{
    const qobs_plan *plan = s->plan;
    int64_t position[MAX_AXES] = {0};
    size_t weight = 1; /* of an axis in the index of a qparam */
    *block = (struct gather_block){.qparams = 1, .elements = 1};
    for (int i = plan->axes - 1; i >= 0; i--) {
        const struct axis *a = &plan->axis[i];
        if (a->role != AXIS_QPARAM)
            continue;
        const size_t extent = (size_t)(i == s->along ? s->parts : a->extent);
        position[i] = (int64_t)(index % extent);
        index /= extent;
        if (i == s->along) {
            const bool tail = has_tail(plan, i), last = position[i] == s->parts - 1;
            const int64_t from = tail && last ? a->extent - 1 : position[i] * s->most;
            const int64_t left = a->extent - (tail && !last) - from;
            position[i] = from;
            block->qparams = (int)(left < s->most ? left : s->most);
            block->next = weight;
            block->between = a->stride;
        }
        block->qparam += (size_t)position[i] * weight;
        block->offset += position[i] * a->stride;
        weight *= (size_t)a->extent;
    }
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        if (a->role == AXIS_QPARAM)
            continue;
        const int64_t left = a->outer < 0 ? a->extent : a->unpadded - position[a->outer] * a->extent;
        block->extent[block->axes] = left < a->extent ? left : a->extent;
        block->stride[block->axes] = a->stride;
        block->elements *= block->extent[block->axes++];
    }
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

#define NATIVE_BODY "plan/gather_block.inl.h"
#include "number/native_each.inl.h"

void qobs_gather_block_read(const struct gather_block *s, qobs_dtype dtype, const unsigned char *data, int64_t first,
                            size_t n, float out[][BLOCK_ELEMENTS])
{
    int64_t position[MAX_AXES], rest = first;
    const unsigned char *x = data + s->offset;
    for (int i = s->axes - 1; i >= 0; i--) {
        position[i] = rest % s->extent[i];
        rest /= s->extent[i];
        x += position[i] * s->stride[i];
    }
    const int last = s->axes - 1;
    for (size_t done = 0; done < n;) {
        /* The rest of a run along the last axis. */
        const int64_t left = last < 0 ? 1 : s->extent[last] - position[last], stride = last < 0 ? 0 : s->stride[last];
        const size_t run = (size_t)left < n - done ? (size_t)left : n - done;
        FOR_NATIVE(dtype, read_run, s, x, stride, run, done, out)
        done += run;
        if (last < 0)
            break;
        x += (int64_t)run * stride;
        position[last] += (int64_t)run;
        for (int i = last; i > 0 && position[i] == s->extent[i]; i--) {
            x += s->stride[i - 1] - s->extent[i] * s->stride[i];
            position[i] = 0;
            position[i - 1]++;
        }
    }
}

void qobs_gather_elements_open(struct gather_elements *e, const qobs_plan *plan, const unsigned char *data)
{
    struct gather_blocks blocks;
    qobs_gather_blocks_of(&blocks, plan, 1);
    qobs_gather_block_at(&blocks, 0, &e->block);
    e->dtype = plan->dtype;
    e->data = data;
    e->from = 0;
    e->to = e->block.elements;
    e->n = 0;
}

bool qobs_gather_elements_next(struct gather_elements *e)
{
    const int64_t left = e->to - e->from;
    if (left <= 0)
        return false;
    e->n = (size_t)(left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS);
    qobs_gather_block_read(&e->block, e->dtype, e->data, e->from, e->n, e->x);
    e->from += (int64_t)e->n;
    return true;
}

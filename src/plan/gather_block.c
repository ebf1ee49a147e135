/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "plan/gather_block.h"

#include "number/native.h"

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Pieces of a cut dimension, of which the last may be short: a strip of its own then. */
static bool has_short_end(const qobs_plan *plan, int outer)
{
    for (int i = 0; i < plan->axes; i++)
        if (plan->axis[i].outer == outer)
            return plan->axis[i].unpadded < plan->axis[outer].extent * plan->axis[i].extent;
    return false;
}

void qobs_strips_of(struct strips *s, const qobs_plan *plan, int most)
{
    *s = (struct strips){.plan = plan, .most = most, .along = -1, .pieces = 1, .count = 1};
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        const bool closer = s->along < 0 || magnitude(a->stride) < magnitude(plan->axis[s->along].stride);
        if (a->role == AXIS_QPARAM && a->extent > 1 && closer)
            s->along = i;
    }
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        if (i == s->along) {
            const bool cut = has_short_end(plan, i);
            s->pieces = (a->extent - cut + most - 1) / most + cut;
        }
        if (a->role == AXIS_QPARAM)
            s->count *= (size_t)(i == s->along ? s->pieces : a->extent);
    }
}

void qobs_strip_at(const struct strips *s, size_t index, struct strip *strip)
{
    const qobs_plan *plan = s->plan;
    int64_t position[MAX_AXES] = {0};
    size_t weight = 1; /* of an axis in the index of a qparam */
    *strip = (struct strip){.qparams = 1, .elements = 1};
    for (int i = plan->axes - 1; i >= 0; i--) {
        const struct axis *a = &plan->axis[i];
        if (a->role != AXIS_QPARAM)
            continue;
        const size_t extent = (size_t)(i == s->along ? s->pieces : a->extent);
        position[i] = (int64_t)(index % extent);
        index /= extent;
        if (i == s->along) {
            const bool cut = has_short_end(plan, i), last = position[i] == s->pieces - 1;
            const int64_t from = cut && last ? a->extent - 1 : position[i] * s->most;
            const int64_t left = a->extent - (cut && !last) - from;
            position[i] = from;
            strip->qparams = (int)(left < s->most ? left : s->most);
            strip->next = weight;
            strip->between = a->stride;
        }
        strip->qparam += (size_t)position[i] * weight;
        strip->offset += position[i] * a->stride;
        weight *= (size_t)a->extent;
    }
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        if (a->role == AXIS_QPARAM)
            continue;
        const int64_t left = a->outer < 0 ? a->extent : a->unpadded - position[a->outer] * a->extent;
        strip->extent[strip->axes] = left < a->extent ? left : a->extent;
        strip->stride[strip->axes] = a->stride;
        strip->elements *= strip->extent[strip->axes++];
    }
}

/* ---- Reading ------------------------------------------------------------------------------------------------------ */

#define NATIVE_BODY "plan/gather_block.inl.h"
#include "number/native_each.inl.h"

void qobs_strip_read(const struct strip *s, qobs_dtype dtype, const unsigned char *data, int64_t first, size_t n,
                     float out[][STRIP_WORKSPACE])
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
        /* A run along the last axis, or what is left of it. */
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

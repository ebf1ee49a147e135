/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "plan/gather.h"

#include <string.h>

int64_t qobs_elements_most(const qobs_plan *plan)
{
    int64_t rows = 1, most = 0; /* of the last axis */
    for (int i = 0; i < plan->axes - 1; i++)
        rows *= plan->axis[i].role == AXIS_QPARAM ? 1 : plan->axis[i].extent;
    if (plan->axes > 0 && !plan->order)
        most = plan->axis[plan->axes - 1].role == AXIS_QPARAM ? 1 : plan->axis[plan->axes - 1].extent;
    for (int64_t g = 0; plan->order && g < plan->axis[plan->axis[plan->axes - 1].outer].extent; g++)
        most = plan->start[g + 1] - plan->start[g] > most ? plan->start[g + 1] - plan->start[g] : most;
    return plan->axes > 0 ? rows * most : 1;
}

/* Appends an axis, or makes the one before longer if that goes through the same memory. */
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

static void settle(const struct element_source *source, struct elements *e)
{
    const qobs_plan *plan = source->plan;
    e->offset = 0;
    e->column = 0;
    e->order = NULL;
    e->axes = 0;
    e->count = 1;
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        const bool last = i == plan->axes - 1;
        if (a->role == AXIS_QPARAM) {
            const bool ordered = plan->order && i == plan->axis[plan->axes - 1].outer;
            e->offset += ordered ? 0 : e->position[i] * a->stride;
            continue;
        }
        int64_t before = a->outer < 0 ? 0 : e->position[a->outer] * a->extent;
        int64_t present = a->outer < 0 || a->unpadded - before > a->extent ? a->extent : a->unpadded - before;
        if (last && plan->order) {
            before = plan->start[e->position[a->outer]];
            present = plan->start[e->position[a->outer] + 1] - before;
            e->order = plan->order + before;
        }
        if (last)
            e->column = before;
        add_axis(e, present, a->stride, !source->column_weight && !e->order);
    }
    if (e->axes == 0)
        add_axis(e, 1, (int64_t)qobs_dtype_size(plan->dtype), false);
}

void qobs_elements_at(const struct element_source *source, int64_t qparam, struct elements *e)
{
    for (int i = source->plan->axes - 1; i >= 0; i--) {
        const struct axis *a = &source->plan->axis[i];
        e->position[i] = a->role == AXIS_QPARAM ? qparam % a->extent : 0;
        qparam /= a->role == AXIS_QPARAM ? a->extent : 1;
    }
    settle(source, e);
}

/* What settle() would find where nothing but the place has changed, one further along that axis; false: something else may have. */
static bool move_on(const struct element_source *source, int axis, struct elements *e)
{
    const qobs_plan *plan = source->plan;
    const struct axis *last = &plan->axis[plan->axes - 1];
    if (plan->order)
        return false;
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

void qobs_elements_next(const struct element_source *source, struct elements *e)
{
    bool began_anew = false;
    for (int i = source->plan->axes - 1; i >= 0; i--) {
        const struct axis *a = &source->plan->axis[i];
        if (a->role != AXIS_QPARAM)
            continue;
        if (++e->position[i] < a->extent) {
            if (began_anew || !move_on(source, i, e))
                settle(source, e);
            return;
        }
        e->position[i] = 0;
        began_anew = true;
    }
    settle(source, e);
}

/* A run of them along the last axis, which begins with element `first`: how long it is, at most n, and where. */
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

struct qobs_prefetch qobs_elements_memory(const struct element_source *source, const struct elements *e, int64_t first, int64_t end)
{
    const int64_t size = (int64_t)qobs_dtype_size(source->plan->dtype);
    const unsigned char *const x = source->data + e->offset;
    if (e->order || e->axes != 1 || e->stride[0] != size || first >= e->count)
        return (struct qobs_prefetch){NULL, NULL};
    return (struct qobs_prefetch){x + first * size, x + (end < e->count ? end : e->count) * size};
}

static void pad(float *out, size_t n)
{
    for (; n % QOBS_SEARCH_LANES != 0; n++)
        out[n] = 0;
}

void qobs_elements_load(const struct element_source *source, const struct elements *e, int64_t first, size_t n, double factor,
                        float *out)
{
    const size_t size = qobs_dtype_size(source->plan->dtype);
    const int64_t stride = e->stride[e->axes - 1];
    unsigned char gathered[QOBS_SEARCH_MOST * 8];
    for (size_t done = 0, length; done < n; done += length) {
        int64_t offset, inner;
        length = run_at(e, first + (int64_t)done, n - done, &offset, &inner);
        const unsigned char *x = source->data + offset;
        if (stride == (int64_t)size && !e->order) {
            source->load(x + inner * stride, length, factor, source->finite_only, out + done);
            continue;
        }
        for (size_t i = 0; i < length; i++) {
            const int64_t at = inner + (int64_t)i;
            memcpy(gathered + i * size, x + (e->order ? e->order[at] : at) * stride, size);
        }
        source->load(gathered, length, factor, source->finite_only, out + done);
    }
    pad(out, n);
}

void qobs_elements_weights(const struct element_source *source, const struct elements *e, int64_t first, size_t n, float *out)
{
    for (size_t done = 0, length; done < n; done += length) {
        int64_t offset, inner;
        length = run_at(e, first + (int64_t)done, n - done, &offset, &inner);
        for (size_t i = 0; i < length; i++) {
            const int64_t at = inner + (int64_t)i;
            out[done + i] = !source->column_weight ? 1 : source->column_weight[e->order ? e->order[at] : e->column + at];
        }
    }
    pad(out, n);
}

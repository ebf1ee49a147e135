/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of adjacent qparams lie along the qparam axis with the smallest stride. If qparams are closer to each other
 * than elements, each element is read for all qparams of a block before the next one. */
#include "plan/block_reader.h"

#include "base/split.h"
#include "number/native.h"
#include "plan/row_list.h"

/* ---- The elements of a block ------------------------------------------------------------------------------------- */

static void add_axis(struct qparam_block *b, int64_t extent, int64_t stride, bool may_join)
{
    const int last = b->axes - 1;
    b->elements *= extent;
    if (may_join && last >= 0 && b->stride[last] == stride * extent) { /* it continues through the same memory */
        b->extent[last] *= extent;
        b->stride[last] = stride;
        return;
    }
    b->extent[b->axes] = extent;
    b->stride[b->axes++] = stride;
}

/* The columns of a group lie anywhere in a row. */
static void place_in_order(const qobs_plan *plan, struct qparam_block *b)
{
    const struct axis *columns = &plan->axis[plan->axes - 1];
    const int64_t *start = plan->start + b->position[columns->outer];
    for (int i = 0; i < columns->outer; i++)
        b->offset += b->position[i] * plan->axis[i].stride;
    b->order = plan->order + start[0];
    add_axis(b, start[1] - start[0], columns->stride, false);
}

/* Finds the elements of the qparam at b->position. join: axes that continue each other become one. */
static void place(const qobs_plan *plan, bool join, struct qparam_block *b)
{
    b->offset = b->column = 0;
    b->axes = 0;
    b->elements = 1;
    b->order = NULL;
    if (plan->order) {
        place_in_order(plan, b);
        return;
    }
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        if (a->role == AXIS_QPARAM) {
            b->offset += b->position[i] * a->stride;
            continue;
        }
        const int64_t before = a->outer < 0 ? 0 : b->position[a->outer] * a->extent;
        const int64_t present = a->outer < 0 || a->unpadded - before > a->extent ? a->extent : a->unpadded - before;
        if (i == plan->axes - 1)
            b->column = before;
        add_axis(b, present, a->stride, join);
    }
    if (b->axes == 0)
        add_axis(b, 1, (int64_t)qobs_dtype_size(plan->dtype), false);
}

/* A run along the last axis that begins with element `first`: returns its length, at most n. *inner is the index along
 * that axis, *offset that of the run's index 0 in bytes. */
static size_t run_at(const struct qparam_block *b, int64_t first, size_t n, int64_t *offset, int64_t *inner)
{
    const int last = b->axes - 1;
    *offset = b->offset;
    *inner = first;
    if (first >= b->extent[last]) {
        int64_t outer = first / b->extent[last];
        *inner = first % b->extent[last];
        for (int i = last - 1; i >= 0; i--) {
            *offset += outer % b->extent[i] * b->stride[i];
            outer /= b->extent[i];
        }
    }
    const int64_t left = b->extent[last] - *inner;
    return left < (int64_t)n ? (size_t)left : n;
}

/* ---- Blocks of adjacent qparams ---------------------------------------------------------------------------------- */

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* The last group of a split dimension may be short. It is a block of its own then. */
static bool has_tail(const qobs_plan *plan, int outer)
{
    for (int i = 0; i < plan->axes; i++)
        if (plan->axis[i].outer == outer)
            return plan->axis[i].unpadded < plan->axis[outer].extent * plan->axis[i].extent;
    return false;
}

void qobs_blocks_of(struct qparam_blocks *s, const qobs_plan *plan, int most)
{
    *s = (struct qparam_blocks){.plan = plan, .most = most, .along = -1, .parts = 1, .count = 1};
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

static void locate(const struct qparam_blocks *s, size_t index, bool join, struct qparam_block *b)
{
    const qobs_plan *plan = s->plan;
    size_t weight = 1; /* of an axis in the index of a qparam */
    b->qparams = 1;
    b->qparam = b->next = 0;
    b->between = 0;
    for (int i = plan->axes - 1; i >= 0; i--) {
        const struct axis *a = &plan->axis[i];
        b->position[i] = 0;
        if (a->role != AXIS_QPARAM)
            continue;
        const size_t extent = (size_t)(i == s->along ? s->parts : a->extent);
        int64_t position = (int64_t)(index % extent);
        index /= extent;
        if (i == s->along) {
            const bool tail = has_tail(plan, i), last = position == s->parts - 1;
            position = tail && last ? a->extent - 1 : position * s->most;
            const int64_t left = a->extent - (tail && !last) - position;
            b->qparams = (int)(left < s->most ? left : s->most);
            b->next = weight;
            b->between = a->stride;
        }
        b->position[i] = position;
        b->qparam += (size_t)position * weight;
        weight *= (size_t)a->extent;
    }
    place(plan, join, b);
}

void qobs_block_at(const struct qparam_blocks *s, size_t index, struct qparam_block *b) { locate(s, index, false, b); }

#define NATIVE_BODY "plan/block_reader.inl.h"
#include "number/native_each.inl.h"

size_t qobs_block_read(const struct qparam_block *b, qobs_dtype dtype, const unsigned char *data, int64_t first,
                       int64_t end, bool finite_only, float out[][BLOCK_ELEMENTS])
{
    const int64_t stride = b->stride[b->axes - 1];
    const size_t n = (size_t)(end - first < BLOCK_ELEMENTS ? end - first : BLOCK_ELEMENTS);
    for (size_t done = 0, length; done < n; done += length) {
        int64_t offset, inner;
        length = run_at(b, first + (int64_t)done, n - done, &offset, &inner);
        const unsigned char *x = data + offset + inner * stride;
        FOR_NATIVE(dtype, read_run, b, x, stride, length, done, out)
    }
    for (int q = 0; finite_only && q < b->qparams; q++)
        for (size_t i = 0; i < n; i++)
            out[q][i] = isfinite(out[q][i]) ? out[q][i] : 0;
    return n;
}

enum { MIN_BLOCKS = 64, MAX_PARTS = 64, MIN_PART = 64 /* chunks */ };

void qobs_block_tasks_of(struct block_tasks *t, const qobs_plan *plan, int most, int64_t chunk)
{
    struct qparam_block first;
    qobs_blocks_of(&t->blocks, plan, most);
    qobs_block_at(&t->blocks, 0, &first);
    t->part = first.elements; /* no block has more */
    if (t->blocks.count < MIN_BLOCKS)
        t->part = qobs_split_size(first.elements, MAX_PARTS, MIN_PART * chunk, chunk);
    t->parts = first.elements > 0 ? (size_t)((first.elements + t->part - 1) / t->part) : 1;
    t->count = t->blocks.count * t->parts;
}

size_t qobs_block_task_at(const struct block_tasks *t, size_t index, struct qparam_block *b, int64_t *from,
                          int64_t *end)
{
    const size_t part = index / t->blocks.count;
    qobs_block_at(&t->blocks, index % t->blocks.count, b);
    *from = (int64_t)part * t->part;
    *end = *from + t->part < b->elements ? *from + t->part : b->elements;
    return part;
}

void qobs_element_reader_open(struct element_reader *r, const qobs_plan *plan, const unsigned char *data)
{
    struct qparam_blocks blocks;
    qobs_blocks_of(&blocks, plan, 1);
    qobs_block_at(&blocks, 0, &r->block);
    r->dtype = plan->dtype;
    r->data = data;
    r->from = 0;
    r->to = r->block.elements;
    r->n = 0;
}

bool qobs_element_reader_next(struct element_reader *r)
{
    if (r->to <= r->from)
        return false;
    r->n = qobs_block_read(&r->block, r->dtype, r->data, r->from, r->to, false, r->x);
    r->from += (int64_t)r->n;
    return true;
}

/* ---- One qparam after the other ---------------------------------------------------------------------------------- */

int64_t qobs_elements_most(const qobs_plan *plan)
{
    int64_t most = 1;
    if (plan->order)
        return qobs_g_idx_longest_group(plan);
    for (int i = 0; i < plan->axes; i++)
        most *= plan->axis[i].role == AXIS_QPARAM ? 1 : plan->axis[i].extent;
    return most;
}

void qobs_block_of_qparam(const struct element_source *source, int64_t qparam, struct qparam_block *b)
{
    const struct qparam_blocks one = {.plan = source->plan, .along = -1};
    locate(&one, (size_t)qparam, !source->column_weight, b);
}

struct prefetch_ahead qobs_block_memory(const struct element_source *source, const struct qparam_block *b,
                                        int64_t first, int64_t end)
{
    const int64_t size = (int64_t)qobs_dtype_size(source->plan->dtype);
    const unsigned char *const x = source->data + b->offset;
    if (b->order || b->axes != 1 || b->stride[0] != size || first >= b->elements)
        return (struct prefetch_ahead){NULL, NULL};
    return (struct prefetch_ahead){x + first * size, x + (end < b->elements ? end : b->elements) * size};
}

/* Zeros up to a multiple of QOBS_SEARCH_LANES. */
static void pad_lanes(float *out, size_t n)
{
    for (; n % QOBS_SEARCH_LANES != 0; n++)
        out[n] = 0;
}

static void copy_in_order(int64_t size, size_t n, const unsigned char *x, const int64_t *order, int64_t stride,
                          unsigned char *out)
{
    for (size_t i = 0; i < n; i++, out += size)
        if (size == 2)
            memcpy(out, x + order[i] * stride, 2);
        else if (size == 4)
            memcpy(out, x + order[i] * stride, 4);
        else
            memcpy(out, x + order[i] * stride, 8);
}

void qobs_block_load(const struct element_source *source, const struct qparam_block *b, int64_t first, size_t n,
                     double factor, float *out)
{
    const int64_t size = (int64_t)qobs_dtype_size(source->plan->dtype);
    const int64_t stride = b->stride[b->axes - 1], *const order = b->order ? b->order + first : NULL;
    unsigned char gathered[QOBS_SEARCH_MOST * 8];
    for (size_t done = 0, length; done < n; done += length) {
        int64_t offset, inner;
        length = run_at(b, first + (int64_t)done, n - done, &offset, &inner);
        const unsigned char *x = source->data + offset + (order ? 0 : inner * stride);
        if (order)
            copy_in_order(size, length, x, order, stride, gathered);
        else if (stride != size)
            qobs_copy_elements(size, (int64_t)length, x, stride, gathered, size);
        source->load(order || stride != size ? gathered : x, length, factor, source->finite_only, out + done);
    }
    pad_lanes(out, n);
}

void qobs_block_weights(const struct element_source *source, const struct qparam_block *b, int64_t first, size_t n,
                        float *out)
{
    const float *const weight = source->column_weight;
    for (size_t done = 0, length; done < n; done += length) {
        int64_t offset, inner;
        length = run_at(b, first + (int64_t)done, n - done, &offset, &inner);
        for (size_t i = 0; i < length; i++) {
            const int64_t element = inner + (int64_t)i;
            out[done + i] = weight ? weight[b->order ? b->order[element] : b->column + element] : 1;
        }
    }
    pad_lanes(out, n);
}

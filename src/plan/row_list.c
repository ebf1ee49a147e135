/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "plan/row_list.h"

#include <string.h>

#include "qobs/experimental.h"

void qobs_rows_of_view(const struct view *v, const struct kernel_table *kernels, struct row_list *rows)
{
    enum kernel_dtype dtype = QOBS_KERNEL_F32;
    qobs_kernel_dtype_of(v->dtype, &dtype);
    *rows = (struct row_list){.columns = v->shape[v->ndim - 1],
                              .count = v->elements / v->shape[v->ndim - 1],
                              .column_in = v->strides[v->ndim - 1],
                              .element = qobs_dtype_size(v->dtype),
                              .load = kernels->search_load[dtype]};
    qobs_loops_of_view(v, v->ndim - 1, &rows->loops);
}

int64_t qobs_rows_together(const struct row_list *rows, int64_t row, int64_t end, int64_t *stride)
{
    const struct loops *loops = &rows->loops;
    const struct loop *innermost = loops->count > 0 ? &loops->loop[loops->count - 1] : &qobs_single_loop;
    const int64_t left = innermost->extent - row % innermost->extent;
    *stride = innermost->in;
    return left < end - row ? left : end - row;
}

enum { GATHERED = 128 }; /* columns at a time */

void qobs_row_load(const struct row_list *rows, const unsigned char *row, int64_t first, int64_t n, float *out)
{
    const int64_t stride = rows->column_in, element = (int64_t)rows->element;
    unsigned char buffer[8 * GATHERED];
    if (stride == element)
        rows->load(row + first * stride, (size_t)n, 1, rows->finite_only, out);
    for (int64_t i = 0; i < n && stride != element; i += GATHERED) {
        const int64_t some = n - i < GATHERED ? n - i : GATHERED;
        qobs_copy_elements(element, some, row + (first + i) * stride, stride, buffer, element);
        rows->load(buffer, (size_t)some, 1, rows->finite_only, out + i);
    }
    for (int64_t j = n; j % QOBS_SEARCH_LANES != 0; j++)
        out[j] = 0;
}

/* ---- With g_idx -------------------------------------------------------------------------------------------------- */

/* The last axis is that of columns within groups, the one before that of groups; all others are rows. */
static const struct axis *column_axis(const qobs_plan *plan) { return &plan->axis[plan->axes - 1]; }

static int64_t groups_of(const qobs_plan *plan) { return plan->axis[column_axis(plan)->outer].extent; }

void qobs_rows_of_plan(const qobs_plan *plan, const unsigned char *in, const qobs_plan *out_plan, unsigned char *out,
                       struct row_list *rows)
{
    const struct axis *columns = column_axis(plan);
    *rows = (struct row_list){.count = 1,
                              .columns = columns->unpadded,
                              .column_in = columns->stride,
                              .column_out = out_plan ? column_axis(out_plan)->stride : 0,
                              .groups = groups_of(plan),
                              .element = qobs_dtype_size(plan->dtype)};
    rows->loops.in = in;
    rows->loops.out = out;
    rows->loops.count = columns->outer;
    for (int i = columns->outer - 1; i >= 0; i--) {
        const struct axis *a = &plan->axis[i];
        rows->loops.loop[i] =
            (struct loop){a->extent, a->stride, out_plan ? out_plan->axis[i].stride : 0, rows->count * rows->groups};
        rows->count *= a->extent;
    }
    qobs_loops_join(&rows->loops);
}

void qobs_g_idx_groups(const qobs_plan *plan, uint32_t *group)
{
    for (int64_t g = 0; g < groups_of(plan); g++)
        for (int64_t i = plan->start[g]; i < plan->start[g + 1]; i++)
            group[plan->order[i]] = (uint32_t)g;
}

int64_t qobs_g_idx_longest_group(const qobs_plan *plan)
{
    int64_t longest = 0;
    for (int64_t g = 0; g < groups_of(plan); g++)
        longest = plan->start[g + 1] - plan->start[g] > longest ? plan->start[g + 1] - plan->start[g] : longest;
    return longest;
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

/* The runs of a plan in the order of the flattened value, and a copy of the flattened value. */

static int64_t g_idx_run_count(const qobs_plan *plan)
{
    return plan->qparams / groups_of(plan) * column_axis(plan)->unpadded;
}

/* Each column of each row is a run, in the order of the groups. */
static void g_idx_run(const qobs_plan *plan, int64_t index, qobs_run *run)
{
    const struct axis *column = column_axis(plan);
    const int64_t place = index % column->unpadded;
    int64_t row = index / column->unpadded, group = 0;
    for (int64_t low = 0, high = groups_of(plan) - 1; low <= high;) {
        const int64_t middle = (low + high) / 2;
        if (plan->start[middle] <= place)
            low = (group = middle) + 1;
        else
            high = middle - 1;
    }
    *run = (qobs_run){.length = 1, .stride = column->stride, .offset = plan->order[place] * column->stride};
    run->qparam = row * groups_of(plan) + group;
    for (int i = column->outer - 1; i >= 0; i--) {
        run->offset += row % plan->axis[i].extent * plan->axis[i].stride;
        row /= plan->axis[i].extent;
    }
}

/* A run goes along the last axis. */
static int64_t run_extent(const qobs_plan *plan) { return plan->axes == 0 ? 1 : plan->axis[plan->axes - 1].extent; }

int64_t qobs_plan_run_count(const qobs_plan *plan)
{
    if (!plan)
        return 0;
    if (plan->order)
        return g_idx_run_count(plan);
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
        g_idx_run(plan, index, run);
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

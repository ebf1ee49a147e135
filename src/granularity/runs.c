/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A plan's runs in the order of the flattened value, and the flattened value as a copy. */
#include <string.h>

#include "error.h"
#include "granularity/plan.h"

/* The axis a run goes along: the last one, unless g_idx scatters it. */
static int64_t run_extent(const qobs_plan *plan)
{
    return plan->order || plan->axes == 0 ? 1 : plan->axis[plan->axes - 1].extent;
}

int64_t qobs_plan_run_count(const qobs_plan *plan)
{
    int64_t runs = plan->padded ? 2 : 1; /* the data, then the padding, of each row */
    for (int i = 0; i < plan->axes; i++)
        runs *= plan->axis[i].extent;
    return runs == 0 ? 0 : runs / run_extent(plan);
}

int qobs_plan_run(const qobs_plan *plan, int64_t index, qobs_run *run, qobs_error *error)
{
    if (index < 0 || index >= qobs_plan_run_count(plan))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "index: is %lld, allowed are 0 to %lld", (long long)index,
                         (long long)qobs_plan_run_count(plan) - 1);
    const bool padding = plan->padded && index % 2 == 1;
    const int64_t length = run_extent(plan);
    int64_t position[MAX_AXES] = {0};
    int64_t rest = plan->padded ? index / 2 : index;
    const int rows = plan->axes > 0 && !plan->order ? plan->axes - 1 : plan->axes;
    for (int i = rows - 1; i >= 0; i--) {
        position[i] = rest % plan->axis[i].extent;
        rest /= plan->axis[i].extent;
    }
    *run = (qobs_run){.length = length};
    int64_t present = length; /* how many of the run's elements exist */
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *a = &plan->axis[i];
        if (a->role == AXIS_QPARAM)
            run->qparam = run->qparam * a->extent + position[i];
        if (a->coarse >= 0) {
            const int64_t first = position[a->coarse] * a->extent + position[i];
            if (i == rows)
                present = first + present > a->limit ? a->limit - first : present;
            else if (first >= a->limit)
                present = 0;
        }
        const bool scattered = plan->order && (i == plan->axes - 1 || i == plan->axis[plan->axes - 1].coarse);
        if (!scattered)
            run->offset += position[i] * a->stride;
    }
    if (present < 0)
        present = 0;
    if (plan->axes > 0) {
        const struct axis *last = &plan->axis[plan->axes - 1];
        run->stride = last->stride;
        if (plan->order && present > 0)
            run->offset += plan->order[position[last->coarse] * last->extent + position[plan->axes - 1]] * last->stride;
    }
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
    struct view view;
    int status = qobs_view_of_tensor(&view, value, "value", error);
    if (status != QOBS_OK)
        return status;
    if (!same_layout(&view, &plan->value))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: its dtype, shape or strides are not those of the plan");
    const size_t element = qobs_dtype_size(plan->dtype);
    const int64_t runs = qobs_plan_run_count(plan);
    size_t needed = 0;
    qobs_run run;
    for (int64_t i = 0; i < runs; i++) {
        qobs_plan_run(plan, i, &run, NULL);
        needed += (size_t)run.length * element;
    }
    if (size != needed)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu bytes, expected %zu", size, needed);
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

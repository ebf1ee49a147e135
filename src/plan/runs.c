/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The runs of a plan in the order of the flattened value, and a copy of the flattened value. */
#include <string.h>

#include "base/error.h"
#include "plan/loops.h"
#include "qobs/plan.h"

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

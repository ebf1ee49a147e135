/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/observe_search.h"

#include "formula/formula.h"
#include "measure/accumulators.h"
#include "range/grid_search.h"

/* The global scale of the tensor's range after the batch is accumulated; without a batch the one so far. */
static float next_global_scale(const qobs_observer *o, const struct whole *batch, qobs_dtype dtype)
{
    struct whole whole = o->whole;
    if (batch)
        qobs_keep_whole(&o->config, &whole, batch);
    else if (o->fused)
        return o->stages.formula.ops->global_scale(dtype, o->fused_amax);
    const struct range_view range = {.dtype = whole.dtype, .n = 1, .min = whole.min, .max = whole.max};
    return o->stages.formula.ops->global_scale(whole.dtype, qobs_amax_of_ranges(&range));
}

static int search_tensor(const qobs_observer *o, const qobs_tensor *value, struct whole *whole, qobs_error *error)
{
    static const struct axes none = {0};
    qobs_plan *plan;
    int status = qobs_plan_new_along(&plan, KEYING_NONE, value, &none, &o->runtime, error);
    if (status != QOBS_OK)
        return status;
    status = qobs_search_global(o, plan, plan->value.data, whole->min, whole->max, error);
    qobs_plan_destroy(plan);
    return status;
}

int qobs_search_global(const qobs_observer *o, const qobs_plan *plan, const unsigned char *data, void *min, void *max,
                       qobs_error *error)
{
    const struct grid_search search = {.runtime = &o->runtime,
                                       .kernels = o->kernels,
                                       .params = &o->stages.range.params.grid,
                                       .formula = &o->stages.formula,
                                       .nonfinite = o->stages.range.params.nonfinite,
                                       .plan = plan,
                                       .data = data,
                                       .each_global_scale = true,
                                       .min = min,
                                       .max = max};
    return qobs_grid_search(&search, error);
}

int qobs_search_observed(const qobs_observer *o, const qobs_plan *plan, const qobs_tensor *value, struct whole *whole,
                         struct ranges *batch, struct search_record *record, qobs_error *error)
{
    const struct range_params *params = &o->stages.range.params;
    float g = 0, *weights = NULL;
    int64_t columns = 0;
    int status = qobs_search_record_reserve(&o->runtime, record, (size_t)plan->qparams, error);
    if (status == QOBS_OK)
        status = qobs_search_weights(&o->runtime, &params->grid, &plan->value, &o->importance, record, &weights,
                                     &columns, error);
    if (status == QOBS_OK && whole)
        status = search_tensor(o, value, whole, error);
    const bool global = whole || (qobs_has_whole(&o->config) && (o->fused || o->whole.dtype != 0));
    if (status == QOBS_OK && global)
        g = next_global_scale(o, whole, plan->dtype);
    const struct grid_search search = {.runtime = &o->runtime,
                                       .kernels = o->kernels,
                                       .params = &params->grid,
                                       .formula = &o->stages.formula,
                                       .nonfinite = params->nonfinite,
                                       .plan = plan,
                                       .data = value->data,
                                       .column_weight = weights,
                                       .global_scale = global ? &g : NULL,
                                       .min = batch->min,
                                       .max = batch->max,
                                       .record = record};
    if (status == QOBS_OK)
        status = qobs_grid_search(&search, error);
    qobs_release(&o->runtime, weights, (size_t)columns * sizeof *weights);
    return status;
}

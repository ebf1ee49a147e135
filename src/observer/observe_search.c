/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/searches.h"

#include "base/error.h"
#include "plan/make_plan.h"
#include "search/grid_search.h"

/* The global scale of the tensor's range after the batch is accumulated; without a batch the one so far. */
static float next_global_scale(const qobs_observer *o, const struct global_range *batch, qobs_dtype dtype)
{
    struct global_range global = o->global_range;
    if (batch)
        qobs_accumulate_global(&o->stages.accumulator, &global, batch);
    else if (o->fused)
        return o->stages.formula.ops->global_scale(dtype, o->fused_amax);
    const struct range_view range = {.dtype = global.dtype, .n = 1, .min = global.min, .max = global.max};
    return o->stages.formula.ops->global_scale(global.dtype, qobs_amax_of_ranges(&range));
}

static int search_tensor(const qobs_observer *o, const qobs_tensor *value, struct global_range *global,
                         qobs_error *error)
{
    static const struct axes none = {0};
    qobs_plan *plan;
    RETURN_IF_FAILED(qobs_plan_new_along(&plan, o->stages.granularity.params.keying, value, &none, &o->runtime, error));
    const int status = qobs_search_global(o, plan, plan->value.data, global->min, global->max, error);
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

int qobs_search_batch(const qobs_observer *o, const qobs_plan *plan, const qobs_tensor *value,
                      struct global_range *global, struct ranges *batch, struct search_record *record,
                      qobs_error *error)
{
    const struct range_params *params = &o->stages.range.params;
    float g = 0, *weights = NULL;
    int64_t columns = 0;
    int status = qobs_search_record_reserve(&o->runtime, record, (size_t)plan->qparams, error);
    if (status == QOBS_OK)
        status = qobs_search_weights(&o->runtime, params, &plan->value, &o->importance, record, &weights,
                                     &columns, error);
    if (status == QOBS_OK && global)
        status = search_tensor(o, value, global, error);
    const bool from_tensors = o->stages.traits.global == GLOBAL_FROM_TENSORS;
    const bool scaled = global || (from_tensors && (o->fused || o->global_range.dtype != 0));
    if (status == QOBS_OK && scaled)
        g = next_global_scale(o, global, plan->dtype);
    const struct grid_search search = {.runtime = &o->runtime,
                                       .kernels = o->kernels,
                                       .params = &params->grid,
                                       .formula = &o->stages.formula,
                                       .nonfinite = params->nonfinite,
                                       .plan = plan,
                                       .data = value->data,
                                       .column_weight = weights,
                                       .global_scale = scaled ? &g : NULL,
                                       .min = batch->min,
                                       .max = batch->max,
                                       .record = record};
    if (status == QOBS_OK)
        status = qobs_grid_search(&search, error);
    qobs_release(&o->runtime, weights, (size_t)columns * sizeof *weights);
    return status;
}

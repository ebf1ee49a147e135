/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/observe_search.h"

#include "formula/formula.h"
#include "measure/accumulators.h"

/* The global scale of the whole tensor's range as it will be once the batch has entered it; without a batch the one there is. */
static float coming_global_scale(const qobs_observer *o, const struct whole *batch, qobs_dtype dtype)
{
    struct whole whole = o->whole;
    if (batch)
        qobs_keep_whole(&o->config, &whole, batch);
    else if (o->fused)
        return o->stages.formula.ops->global_scale(dtype, o->fused_amax);
    const struct range_view range = {.dtype = whole.dtype, .n = 1, .min = whole.min, .max = whole.max};
    return o->stages.formula.ops->global_scale(whole.dtype, qobs_amax_of_ranges(&range));
}

int qobs_search_observed(const qobs_observer *o, const qobs_plan *plan, const qobs_tensor *value, struct whole *whole,
                         struct ranges *batch, struct search_record *record, qobs_error *error)
{
    float g = 0, *weights = NULL;
    int64_t columns = 0;
    int status = qobs_search_record_reserve(&o->runtime, record, (size_t)plan->qparams, error);
    if (status == QOBS_OK)
        status = qobs_search_weights(&o->runtime, &o->config, plan, &o->importance, record, &weights, &columns, error);
    if (status == QOBS_OK && whole)
        status = qobs_search_whole(&o->runtime, o->kernels, &o->config, value, whole->min, whole->max, error);
    const bool global = whole || (qobs_has_whole(&o->config) && (o->fused || o->whole.dtype != 0));
    if (status == QOBS_OK && global)
        g = coming_global_scale(o, whole, plan->dtype);
    if (status == QOBS_OK)
        status = qobs_search_batch(&o->runtime, o->kernels, &o->config, plan, value->data, weights, global ? &g : NULL, false,
                                   batch->min, batch->max, record, error);
    qobs_release(&o->runtime, weights, (size_t)columns * sizeof *weights);
    return status;
}

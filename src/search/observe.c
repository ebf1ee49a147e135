/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "search/observe.h"

#include <string.h>

#include "convention/convention.h"
#include "statistic/keep.h"
#include "statistic/update.h"

/* The whole tensor's range, behind those of the qparams, becomes the one with the least error under a global scale of its own. */
static int search_whole(const qobs_observer *o, const struct layout *layout, const qobs_tensor *value, struct ranges *batch,
                        qobs_error *error)
{
    const size_t before = layout->qparams * qobs_dtype_size(layout->dtype);
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .allocator = o->runtime.allocator};
    qobs_config one = o->config;
    one.strategy = STRATEGY_TENSOR;
    one.has_group_size = false;
    one.dynamic = 0;
    qobs_plan *plan;
    int status = qobs_plan_create(&plan, &one, value, NULL, &runtime, error);
    if (status != QOBS_OK)
        return status;
    status = qobs_search_batch(&o->runtime, o->kernels, &o->config, plan, SEARCH_GLOBAL_SCALE, value->data, NULL, NULL,
                               batch->min + before, batch->max + before, NULL, error);
    qobs_plan_destroy(plan);
    return status;
}

/* The global scale of the whole tensor's range as it will be once the batch has entered it. */
static int coming_global_scale(const qobs_observer *o, const struct layout *layout, bool first, const struct kept *kept,
                               float *global_scale, qobs_error *error)
{
    const size_t size = qobs_dtype_size(layout->dtype), before = layout->qparams * size;
    struct ranges whole;
    const int status = qobs_allocate_ranges(&o->runtime, &whole, layout->dtype, 1, error);
    if (status != QOBS_OK)
        return status;
    const bool fresh = first || qobs_memoryless(&o->config);
    memcpy(whole.min, (fresh ? kept->batch.min : kept->state.min) + before, size);
    memcpy(whole.max, (fresh ? kept->batch.max : kept->state.max) + before, size);
    if (!fresh)
        qobs_update_lerp(layout->dtype, 1, whole.min, whole.max, kept->batch.min + before, kept->batch.max + before,
                         o->config.averaging_constant);
    const struct range_view range = {.dtype = layout->dtype, .n = 1, .min = whole.min, .max = whole.max};
    *global_scale = qobs_compressed_tensors_global_scale(&o->config, layout->dtype, qobs_compressed_tensors_amax(&range));
    qobs_release_ranges(&o->runtime, &whole);
    return QOBS_OK;
}

int qobs_search_observed(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout, const qobs_tensor *value,
                         bool first, struct kept *kept, struct search_record *record, qobs_error *error)
{
    float g, *weights = NULL;
    int64_t columns = 0;
    const bool global = layout->entries > layout->qparams;
    int status = qobs_search_record_reserve(&o->runtime, record, layout->qparams, error);
    if (status == QOBS_OK)
        status = qobs_search_weights(&o->runtime, &o->config, plan, &o->importance, record, &weights, &columns, error);
    if (status == QOBS_OK && global)
        status = search_whole(o, layout, value, &kept->batch, error);
    if (status == QOBS_OK && global)
        status = coming_global_scale(o, layout, first, kept, &g, error);
    if (status == QOBS_OK)
        status = qobs_search_batch(&o->runtime, o->kernels, &o->config, plan, SEARCH_SCALES, value->data, weights,
                                   global ? &g : NULL, kept->batch.min, kept->batch.max, record, error);
    qobs_release(&o->runtime, weights, (size_t)columns * sizeof *weights);
    return status;
}

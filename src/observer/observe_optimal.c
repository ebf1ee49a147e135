/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/searches.h"

#include <math.h>

#include "base/error.h"
#include "optimal/optimal_search.h"

static bool has_global_scale(const qobs_observer *o) { return o->stages.traits.global != GLOBAL_NONE; }

static double amax_of(const qobs_observer *o, const struct layout *layout, const struct ranges *ranges)
{
    const struct range_view view = {
        .dtype = layout->dtype, .n = layout->qparams, .min = ranges->min, .max = ranges->max};
    return o->fused ? o->fused_amax : qobs_amax_of_ranges(&view);
}

int qobs_observe_optimal(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout,
                         const struct ranges *batch, const unsigned char *data, struct optimal_result *result,
                         qobs_error *error)
{
    const bool global = has_global_scale(o);
    const double amax = global ? amax_of(o, layout, batch) : 0;
    const float global_scale = global ? o->stages.formula.ops->global_scale(QOBS_F32, amax) : 1;
    const struct optimal_search search = {.runtime = &o->runtime,
                                          .kernels = o->kernels,
                                          .params = &o->stages.range.params,
                                          .plan = plan,
                                          .data = data,
                                          .global_scale = global ? &global_scale : NULL,
                                          .importance = &o->importance,
                                          .gram = &o->gram};
    RETURN_IF_FAILED(qobs_optimal_search(&search, result, error));
    result->amax = amax;
    result->fused = global && o->fused;
    return QOBS_OK;
}

bool qobs_optimal_is_stale(const qobs_observer *o)
{
    const struct optimal_result *r = &o->state.optimal;
    if (r->qparams == 0 || !has_global_scale(o))
        return false;
    const double amax = amax_of(o, &o->state.layout, &o->state.ranges);
    return !(amax == r->amax || (isnan(amax) && isnan(r->amax)));
}

int qobs_code_optimal(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct optimal_result *r = &o->state.optimal;
    const uint64_t qparams = qobs_code_u64(codec, r->qparams), rows = qobs_code_u64(codec, r->rows);
    if (codec->loading) {
        const bool observed = !qobs_state_is_empty(&o->state);
        if (qparams != (observed ? o->state.layout.qparams : 0) || rows > qparams)
            return qobs_damaged(error, "its search is not of its ranges");
        if (!qobs_codec_holds(codec, qparams, 3 * sizeof(double) + 2 * sizeof(float)))
            return qobs_damaged(error, "its search is incomplete");
        if (qparams > 0)
            RETURN_IF_FAILED(qobs_optimal_result_reserve(&o->runtime, r, (size_t)qparams, (size_t)rows, error));
    }
    if (qparams == 0)
        return QOBS_OK;
    const uint32_t weighted = qobs_code_u32(codec, r->weighted), fused = qobs_code_u32(codec, r->fused);
    r->fault = (enum importance_fault)qobs_code_u32(codec, (uint32_t)r->fault);
    qobs_code_elements(codec, &r->amax, 1, sizeof r->amax);
    qobs_code_elements(codec, r->error, r->qparams, sizeof *r->error);
    qobs_code_elements(codec, r->minmax_error, r->qparams, sizeof *r->minmax_error);
    qobs_code_elements(codec, r->energy, r->qparams, sizeof *r->energy);
    qobs_code_elements(codec, r->row_error, r->rows, sizeof *r->row_error);
    qobs_code_elements(codec, r->start_row_error, r->rows, sizeof *r->start_row_error);
    qobs_code_elements(codec, r->scale, r->qparams, sizeof *r->scale);
    qobs_code_elements(codec, r->zero_point, r->qparams, sizeof *r->zero_point);
    if (!codec->loading)
        return QOBS_OK;
    if (codec->ends_early)
        return qobs_damaged(error, "its search is incomplete");
    if (weighted > 1 || fused > 1 || (fused && !has_global_scale(o)) || (uint32_t)r->fault >= IMPORTANCE_FAULTS)
        return qobs_damaged(error, "its search is impossible");
    for (size_t q = 0; q < r->qparams; q++)
        if (r->zero_point[q] < o->stages.range.params.optimal.quant_min ||
            r->zero_point[q] > o->stages.range.params.optimal.quant_max)
            return qobs_damaged(error, "a zero point it chose is impossible");
    r->weighted = weighted;
    o->fused = r->fused = fused;
    o->fused_amax = fused ? r->amax : 0;
    return qobs_optimal_is_stale(o) ? qobs_damaged(error, "its search is not of its ranges") : QOBS_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/post_search.h"

#include <math.h>
#include <string.h>

#include "number/exponent.h"
#include "base/error.h"
#include "number/convert.h"
#include "range/exponent_search.h"
#include "range/multiplier_search.h"
#include "measure/accumulators.h"
#include "base/tensor.h"

/* ---- Before
 * --------------------------------------------------------------------------------------------------------------- */

static bool any_negative(const struct layout *layout, const struct ranges *batch)
{
    for (size_t q = 0; q < layout->qparams; q++)
        if (((const float *)(const void *)batch->min)[q] < 0)
            return true;
    return false;
}

/* The magnitudes and weights that were given must fit the batch. */
static int check_given(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout, qobs_error *error)
{
    const struct reference *g = &o->reference;
    const bool whole = o->stages.range.ops == &qobs_range_e4m3;
    const struct view *v = &plan->value;
    if (g->amax && !whole && !qobs_same_shape(&g->shape, &layout->range))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "value: gives %zu magnitudes in %d dimensions, the amax that was given has %zu in %d",
                         layout->qparams, layout->range.ndim, g->count, g->shape.ndim);
    if (g->weight && (v->ndim == 0 || v->strides[v->ndim - 1] != plan->axis[plan->axes - 1].stride ||
                      (int64_t)g->weights != plan->axis[plan->axes - 1].extent))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "value: its groups are not %zu long, as the error weights that were given", g->weights);
    return QOBS_OK;
}

static int check_modelopt(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout, const struct state *state,
                     qobs_error *error)
{
    const struct multiplier_params *p = &o->stages.range.params.multiplier;
    if (o->stages.range.ops == &qobs_range_e4m3 && o->counts.batches > 0)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: %s takes one tensor, reset it before another",
                         o->config.preset->name);
    if (o->stages.range.ops == &qobs_range_multiplier && !p->format && p->quant_min == 0 &&
        any_negative(layout, &state->batch))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "value: has negative elements, which unsigned=true does not take");
    return check_given(o, plan, layout, error);
}

int qobs_search_state_reserve(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout, bool first,
                             struct state *state, struct search_record *record, struct search_workspace *workspace, qobs_error *error)
{
    const struct range_rule *rule = &o->stages.range;
    size_t doubles = 0;
    int status = rule->ops->reference ? check_modelopt(o, plan, layout, state, error) : QOBS_OK;
    if (status == QOBS_OK)
        status = qobs_search_record_reserve(&o->runtime, record, layout->qparams, error);
    if (status != QOBS_OK)
        return status;
    if (rule->ops == &qobs_range_power_of_2)
        doubles = qobs_search_powers_workspace(plan);
    else if (rule->ops == &qobs_range_exponent)
        doubles = qobs_search_blocks_workspace(plan, &rule->params);
    else
        doubles = qobs_search_multiples_workspace(plan, rule);
    workspace->size = doubles * sizeof *workspace->doubles;
    workspace->doubles = qobs_allocate(&o->runtime, workspace->size);
    if (!workspace->doubles)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes of errors", workspace->size);
    if (rule->ops->sums && first)
        return qobs_error_sums_reserve(&o->runtime, &state->sums, layout->qparams * qobs_range_steps(rule), error);
    return QOBS_OK;
}

void qobs_search_workspace_release(const struct runtime *runtime, struct search_workspace *workspace)
{
    qobs_release(runtime, workspace->doubles, workspace->size);
    *workspace = (struct search_workspace){0};
}

/* ---- Quark
 * ---------------------------------------------------------------------------------------------------------------- */

/* The batch's vote is the power of two with the least error, among those around what the extremes so far give. */
static void search_powers(qobs_observer *o, const qobs_plan *plan, const unsigned char *data, double *workspace,
                          struct search_record *record)
{
    struct mode_count *mode_count = &o->state.mode;
    const struct range_view ranges = qobs_view_ranges(o);
    float *scale = (float *)(void *)qobs_mode_scale(mode_count, mode_count->candidates);
    void *zero_point = qobs_mode_zero_point(mode_count, mode_count->candidates);
    double total[POWERS_AROUND];
    int best = -1;
    const bool votes_at_all = qobs_formula_qparams(&o->stages.formula, &ranges, scale, zero_point, NULL) == QOBS_OK;
    if (votes_at_all) {
        best = qobs_search_powers(&o->runtime, o->kernels, &o->stages.range.params, plan, data, scale, zero_point, workspace, total);
        qobs_mode_add(mode_count, 1);
    }
    for (size_t q = 0; q < record->qparams; q++) {
        const double *error = workspace + q * POWERS_AROUND;
        record->best_step[q] = best;
        record->error_before[q] = votes_at_all ? error[POWERS_AROUND / 2] : (double)NAN;
        record->error[q] = best >= 0 ? error[best] : record->error_before[q];
    }
}

int qobs_lower_scales(const qobs_observer *o, qobs_dtype dtype, void *scale, qobs_error *error)
{
    const struct search_record *searched = &o->state.record;
    const size_t size = qobs_dtype_size(dtype);
    for (size_t q = 0; q < searched->qparams; q++) {
        if (isnan(searched->error[q]))
            return qobs_fail(error, QOBS_ERROR_NO_RESULT, "scale: block %zu holds NaN once it is quantized", q);
        if (!scale)
            continue;
        unsigned char *at = (unsigned char *)scale + q * size;
        const double lowered = qobs_round_to(dtype, ldexp(qobs_element(at, dtype), -searched->best_step[q]));
        qobs_put_element(at, dtype, lowered == 0 ? 0x1p-23 : lowered);
    }
    return QOBS_OK;
}

void qobs_read_init_scale(const qobs_observer *o, float *scale)
{
    const qobs_dtype dtype = o->state.layout.dtype;
    const size_t size = qobs_dtype_size(dtype);
    for (size_t q = 0; q < o->state.layout.qparams; q++)
        scale[q] =
            (float)exp2(qobs_ceil_log2(dtype, qobs_element(o->state.ranges.max + q * size, dtype)) - o->stages.formula.params.quark.emax);
}

/* ---- Model-Optimizer
 * ------------------------------------------------------------------------------------------------------ */

static void use_given_amax(qobs_observer *o)
{
    float *min = (float *)(void *)o->state.ranges.min, *max = (float *)(void *)o->state.ranges.max;
    for (size_t q = 0; q < o->reference.count; q++) {
        max[q] = o->reference.amax[q];
        min[q] = -max[q];
    }
}

void qobs_choose_multiples(const qobs_observer *o, struct search_record *record)
{
    const size_t n = qobs_range_steps(&o->stages.range);
    for (size_t q = 0; q < record->qparams; q++) {
        const double *sums = o->state.sums.sum + q * n;
        const size_t best = qobs_least_multiple(sums, n);
        record->best_step[q] = (int32_t)best;
        record->error[q] = sums[best];
        record->error_before[q] = sums[n - 1];
    }
}

void qobs_read_multiples(const qobs_observer *o, float *amax)
{
    const float *given = (const float *)(const void *)o->state.ranges.max;
    for (size_t q = 0; q < o->state.record.qparams; q++)
        amax[q] = given[q] * qobs_multiple(&o->stages.range.params.multiplier, (size_t)o->state.record.best_step[q]);
}

/* The scale found takes the place of the block's own magnitude. */
static void search_scales(qobs_observer *o, const qobs_plan *plan, const unsigned char *data, double *workspace,
                          struct search_record *record)
{
    float *min = (float *)(void *)o->state.ranges.min, *max = (float *)(void *)o->state.ranges.max;
    float whole = 0;
    for (size_t q = 0; q < record->qparams; q++)
        whole = max[q] > whole || max[q] != max[q] ? max[q] : whole;
    if (o->reference.amax)
        whole = o->reference.amax[0];
    qobs_search_scales(&o->runtime, o->kernels, &o->stages.range.params, plan, data, &whole, o->reference.weight, workspace, record->best_step,
                       record->error, record->error_before);
    for (size_t q = 0; q < record->qparams; q++) {
        max[q] = whole * qobs_e4m3_multiple((size_t)record->best_step[q]);
        min[q] = -max[q];
    }
}

/* ---- After
 * ---------------------------------------------------------------------------------------------------------------- */

void qobs_search_state(qobs_observer *o, const qobs_plan *plan, const unsigned char *data, const struct search_workspace *workspace)
{
    struct search_record *record = &o->state.record;
    record->steps = record->stop_step = (int32_t)qobs_range_steps(&o->stages.range);
    const struct range_ops *ops = o->stages.range.ops;
    const struct range_params *params = &o->stages.range.params;
    if (ops == &qobs_range_power_of_2) {
        search_powers(o, plan, data, workspace->doubles, record);
    } else if (ops == &qobs_range_exponent) {
        qobs_search_blocks(&o->runtime, o->kernels, params, plan, data, o->state.ranges.max, workspace->doubles,
                           record->best_step, record->error, record->error_before);
    } else if (ops == &qobs_range_multiplier) {
        if (o->counts.batches == 0 && o->reference.amax)
            use_given_amax(o);
        else if (o->counts.batches == 0)
            o->reference.dtype = plan->dtype;
        qobs_search_multiples(&o->runtime, o->kernels, params, plan, data, (const float *)(const void *)o->state.ranges.max,
                              o->reference.dtype, o->reference.weight, workspace->doubles, o->state.sums.sum);
        qobs_choose_multiples(o, record);
    } else {
        search_scales(o, plan, data, workspace->doubles, record);
    }
}

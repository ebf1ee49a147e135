/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include <math.h>

#include "base/error.h"
#include "observer/searches.h"
#include "optimal/optimal_search.h"
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
        status =
            qobs_search_weights(&o->runtime, params, &plan->value, &o->importance, record, &weights, &columns, error);
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

/* ---- Searches of the state --------------------------------------------------------------------------------------- */

static struct search_state state_of(const qobs_observer *o, const struct layout *layout, const struct state *state,
                                    struct search_record *record)
{
    qobs_observer *own =
        (qobs_observer *)o; /* a member of state_range that gets the state of a const observer only reads it */
    return (struct search_state){.params = &o->stages.range.params,
                                 .qparams = layout->qparams,
                                 .dtype = layout->dtype,
                                 .min = state->ranges.min,
                                 .max = state->ranges.max,
                                 .rank = layout->range.ndim == 0 ? RANK_SCALAR : RANK_TENSOR,
                                 .reference = &own->reference,
                                 .sums = state->sums.sum,
                                 .mode_count = (struct mode_count *)&state->mode,
                                 .record = record};
}

struct search_state qobs_search_state(const qobs_observer *o)
{
    return state_of(o, &o->state.layout, &o->state, (struct search_record *)&o->state.record);
}

static struct search_batch batch_of(const qobs_observer *o, const qobs_plan *plan, const unsigned char *data,
                                    bool weighted, double *workspace)
{
    return (struct search_batch){.runtime = &o->runtime,
                                 .kernels = o->kernels,
                                 .formula = &o->stages.formula,
                                 .plan = plan,
                                 .data = data,
                                 .batches = o->counts.batches,
                                 .gram = weighted ? &o->gram : NULL,
                                 .workspace = workspace};
}

/* Why errors of such a value cannot be weighted by the Hessian. Upstream falls back to squared errors without samples,
 * and if blocks do not divide the columns. */
static enum importance_fault hessian_fault(const qobs_observer *o, const struct view *value)
{
    const struct gram *g = &o->gram;
    return !g->sum                                                             ? IMPORTANCE_NOT_OBSERVED
           : value->ndim == 0 || value->shape[value->ndim - 1] != g->columns   ? IMPORTANCE_COLUMNS
           : g->columns % o->stages.range.params.multiplier.hessian_block != 0 ? IMPORTANCE_BLOCKS
           : !qobs_gram_is_finite(g)                                           ? IMPORTANCE_NOT_FINITE
                                                                               : IMPORTANCE_USABLE;
}

/* Errors that are summed over batches are all weighted, or none. */
static int weigh(const qobs_observer *o, const qobs_plan *plan, bool first, struct search_record *record,
                 qobs_error *error)
{
    const struct search_record *before = &o->state.record;
    if (!o->stages.range.params.hessian)
        return QOBS_OK;
    record->fault = hessian_fault(o, &plan->value);
    record->weighted = record->fault == IMPORTANCE_USABLE;
    if (o->stages.range.ops->state->sums && !first && record->weighted != before->weighted)
        return qobs_invalid(error, "value: its errors are %s by a Hessian, those of the batches before are%s%s%s",
                            record->weighted ? "weighted" : "not weighted", before->weighted ? "" : " not",
                            record->weighted ? "" : ": ",
                            record->weighted ? "" : qobs_importance_fault_text(record->fault));
    return QOBS_OK;
}

int qobs_prepare_search(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout, bool first,
                        struct state *state, struct search_record *record, struct search_workspace *workspace,
                        qobs_error *error)
{
    const struct range_rule *rule = &o->stages.range;
    const struct state_range *ops = rule->ops->state;
    RETURN_IF_FAILED(qobs_search_record_reserve(&o->runtime, record, layout->qparams, error));
    RETURN_IF_FAILED(weigh(o, plan, first, record, error));
    const struct search_batch batch = batch_of(o, plan, NULL, record->weighted, NULL);
    const struct search_state searched = state_of(o, layout, state, record);
    RETURN_IF_FAILED(ops->check ? ops->check(&batch, &searched, state->batch.min, o->config.preset->name, error)
                                : QOBS_OK);
    workspace->size = ops->workspace(&rule->params, plan) * sizeof *workspace->doubles;
    workspace->doubles = qobs_allocate(&o->runtime, workspace->size);
    if (!workspace->doubles)
        return qobs_no_memory(error, "observer: no memory for %zu bytes of errors", workspace->size);
    if (ops->sums && first)
        return qobs_error_sums_reserve(&o->runtime, &state->sums, layout->qparams * qobs_range_steps(rule), error);
    return QOBS_OK;
}

void qobs_search_workspace_release(const struct runtime *runtime, struct search_workspace *workspace)
{
    qobs_release(runtime, workspace->doubles, workspace->size);
    *workspace = (struct search_workspace){0};
}

void qobs_search_accumulated(qobs_observer *o, const qobs_plan *plan, const unsigned char *data,
                             const struct search_workspace *workspace)
{
    const struct search_batch batch = batch_of(o, plan, data, o->state.record.weighted, workspace->doubles);
    const struct search_state state = qobs_search_state(o);
    o->state.record.steps = o->state.record.stop_step = (int32_t)qobs_range_steps(&o->stages.range);
    o->stages.range.ops->state->search(&batch, &state);
}

/* ---- Optimal scales ---------------------------------------------------------------------------------------------- */

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

/* ---- The Gram of activations ------------------------------------------------------------------------------------- */

bool qobs_needs_gram(const struct stages *stages) { return stages->range.params.hessian; }

struct gram qobs_gram_for(const struct stages *stages, int64_t columns)
{
    const struct granularity_params *g = &stages->granularity.params;
    const struct range_rule *range = &stages->range;
    if (range->ops->state)
        return qobs_gram_of(columns, range->params.multiplier.hessian_block, columns);
    const int64_t group = g->strategy == STRATEGY_CHANNEL ? columns : g->group_size;
    const int64_t block = range->params.optimal.hessian_block;
    return qobs_gram_of(columns, block > 0 ? block : group, group);
}

int qobs_observe_activations(qobs_observer *o, const struct view *v, qobs_error *error)
{
    const bool first = !o->gram.sum, wanted = qobs_needs_gram(&o->stages) && v->ndim > 0 && v->elements > 0;
    const int64_t columns = v->ndim > 0 ? v->shape[v->ndim - 1] : 0;
    if (o->importance.columns > 0 && v->elements > 0 && columns != o->importance.columns)
        return qobs_invalid(error, "activations: have %lld columns, those before had %lld", (long long)columns,
                            (long long)o->importance.columns);
    if (wanted) {
        if (first)
            o->gram = qobs_gram_for(&o->stages, columns);
        const int status = qobs_gram_add(&o->runtime, o->kernels, &o->gram, v, error);
        if (status != QOBS_OK) {
            if (first)
                qobs_gram_release(&o->runtime, &o->gram);
            return status;
        }
    }
    const int status = qobs_importance_add(&o->runtime, o->kernels, &o->importance, v, error);
    if (status != QOBS_OK && wanted && first) /* with a Gram there is importance, to which adding cannot fail */
        qobs_gram_release(&o->runtime, &o->gram);
    return status;
}

/* Sums are a number or NaN, and symmetric. */
static bool is_possible(const struct gram *g)
{
    bool possible = true;
    for (int64_t i = 0; i < qobs_gram_blocks(g); i++) {
        const struct gram_block block = qobs_gram_block(g, i);
        for (int64_t j = 0; j < g->block; j++)
            for (int64_t k = 0; k <= j; k++) {
                const double a = block.sum[j * g->block + k], b = block.sum[k * g->block + j];
                const bool inside = j < block.width && k < block.width;
                possible &= (a == b || (isnan(a) && isnan(b))) && (inside || a == 0);
            }
    }
    return possible;
}

int qobs_code_gram(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct gram *g = &o->gram;
    uint64_t tokens = qobs_code_u64(codec, g->sum ? g->tokens : 0);
    if (codec->loading && tokens > 0) {
        struct gram made = {0};
        if (tokens != o->importance.tokens || o->importance.columns <= 0)
            return qobs_damaged(error, "its Hessian is not of its importance");
        made = qobs_gram_for(&o->stages, o->importance.columns);
        if (qobs_gram_size(&made) == 0 || !qobs_codec_holds(codec, qobs_gram_size(&made), 1))
            return qobs_damaged(error, "its Hessian is incomplete");
        RETURN_IF_FAILED(qobs_gram_reserve(&o->runtime, &made, error));
        made.tokens = tokens;
        *g = made;
    } else if (codec->loading && o->importance.tokens > 0) {
        return qobs_damaged(error, "its Hessian is missing");
    }
    if (tokens == 0)
        return QOBS_OK;
    qobs_code_elements(codec, g->sum, qobs_gram_size(g) / sizeof *g->sum, sizeof *g->sum);
    return codec->loading && !is_possible(g) ? qobs_damaged(error, "its Hessian is impossible") : QOBS_OK;
}

/* ---- Merging ----------------------------------------------------------------------------------------------------- */

static int copy_record(const struct runtime *runtime, struct search_record *to, const struct search_record *from,
                       qobs_error *error)
{
    RETURN_IF_FAILED(qobs_search_record_reserve(runtime, to, from->qparams, error));
    to->steps = from->steps;
    to->stop_step = from->stop_step;
    to->weighted = from->weighted;
    to->fault = from->fault;
    memcpy(to->best_step, from->best_step, from->qparams * sizeof *from->best_step);
    memcpy(to->error, from->error, from->qparams * sizeof *from->error);
    memcpy(to->error_before, from->error_before, from->qparams * sizeof *from->error_before);
    return QOBS_OK;
}

int qobs_merge_search_prepare(const qobs_observer *o, struct state *state, const qobs_observer *model,
                              const qobs_observer *const *others, size_t count, qobs_error *error)
{
    const struct range_ops *ops = o->stages.range.ops;
    const struct state *m = &model->state;
    for (size_t i = 0; qobs_range_has_sums(ops) && i < count; i++) {
        const struct state *s = &others[i]->state;
        if (qobs_state_is_empty(s))
            continue;
        if (memcmp(s->ranges.max, m->ranges.max, m->layout.qparams * sizeof(float)) != 0)
            return qobs_invalid(
                error, "others[%zu]: its errors are of multiples of another amax; set the same amax in all observers",
                i);
        if (s->record.weighted != m->record.weighted)
            return qobs_invalid(error, "others[%zu]: its errors are %s by a Hessian, those before it are%s", i,
                                s->record.weighted ? "weighted" : "not weighted", m->record.weighted ? "" : " not");
    }
    if (ops->state && state->record.qparams == 0)
        RETURN_IF_FAILED(copy_record(&o->runtime, &state->record, &m->record, error));
    if (ops->optimal && state->optimal.qparams == 0)
        RETURN_IF_FAILED(qobs_optimal_result_copy(&o->runtime, &state->optimal, &m->optimal, error));
    if (qobs_range_has_sums(ops) && !state->sums.sum)
        return qobs_error_sums_reserve(&o->runtime, &state->sums, m->sums.count, error);
    return QOBS_OK;
}

void qobs_merge_search_before(qobs_observer *o)
{
    const struct state_range *ops = o->stages.range.ops->state;
    const struct search_state state = qobs_search_state(o);
    if (ops && ops->before_merge)
        ops->before_merge(&state);
}

void qobs_merge_search_after(qobs_observer *o, const qobs_observer *const *others, size_t count)
{
    const struct search_state state = qobs_search_state(o);
    const struct state_range *ops = o->stages.range.ops->state;
    for (size_t i = 0; ops && ops->sums && i < count; i++)
        for (size_t k = 0; k < others[i]->state.sums.count; k++)
            o->state.sums.sum[k] += others[i]->state.sums.sum[k];
    if (ops && ops->after_merge)
        ops->after_merge(&state);
}

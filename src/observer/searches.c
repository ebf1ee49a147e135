/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/state_parts.h"
#include "plan/make_plan.h"
#include "search/grid_search.h"

/* The global scale of the tensor's range after the batch is accumulated; without a batch the one so far. */
static float next_global_scale(const qobs_observer *o, const struct global_range *batch, qobs_dtype dtype)
{
    struct global_range global = o->global_range;
    if (batch)
        qobs_accumulate_global(&o->stages.accumulator, &global, batch);
    else if (o->fused)
        return o->stages.formula.ops->global_scale(&o->stages.formula.params, dtype, o->fused_amax);
    const struct range_view range = {.dtype = global.dtype, .n = 1, .min = global.min, .max = global.max};
    return o->stages.formula.ops->global_scale(&o->stages.formula.params, global.dtype, qobs_amax_of_ranges(&range));
}

/* Runs a search with the arguments that `search` has and those of the observer. */
static int search_grid(const qobs_observer *o, const qobs_plan *plan, const unsigned char *data,
                       struct grid_search search, qobs_error *error)
{
    search.runtime = &o->runtime;
    search.kernels = o->kernels;
    search.params = &o->stages.range.params.grid;
    search.formula = &o->stages.formula;
    search.nonfinite = o->stages.range.params.nonfinite;
    search.plan = plan;
    search.data = data;
    return qobs_grid_search(&search, error);
}

int qobs_search_global(const qobs_observer *o, const qobs_plan *plan, struct global_range *global, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(searches, error);
    const struct grid_search search = {.each_global_scale = true, .min = global->min, .max = global->max};
    return search_grid(o, plan, plan->value.data, search, error);
}

static int search_tensor(const qobs_observer *o, const qobs_tensor *value, struct global_range *global,
                         qobs_error *error)
{
    qobs_plan *plan;
    RETURN_IF_FAILED(qobs_plan_new(&plan, &qobs_whole_tensor, value, NULL, &o->runtime, error));
    const int status = qobs_search_global(o, plan, global, error);
    qobs_plan_destroy(plan);
    return status;
}

int qobs_search_batch(const qobs_observer *o, struct changes *c, const qobs_tensor *value, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(searches, error);
    const qobs_plan *plan = c->plan;
    struct search_record *record = &c->next->state.record;
    struct global_range *global = c->next->global_range.dtype != 0 ? &c->next->global_range : NULL;
    const bool scaled =
        global || (o->stages.traits.global == GLOBAL_FROM_TENSORS && (o->fused || o->global_range.dtype != 0));
    float g = 0, *weights = NULL;
    int64_t columns = 0;
    RETURN_IF_FAILED(qobs_search_record_reserve(&o->runtime, record, (size_t)plan->qparams, error));
    int status = qobs_search_weights(&o->runtime, &o->stages.range.params, &plan->value, &o->importance, record,
                                     &weights, &columns, error);
    if (status == QOBS_OK && global)
        status = search_tensor(o, value, global, error);
    if (status == QOBS_OK && scaled)
        g = next_global_scale(o, global, plan->dtype);
    const struct grid_search search = {.column_weight = weights,
                                       .global_scale = scaled ? &g : NULL,
                                       .min = c->state->batch.min,
                                       .max = c->state->batch.max,
                                       .record = record};
    if (status == QOBS_OK)
        status = search_grid(o, plan, value->data, search, error);
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
                                 .importance = &o->importance,
                                 .workspace = workspace};
}

/* Why errors of such a value cannot be weighted by the Hessian. Upstream falls back to squared errors without samples,
 * and if blocks do not divide the columns. */
static enum importance_fault hessian_fault(const qobs_observer *o, const struct view *value)
{
    const struct gram *g = &o->gram;
    return !g->sum                                                           ? IMPORTANCE_NOT_OBSERVED
           : value->ndim == 0 || value->shape[value->ndim - 1] != g->columns ? IMPORTANCE_COLUMNS
           : g->columns % o->stages.range.params.hessian_block != 0          ? IMPORTANCE_BLOCKS
           : !qobs_gram_is_finite(g)                                         ? IMPORTANCE_NOT_FINITE
                                                                             : IMPORTANCE_USABLE;
}

/* Why they cannot be weighted by the importance of columns. */
static enum importance_fault column_fault(const qobs_observer *o)
{
    const struct importance *importance = &o->importance;
    bool finite = true;
    for (int64_t j = 0; j < importance->columns; j++)
        finite &= isfinite(importance->sum[j]) != 0;
    return importance->tokens == 0 ? IMPORTANCE_NOT_OBSERVED : finite ? IMPORTANCE_USABLE : IMPORTANCE_NOT_FINITE;
}

/* Errors that are summed over batches are all weighted, or none. */
static int weigh(const qobs_observer *o, struct changes *c, qobs_error *error)
{
    const struct search_record *before = &o->state.record;
    struct search_record *record = &c->next->state.record;
    if (!o->stages.range.params.importance)
        return QOBS_OK;
    record->fault = o->stages.range.params.hessian ? hessian_fault(o, &c->plan->value) : column_fault(o);
    record->weighted = record->fault == IMPORTANCE_USABLE;
    if (o->stages.range.ops->state->sums && !c->first && record->weighted != before->weighted)
        return qobs_invalid(error, "value: its errors are %s by a Hessian, those of the batches before are%s%s%s",
                            record->weighted ? "weighted" : "not weighted", before->weighted ? "" : " not",
                            record->weighted ? "" : ": ",
                            record->weighted ? "" : qobs_importance_fault_text(record->fault));
    return QOBS_OK;
}

int qobs_prepare_search(const qobs_observer *o, struct changes *c, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(searches, error);
    const struct range_rule *rule = &o->stages.range;
    const struct state_range *ops = rule->ops->state;
    const size_t qparams = c->layout.qparams;
    struct search_record *record = &c->next->state.record;
    struct search_workspace *workspace = &c->workspace;
    RETURN_IF_FAILED(qobs_search_record_reserve(&o->runtime, record, qparams, error));
    RETURN_IF_FAILED(weigh(o, c, error));
    const struct search_batch batch = batch_of(o, c->plan, NULL, record->weighted, NULL);
    const struct search_state searched = state_of(o, &c->layout, c->state, record);
    RETURN_IF_FAILED(ops->check ? ops->check(&batch, &searched, c->state->batch.min, o->config.preset->name, error)
                                : QOBS_OK);
    workspace->size = ops->workspace(&rule->params, c->plan) * sizeof *workspace->doubles;
    workspace->doubles = qobs_allocate(&o->runtime, workspace->size);
    RETURN_IF_FAILED(qobs_require_memory(workspace->doubles, "observer", workspace->size, error));
    if (ops->sums && c->first)
        return qobs_error_sums_reserve(&o->runtime, &c->state->sums, qparams * qobs_range_steps(rule), error);
    return QOBS_OK;
}

void qobs_search_workspace_release(const struct runtime *runtime, struct search_workspace *workspace)
{
    qobs_release(runtime, workspace->doubles, workspace->size);
    *workspace = (struct search_workspace){0};
}

void qobs_search_accumulated(qobs_observer *o, const struct changes *c, const unsigned char *data)
{
    const struct search_batch batch = batch_of(o, c->plan, data, o->state.record.weighted, c->workspace.doubles);
    const struct search_state state = qobs_search_state(o);
    o->state.record.steps = o->state.record.stop_step = (int32_t)qobs_range_steps(&o->stages.range);
    o->stages.range.ops->state->search(&batch, &state);
}

/* ---- Optimal scales ---------------------------------------------------------------------------------------------- */

static bool has_global_scale(const qobs_observer *o) { return o->stages.traits.global != GLOBAL_NONE; }

static double amax_of(const qobs_observer *o, const struct range_view *ranges)
{
    return o->fused ? o->fused_amax : qobs_amax_of_ranges(ranges);
}

int qobs_observe_optimal(const qobs_observer *o, struct changes *c, const unsigned char *data, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(optimal, error);
    const bool global = has_global_scale(o);
    struct optimal_result *result = &c->next->state.optimal;
    const struct range_view ranges = {.dtype = c->layout.dtype,
                                      .n = c->layout.qparams,
                                      .rank = RANK_TENSOR,
                                      .min = c->state->batch.min,
                                      .max = c->state->batch.max};
    const double amax = global ? amax_of(o, &ranges) : 0;
    const float global_scale =
        global ? o->stages.formula.ops->global_scale(&o->stages.formula.params, QOBS_F32, amax) : 1;
    const struct optimal_search search = {.runtime = &o->runtime,
                                          .kernels = o->kernels,
                                          .params = &o->stages.range.params,
                                          .plan = c->plan,
                                          .data = data,
                                          .global_scale = global ? &global_scale : NULL,
                                          .importance = &o->importance,
                                          .gram = &o->gram,
                                          .formula = &o->stages.formula,
                                          .ranges = &ranges};
    RETURN_IF_FAILED(o->stages.range.ops->optimal->search(&search, result, error));
    result->amax = amax;
    result->fused = global && o->fused;
    return QOBS_OK;
}

bool qobs_optimal_is_stale(const qobs_observer *o)
{
    const struct optimal_result *r = &o->state.optimal;
    if (r->qparams == 0 || !has_global_scale(o))
        return false;
    const struct range_view ranges = qobs_view_ranges(o);
    const double amax = amax_of(o, &ranges);
    return !(amax == r->amax || (isnan(amax) && isnan(r->amax)));
}

/* ---- The Gram of activations ------------------------------------------------------------------------------------- */

bool qobs_needs_gram(const struct stages *stages) { return stages->range.params.hessian; }

struct gram qobs_gram_for(const struct stages *stages, int64_t columns)
{
    const struct granularity_params *g = &stages->granularity.params;
    const struct range_rule *range = &stages->range;
    if (range->ops->state)
        return qobs_gram_of(columns, range->params.hessian_block, columns);
    const int64_t group = g->strategy == STRATEGY_CHANNEL ? columns : g->group_size;
    const int64_t block = range->params.hessian_block;
    return qobs_gram_of(columns, block > 0 ? block : group, group);
}

int qobs_observe_activations(qobs_observer *o, const struct view *v, qobs_error *error)
{
    const bool first = !o->gram.sum, wanted = qobs_needs_gram(&o->stages) && v->ndim > 0 && v->elements > 0;
    const int64_t columns = v->ndim > 0 ? v->shape[v->ndim - 1] : 0;
    int status = QOBS_OK;
    if (o->importance.columns > 0 && v->elements > 0 && columns != o->importance.columns)
        return qobs_invalid(error, "activations: have %lld columns, those before had %lld", (long long)columns,
                            (long long)o->importance.columns);
    if (wanted && first)
        o->gram = qobs_gram_for(&o->stages, columns);
    if (wanted)
        status = qobs_gram_add(&o->runtime, o->kernels, &o->gram, v, error);
    if (status == QOBS_OK) /* with a Gram there is importance, to which adding cannot fail */
        status = qobs_importance_add(&o->runtime, o->kernels, &o->importance, o->stages.range.params.peaks, v, error);
    if (status != QOBS_OK && wanted && first)
        qobs_gram_release(&o->runtime, &o->gram);
    return status;
}

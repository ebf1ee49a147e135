/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/searches.h"

#include "base/error.h"

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

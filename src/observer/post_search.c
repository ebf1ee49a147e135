/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/post_search.h"

#include "base/error.h"

static struct search_state state_of(const qobs_observer *o, const struct layout *layout, const struct state *state,
                                    struct search_record *record)
{
    qobs_observer *own =
        (qobs_observer *)o; /* a member of range_ops that gets the state of a const observer only reads it */
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
                                    double *workspace)
{
    return (struct search_batch){.runtime = &o->runtime,
                                 .kernels = o->kernels,
                                 .formula = &o->stages.formula,
                                 .plan = plan,
                                 .data = data,
                                 .batches = o->counts.batches,
                                 .workspace = workspace};
}

int qobs_prepare_search(const qobs_observer *o, const qobs_plan *plan, const struct layout *layout, bool first,
                        struct state *state, struct search_record *record, struct search_workspace *workspace,
                        qobs_error *error)
{
    const struct range_rule *rule = &o->stages.range;
    const struct search_batch batch = batch_of(o, plan, NULL, NULL);
    const struct search_state searched = state_of(o, layout, state, record);
    RETURN_IF_FAILED(rule->ops->check
                         ? rule->ops->check(&batch, &searched, state->batch.min, o->config.preset->name, error)
                         : QOBS_OK);
    RETURN_IF_FAILED(qobs_search_record_reserve(&o->runtime, record, layout->qparams, error));
    workspace->size = rule->ops->workspace(&rule->params, plan) * sizeof *workspace->doubles;
    workspace->doubles = qobs_allocate(&o->runtime, workspace->size);
    if (!workspace->doubles)
        return qobs_no_memory(error, "observer: no memory for %zu bytes of errors", workspace->size);
    if (rule->ops->sums && first)
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
    const struct search_batch batch = batch_of(o, plan, data, workspace->doubles);
    const struct search_state state = qobs_search_state(o);
    o->state.record.steps = o->state.record.stop_step = (int32_t)qobs_range_steps(&o->stages.range);
    o->stages.range.ops->search(&batch, &state);
}

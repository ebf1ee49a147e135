/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/searches.h"

#include "base/error.h"

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

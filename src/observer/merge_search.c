/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/merge_search.h"

#include <string.h>

#include "base/error.h"
#include "observer/post_search.h"

static int copy_record(qobs_observer *o, const qobs_observer *model, qobs_error *error)
{
    const struct search_record *from = &model->searched;
    struct search_record *to = &o->searched;
    const int status = qobs_search_record_reserve(&o->runtime, to, from->qparams, error);
    if (status != QOBS_OK)
        return status;
    to->steps = from->steps;
    to->stop_step = from->stop_step;
    memcpy(to->best_step, from->best_step, from->qparams * sizeof *from->best_step);
    memcpy(to->error, from->error, from->qparams * sizeof *from->error);
    memcpy(to->error_before, from->error_before, from->qparams * sizeof *from->error_before);
    return QOBS_OK;
}

int qobs_merge_searched_reserve(qobs_observer *o, const qobs_observer *model, const qobs_observer *const *others,
                                size_t count, qobs_error *error)
{
    const struct range_ops *ops = o->stages.range.ops;
    int status = QOBS_OK;
    if (ops->stage != SEARCH_STATE)
        return QOBS_OK;
    for (size_t i = 0; ops->sums && i < count; i++)
        if (qobs_has_ranges(others[i]) &&
            memcmp(others[i]->kept.state.max, model->kept.state.max, model->layout.qparams * sizeof(float)) != 0)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "others[%zu]: its errors are of multiples of another amax; give all observers the same",
                             i);
    if (o->searched.qparams == 0)
        status = copy_record(o, model, error);
    if (status != QOBS_OK || !ops->sums || o->kept.sums)
        return status;
    status = qobs_allocate_sums(&o->runtime, &o->kept, model->kept.sums_count, error);
    if (status == QOBS_OK)
        o->given.dtype = model->given.dtype;
    return status;
}

void qobs_merge_searched_before(qobs_observer *o)
{
    const struct search_state state = qobs_search_state(o);
    if (o->stages.range.ops->before_merge)
        o->stages.range.ops->before_merge(&state);
}

void qobs_merge_searched_after(qobs_observer *o, const qobs_observer *const *others, size_t count)
{
    const struct search_state state = qobs_search_state(o);
    const struct range_ops *ops = o->stages.range.ops;
    for (size_t i = 0; ops->sums && i < count; i++)
        for (size_t k = 0; k < others[i]->kept.sums_count; k++)
            o->kept.sums[k] += others[i]->kept.sums[k];
    if (ops->after_merge)
        ops->after_merge(&state);
}

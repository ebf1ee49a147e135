/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/merge_search.h"

#include <math.h>
#include <string.h>

#include "number/exponent.h"
#include "base/error.h"
#include "number/convert.h"
#include "observer/post_search.h"
#include "base/tensor.h"

static int copy_record(const struct runtime *runtime, struct search_record *to, const struct search_record *from, qobs_error *error)
{
    const int status = qobs_search_record_reserve(runtime, to, from->qparams, error);
    if (status != QOBS_OK)
        return status;
    to->steps = from->steps;
    to->stop_step = from->stop_step;
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
    int status = QOBS_OK;
    for (size_t i = 0; ops->sums && i < count; i++)
        if (!qobs_state_is_empty(&others[i]->state) &&
            memcmp(others[i]->state.ranges.max, m->ranges.max, m->layout.qparams * sizeof(float)) != 0)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "others[%zu]: its errors are of multiples of another amax; set the same amax in all observers", i);
    if (ops->search == SEARCH_STATE && state->record.qparams == 0)
        status = copy_record(&o->runtime, &state->record, &m->record, error);
    if (status == QOBS_OK && ops->sums && !state->sums.sum)
        status = qobs_error_sums_reserve(&o->runtime, &state->sums, m->sums.count, error);
    return status;
}

static double first_exponent(const qobs_observer *o, size_t q)
{
    const double amax = qobs_element(o->state.ranges.max + q * qobs_dtype_size(o->state.layout.dtype), o->state.layout.dtype);
    return qobs_ceil_log2(o->state.layout.dtype, amax) - o->stages.formula.params.quark.emax;
}

/* Steps become exponents, which are far from the limits of int32. */
enum { NO_EXPONENT = INT32_MAX };

void qobs_merge_search_before(qobs_observer *o)
{
    for (size_t q = 0; o->stages.range.ops == &qobs_range_exponent && q < o->state.record.qparams; q++) {
        const double exponent = first_exponent(o, q);
        o->state.record.best_step[q] = isfinite(exponent) ? (int32_t)exponent - o->state.record.best_step[q] : NO_EXPONENT;
    }
}

static void restore_steps(qobs_observer *o)
{
    for (size_t q = 0; q < o->state.record.qparams; q++) {
        const double exponent = first_exponent(o, q);
        const bool both = isfinite(exponent) && o->state.record.best_step[q] != NO_EXPONENT;
        const double step = both ? exponent - o->state.record.best_step[q] : 0;
        o->state.record.best_step[q] = step < 0 ? 0 : step > o->stages.range.params.exponent.scope ? o->stages.range.params.exponent.scope : (int32_t)step;
    }
}

static void add_sums(qobs_observer *o, const qobs_observer *other)
{
    for (size_t i = 0; i < other->state.sums.count; i++)
        o->state.sums.sum[i] += other->state.sums.sum[i];
}

void qobs_merge_search_after(qobs_observer *o, const qobs_observer *const *others, size_t count)
{
    if (o->stages.range.ops == &qobs_range_exponent)
        restore_steps(o);
    if (!o->stages.range.ops->sums || !o->state.sums.sum)
        return;
    for (size_t i = 0; i < count; i++)
        add_sums(o, others[i]);
    qobs_choose_multiples(o, &o->state.record);
}

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
    int status = QOBS_OK;
    if (!qobs_searches_kept(&o->config))
        return QOBS_OK;
    const bool sums = o->stages.range.ops->sums;
    for (size_t i = 0; sums && i < count; i++)
        if (qobs_has_ranges(others[i]) &&
            memcmp(others[i]->kept.state.max, model->kept.state.max, model->layout.qparams * sizeof(float)) != 0)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "others[%zu]: its errors are of multiples of another amax; give all observers the same", i);
    if (o->searched.qparams == 0)
        status = copy_record(o, model, error);
    if (status != QOBS_OK || !sums || o->kept.sums)
        return status;
    status = qobs_allocate_sums(&o->runtime, &o->kept, model->kept.sums_count, error);
    if (status == QOBS_OK)
        o->given.dtype = model->given.dtype;
    return status;
}

static double first_exponent(const qobs_observer *o, size_t q)
{
    const double amax = qobs_element(o->kept.state.max + q * qobs_dtype_size(o->layout.dtype), o->layout.dtype);
    return qobs_ceil_log2(o->layout.dtype, amax) - o->stages.formula.params.quark.emax;
}

/* Steps become exponents, which are far from the limits of int32. */
enum { NO_EXPONENT = INT32_MAX };

void qobs_merge_searched_before(qobs_observer *o)
{
    for (size_t q = 0; o->stages.range.ops == &qobs_range_exponent && q < o->searched.qparams; q++) {
        const double exponent = first_exponent(o, q);
        o->searched.best_step[q] = isfinite(exponent) ? (int32_t)exponent - o->searched.best_step[q] : NO_EXPONENT;
    }
}

static void restore_steps(qobs_observer *o)
{
    for (size_t q = 0; q < o->searched.qparams; q++) {
        const double exponent = first_exponent(o, q);
        const bool both = isfinite(exponent) && o->searched.best_step[q] != NO_EXPONENT;
        const double step = both ? exponent - o->searched.best_step[q] : 0;
        o->searched.best_step[q] = step < 0 ? 0 : step > o->stages.range.params.exponent.scope ? o->stages.range.params.exponent.scope : (int32_t)step;
    }
}

static void add_sums(qobs_observer *o, const qobs_observer *other)
{
    for (size_t i = 0; i < other->kept.sums_count; i++)
        o->kept.sums[i] += other->kept.sums[i];
}

void qobs_merge_searched_after(qobs_observer *o, const qobs_observer *const *others, size_t count)
{
    if (o->stages.range.ops == &qobs_range_exponent)
        restore_steps(o);
    if (!o->stages.range.ops->sums || !o->kept.sums)
        return;
    for (size_t i = 0; i < count; i++)
        add_sums(o, others[i]);
    qobs_choose_multiples(o, &o->searched);
}

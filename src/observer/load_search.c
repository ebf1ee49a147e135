/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What searches have found and been given, from bytes. */
#include <math.h>

#include "base/error.h"
#include "observer/post_search.h"
#include "observer/saved_state.h"
#include "base/tensor.h"

static int load_importance(qobs_observer *o, struct source *source, qobs_error *error)
{
    const uint64_t columns = qobs_get(source, 8), tokens = qobs_get(source, 8);
    if (columns == 0)
        return tokens == 0 ? QOBS_OK : qobs_damaged(error, "there are tokens without columns");
    if (!qobs_weighs_columns(&o->config) || columns > (size_t)(source->end - source->at) / sizeof *o->importance.sum)
        return qobs_damaged(error, "its importance cannot be");
    const int status = qobs_importance_reserve(&o->runtime, &o->importance, (int64_t)columns, error);
    if (status != QOBS_OK)
        return status;
    o->importance.tokens = tokens;
    qobs_get_elements(source, o->importance.sum, (size_t)columns, sizeof *o->importance.sum);
    return QOBS_OK;
}

int qobs_load_search(qobs_observer *o, struct source *source, qobs_error *error)
{
    struct search_record *searched = &o->searched;
    int status = load_importance(o, source, error);
    const uint64_t qparams = status == QOBS_OK ? qobs_get(source, 8) : 0;
    if (status != QOBS_OK || qparams == 0)
        return status;
    if (!qobs_has_ranges(o) || qparams != o->layout.qparams)
        return qobs_damaged(error, "its search is not of its ranges");
    status = qobs_search_record_reserve(&o->runtime, searched, (size_t)qparams, error);
    if (status != QOBS_OK)
        return status;
    const uint64_t steps = qobs_get(source, 4), stop = qobs_get(source, 4);
    const uint64_t weighted = qobs_get(source, 4), fault = qobs_get(source, 4);
    if (steps != (uint64_t)qobs_range_steps(&o->stages.range) || stop > steps || weighted > 1 || fault >= IMPORTANCE_FAULTS)
        return qobs_damaged(error, "its search cannot be");
    searched->steps = (int32_t)steps;
    searched->stop_step = (int32_t)stop;
    searched->weighted = weighted;
    searched->fault = (enum importance_fault)fault;
    if (!qobs_get_elements(source, searched->best_step, (size_t)qparams, sizeof *searched->best_step) ||
        !qobs_get_elements(source, searched->error, (size_t)qparams, sizeof *searched->error) ||
        !qobs_get_elements(source, searched->error_before, (size_t)qparams, sizeof *searched->error_before))
        return qobs_damaged(error, "its search is not all there");
    for (size_t q = 0; q < searched->qparams; q++)
        if (searched->best_step[q] < o->stages.range.ops->min_step ||
            searched->best_step[q] >= searched->stop_step)
            return qobs_damaged(error, "a step it chose cannot be");
    return QOBS_OK;
}

/* n floats into memory of their own. */
static int load_floats(qobs_observer *o, struct source *source, uint64_t n, float **to, size_t *count, qobs_error *error)
{
    if (n > (size_t)(source->end - source->at) / sizeof **to)
        return qobs_damaged(error, "its given amax or weights are not all there");
    if (n == 0)
        return QOBS_OK;
    *to = qobs_allocate_state(&o->runtime, (size_t)n * sizeof **to);
    if (!*to)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes", (size_t)n * sizeof **to);
    *count = (size_t)n;
    qobs_get_elements(source, *to, (size_t)n, sizeof **to);
    for (size_t i = 0; i < *count; i++)
        if (!((*to)[i] >= 0) || isinf((*to)[i]))
            return qobs_damaged(error, "its given amax or weights cannot be");
    return QOBS_OK;
}

int qobs_load_told(qobs_observer *o, struct source *source, qobs_error *error)
{
    struct search_reference *g = &o->given;
    const uint64_t dtype = qobs_get(source, 4), n = qobs_get(source, 8);
    enum qobs_kernel_dtype unused;
    if (dtype > 0 ? !qobs_kernel_dtype_of((qobs_dtype)dtype, &unused) : n > 0)
        return qobs_damaged(error, "the dtype of its given amax cannot be");
    g->dtype = (qobs_dtype)dtype;
    if (n > 0 && qobs_get_shape(source, &g->shape) != n)
        return qobs_damaged(error, "the shape of its given amax cannot be");
    int status = load_floats(o, source, n, &g->amax, &g->count, error);
    if (status == QOBS_OK)
        status = load_floats(o, source, qobs_get(source, 8), &g->weight, &g->weights, error);
    if (status != QOBS_OK || !o->stages.range.ops->sums || !qobs_has_ranges(o))
        return status;
    const size_t sums = o->layout.qparams * qobs_range_steps(&o->stages.range);
    if (sums > (size_t)(source->end - source->at) / sizeof *o->kept.sums)
        return qobs_damaged(error, "its errors are not all there");
    status = qobs_allocate_sums(&o->runtime, &o->kept, sums, error);
    if (status == QOBS_OK)
        qobs_get_elements(source, o->kept.sums, sums, sizeof *o->kept.sums);
    return status;
}

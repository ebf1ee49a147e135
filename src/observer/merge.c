/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Several observers: their statistics as one, and one global scale for all. */
#include <math.h>
#include <string.h>

#include "formula/formula.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "number/convert.h"
#include "observer/observer.h"
#include "observer/merge_search.h"
#include "measure/accumulators.h"
#include "measure/accumulate.h"
#include "base/tensor.h"

static int check_settings(const qobs_observer *o, const qobs_observer *other, size_t index, qobs_error *error)
{
    bool same = o->config.preset == other->config.preset;
    for (size_t i = 0; same && i < qobs_config_key_count(&o->config); i++) {
        const char *key = qobs_config_key(&o->config, i);
        char ours[64] = "", theirs[64] = "";
        qobs_config_get(&o->config, key, ours, sizeof ours, NULL);
        qobs_config_get(&other->config, key, theirs, sizeof theirs, NULL);
        same = strcmp(ours, theirs) == 0;
    }
    if (!same)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "others[%zu]: its settings are not those of the observer",
                         index);
    return QOBS_OK;
}

static int check_shape(const qobs_observer *model, const qobs_observer *other, size_t index, qobs_error *error)
{
    const struct layout *a = &model->layout, *b = &other->layout;
    if (a->dtype != b->dtype || a->keying != b->keying || !qobs_same_shape(&a->range, &b->range) || !qobs_same_shape(&a->scale, &b->scale))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "others[%zu]: has %zu qparams of %s in %d dimensions, the observer %zu of %s in %d", index,
                         b->qparams, qobs_dtype_name(b->dtype), b->range.ndim, a->qparams, qobs_dtype_name(a->dtype),
                         a->range.ndim);
    return QOBS_OK;
}

/* The first with ranges, from which an empty observer learns what they are. */
static const qobs_observer *first_with_ranges(const qobs_observer *o, const qobs_observer *const *others, size_t count)
{
    if (qobs_has_ranges(o))
        return o;
    for (size_t i = 0; i < count; i++)
        if (qobs_has_ranges(others[i]))
            return others[i];
    return NULL;
}

static int copy_ranges(qobs_observer *to, const qobs_observer *from, qobs_error *error)
{
    const struct layout *layout = &from->layout;
    const int status = qobs_allocate_ranges(&to->runtime, &to->kept.state, layout->dtype, layout->qparams, error);
    if (status != QOBS_OK)
        return status;
    memcpy(to->kept.state.min, from->kept.state.min, from->kept.state.size);
    to->layout = *layout;
    return QOBS_OK;
}

/* An observer's minima or maxima, of its qparams or of the whole; NULL: it has none. */
static unsigned char *bounds_of(const qobs_observer *o, bool whole, bool max)
{
    if (whole)
        return o->whole.dtype == 0 ? NULL : (unsigned char *)(max ? o->whole.max : o->whole.min);
    return max ? o->kept.state.max : o->kept.state.min;
}

static void merge_extremes(qobs_observer *o, const qobs_observer *const *others, size_t count, bool whole)
{
    const qobs_dtype dtype = whole ? o->whole.dtype : o->layout.dtype;
    for (size_t i = 0; i < count; i++)
        if (bounds_of(others[i], whole, false))
            qobs_update_running(dtype, whole ? 1 : o->layout.qparams, bounds_of(o, whole, false), bounds_of(o, whole, true),
                                bounds_of(others[i], whole, false), bounds_of(others[i], whole, true));
}

static void merge_means(qobs_observer *o, const qobs_observer *const *others, size_t count, bool whole, bool own)
{
    const qobs_dtype dtype = whole ? o->whole.dtype : o->layout.dtype;
    const size_t size = qobs_dtype_size(dtype), end = (whole ? 1 : o->layout.qparams) * size;
    for (int max = 0; max < 2; max++)
        for (size_t at = 0; at < end; at += size) {
            unsigned char *to = bounds_of(o, whole, max) + at;
            double sum = own ? qobs_element(to, dtype) : 0, n = own ? 1 : 0;
            for (size_t i = 0; i < count; i++)
                if (bounds_of(others[i], whole, max)) {
                    sum += qobs_element(bounds_of(others[i], whole, max) + at, dtype);
                    n++;
                }
            qobs_put_element(to, dtype, sum / n);
        }
}

/* `own`: o had such ranges before. */
static void merge_ranges(qobs_observer *o, const qobs_observer *const *others, size_t count, bool whole, bool own)
{
    const enum merging merging = qobs_merging(&o->config);
    if (merging == MERGE_EXTREMES)
        merge_extremes(o, others, count, whole);
    else if (merging == MERGE_MEANS)
        merge_means(o, others, count, whole, own);
}

/* The first dtype of a range of the whole, or 0; all others must agree with it. */
static int check_wholes(const qobs_observer *o, const qobs_observer *const *others, size_t count, struct whole *whole,
                        qobs_error *error)
{
    *whole = o->whole;
    for (size_t i = 0; i < count; i++) {
        if (whole->dtype == 0)
            *whole = others[i]->whole;
        if (others[i]->whole.dtype != 0 && others[i]->whole.dtype != whole->dtype)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "others[%zu]: has a range of the whole of %s, the observer of %s",
                             i, qobs_dtype_name(others[i]->whole.dtype), qobs_dtype_name(whole->dtype));
    }
    return QOBS_OK;
}

/* Room for all the votes of others, so that adding them cannot fail. */
static int reserve_votes(qobs_observer *o, const qobs_observer *const *others, size_t count, qobs_error *error)
{
    size_t more = 0;
    for (size_t i = 0; i < count; i++)
        more += others[i]->kept.mode_count.candidates;
    return more > 0 ? qobs_mode_reserve(&o->runtime, &o->kept.mode_count, o->layout.qparams, more, error) : QOBS_OK;
}

static void add_votes(struct mode_count *mode_count, const struct mode_count *others)
{
    for (size_t i = 0; i < others->candidates; i++) {
        memcpy(qobs_mode_scale(mode_count, mode_count->candidates), qobs_mode_scale(others, i),
               (size_t)(qobs_mode_scale(others, 1) - qobs_mode_scale(others, 0)));
        qobs_mode_add(mode_count, others->count[i]);
    }
}

/* All histograms as one: `merged` takes the place of o's once nothing can fail. */
static int merge_histograms(const qobs_observer *o, const qobs_observer *model, const qobs_observer *const *others, size_t count,
                            struct histogram *merged, qobs_error *error)
{
    const struct histogram_rule *rule = &o->stages.histogram;
    if (!rule->ops || !model)
        return QOBS_OK;
    const fp_mode mode = fp_enter();
    int status = qobs_histogram_copy(&o->runtime, rule->ops, merged, &model->kept.histogram, error);
    for (size_t i = 0; status == QOBS_OK && i < count; i++)
        if (others[i] != model && qobs_has_ranges(others[i]))
            status = rule->ops->merge(rule, &o->runtime, merged, &others[i]->kept.histogram, error);
    fp_leave(mode);
    if (status != QOBS_OK)
        qobs_histogram_release(&o->runtime, merged);
    return status;
}

/* The columns all importance there is agrees on; 0: there is none. */
static int common_columns(const qobs_observer *o, const qobs_observer *const *others, size_t count, int64_t *columns,
                          qobs_error *error)
{
    *columns = o->importance.columns;
    for (size_t i = 0; i < count; i++) {
        const int64_t theirs = others[i]->importance.columns;
        if (*columns > 0 && theirs > 0 && theirs != *columns)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "others[%zu]: has importance of %lld columns, not of %lld", i,
                             (long long)theirs, (long long)*columns);
        *columns = theirs > 0 ? theirs : *columns;
    }
    return QOBS_OK;
}

static void add_importance(struct importance *importance, const struct importance *other)
{
    importance->tokens += other->tokens;
    for (int64_t j = 0; j < other->columns; j++)
        importance->sum[j] += other->sum[j];
}

int qobs_observer_merge(qobs_observer *o, const qobs_observer *const *others, size_t count, qobs_error *error)
{
    if (!o || (count > 0 && !others))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", o ? "others" : "observer");
    for (size_t i = 0; i < count; i++)
        if (!others[i] || others[i] == o)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "others[%zu]: is %s", i,
                             others[i] ? "the observer itself" : "NULL");
    const qobs_observer *model = first_with_ranges(o, others, count);
    const bool own = qobs_has_ranges(o);
    int status = QOBS_OK;
    for (size_t i = 0; status == QOBS_OK && i < count; i++) {
        status = check_settings(o, others[i], i, error);
        if (status == QOBS_OK && qobs_has_ranges(others[i]))
            status = check_shape(model, others[i], i, error);
    }
    int64_t columns = 0;
    if (status == QOBS_OK)
        status = common_columns(o, others, count, &columns, error);
    const struct layout before = o->layout;
    const bool own_whole = o->whole.dtype != 0;
    struct whole whole;
    struct histogram merged = {0};
    if (status == QOBS_OK)
        status = check_wholes(o, others, count, &whole, error);
    if (status == QOBS_OK && model && !own)
        status = copy_ranges(o, model, error);
    if (status == QOBS_OK)
        status = reserve_votes(o, others, count, error);
    if (status == QOBS_OK && columns > 0)
        status = qobs_importance_reserve(&o->runtime, &o->importance, columns, error);
    if (status == QOBS_OK)
        status = merge_histograms(o, model, others, count, &merged, error);
    if (status == QOBS_OK && model)
        status = qobs_merge_searched_reserve(o, model, others, count, error);
    if (status != QOBS_OK && !own) {
        qobs_release_kept(&o->runtime, &o->kept);
        qobs_search_record_release(&o->runtime, &o->searched);
        o->layout = before;
    }
    if (status != QOBS_OK)
        return status;
    o->fused = false;
    o->whole = whole;
    if (merged.bins > 0) {
        qobs_histogram_release(&o->runtime, &o->kept.histogram);
        o->kept.histogram = merged;
    }
    const fp_mode mode = fp_enter();
    qobs_merge_searched_before(o);
    if (model)
        merge_ranges(o, others, count, false, own);
    if (whole.dtype != 0)
        merge_ranges(o, others, count, true, own_whole);
    for (size_t i = 0; i < count; i++)
        add_importance(&o->importance, &others[i]->importance);
    qobs_merge_searched_after(o, others, count);
    fp_leave(mode);
    for (size_t i = 0; i < count; i++) {
        add_votes(&o->kept.mode_count, &others[i]->kept.mode_count);
        o->counts.batches += others[i]->counts.batches;
        o->counts.elements += others[i]->counts.elements;
        o->counts.nan += others[i]->counts.nan;
        o->counts.inf += others[i]->counts.inf;
        o->counts.tokens += others[i]->counts.tokens;
        o->counts.nonzero_tokens += others[i]->counts.nonzero_tokens;
    }
    return qobs_succeed(error);
}

int qobs_observers_fuse(qobs_observer *const *observers, size_t count, qobs_error *error)
{
    if (count > 0 && !observers)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observers: is NULL");
    double amax = 0;
    for (size_t i = 0; i < count; i++) {
        const qobs_observer *o = observers[i];
        if (!o || !qobs_has_global_scale(o))
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observers[%zu]: %s", i,
                             o ? "has no global scale: its strategy is not tensor_group" : "is NULL");
        const bool whole = qobs_has_whole(&o->config);
        if (whole ? o->whole.dtype == 0 : !qobs_has_ranges(o))
            return qobs_fail(error, QOBS_ERROR_NO_DATA, "observers[%zu]: nothing has been observed yet", i);
        struct range_view ranges = qobs_view_ranges(o);
        if (whole)
            ranges = (struct range_view){.dtype = o->whole.dtype, .n = 1, .min = o->whole.min, .max = o->whole.max};
        const double own = qobs_amax_of_ranges(&ranges);
        amax = own > amax || isnan(own) ? own : amax;
    }
    for (size_t i = 0; i < count; i++) {
        observers[i]->fused = true;
        observers[i]->fused_amax = amax;
    }
    return qobs_succeed(error);
}

int qobs_observer_set_amax(qobs_observer *o, double amax, qobs_error *error)
{
    if (!o || !qobs_has_global_scale(o))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: %s",
                         o ? "has no global scale: its strategy is not tensor_group" : "is NULL");
    const fp_mode mode = fp_enter();
    const bool magnitude = amax >= 0;
    fp_leave(mode);
    if (!magnitude)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "amax: is %g, must be a number, and not negative", amax);
    o->fused = true;
    o->fused_amax = amax;
    return qobs_succeed(error);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Several observers become one, as one prepare/commit pair like a batch, and several observers share one global scale.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "config/settings.h"
#include "measure/accumulators.h"
#include "number/convert.h"
#include "observer/searches.h"
#include "observer/qparams.h"

struct merge {
    qobs_observer *o;
    const qobs_observer *const *others;
    size_t count;
    const qobs_observer *model; /* the first with ranges, whose layout all have; NULL: none has any */
    bool own;                   /* o has ranges */

    /* Results, which commit() moves into the observer. */
    struct state fresh; /* if o has no ranges: the state it gets */
    struct state *state;
    struct histogram histogram;
    struct importance importance;
    struct gram gram;
    struct global_range global;
};

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static int check_settings(const qobs_observer *o, const qobs_observer *other, size_t index, qobs_error *error)
{
    const struct qobs_config *a = &o->config, *b = &other->config;
    if (a->preset != b->preset)
        return qobs_invalid(error, "others[%zu]: its preset is %s, the observer's is %s", index, qobs_config_preset(b),
                            qobs_config_preset(a));
    for (size_t i = 0; i < qobs_config_key_count(a); i++) {
        const char *key = qobs_config_key(a, i);
        char ours[64] = "", theirs[64] = "";
        if (qobs_setting_at(a->preset, i)->of_codes)
            continue;
        qobs_config_get(a, key, ours, sizeof ours, NULL);
        qobs_config_get(b, key, theirs, sizeof theirs, NULL);
        if (strcmp(ours, theirs) != 0)
            return qobs_invalid(error, "others[%zu]: its setting %s is %s, the observer's is %s", index, key, theirs,
                                ours);
    }
    return QOBS_OK;
}

static int check_layout(const struct layout *a, const struct layout *b, size_t index, qobs_error *error)
{
    if (a->dtype == b->dtype && a->keying == b->keying && qobs_same_shape(&a->range, &b->range) &&
        qobs_same_shape(&a->scale, &b->scale))
        return QOBS_OK;
    return qobs_invalid(error, "others[%zu]: has %zu qparams of %s in %d dimensions, the observer %zu of %s in %d",
                        index, b->qparams, qobs_dtype_name(b->dtype), b->range.ndim, a->qparams,
                        qobs_dtype_name(a->dtype), a->range.ndim);
}

static int check_others(const struct merge *m, qobs_error *error)
{
    for (size_t i = 0; i < m->count; i++) {
        RETURN_IF_FAILED(check_settings(m->o, m->others[i], i, error));
        if (!qobs_state_is_empty(&m->others[i]->state))
            RETURN_IF_FAILED(check_layout(&m->model->state.layout, &m->others[i]->state.layout, i, error));
    }
    return QOBS_OK;
}

/* ---- Prepare ----------------------------------------------------------------------------------------------------- */

/* Importance has one number of columns in all observers that have any. */
static int prepare_importance(struct merge *m, qobs_error *error)
{
    int64_t columns = m->o->importance.columns;
    for (size_t i = 0; i < m->count; i++) {
        const int64_t theirs = m->others[i]->importance.columns;
        if (columns > 0 && theirs > 0 && theirs != columns)
            return qobs_invalid(error, "others[%zu]: has importance of %lld columns, not of %lld", i, (long long)theirs,
                                (long long)columns);
        columns = theirs > 0 ? theirs : columns;
    }
    if (columns == 0)
        return QOBS_OK;
    if (m->o->importance.columns == 0)
        RETURN_IF_FAILED(qobs_importance_reserve(&m->o->runtime, &m->importance, columns, error));
    if (!qobs_needs_gram(&m->o->stages) || m->o->gram.sum)
        return QOBS_OK;
    m->gram = qobs_gram_for(&m->o->stages, columns);
    return qobs_gram_reserve(&m->o->runtime, &m->gram, error);
}

/* All global ranges have one dtype. */
static int prepare_global(struct merge *m, qobs_error *error)
{
    m->global = m->o->global_range;
    for (size_t i = 0; i < m->count; i++) {
        const struct global_range *theirs = &m->others[i]->global_range;
        if (m->global.dtype == 0)
            m->global = *theirs;
        if (theirs->dtype != 0 && theirs->dtype != m->global.dtype)
            return qobs_invalid(error, "others[%zu]: has a global range of %s, the observer of %s", i,
                                qobs_dtype_name(theirs->dtype), qobs_dtype_name(m->global.dtype));
    }
    return QOBS_OK;
}

/* An observer without ranges starts with those of the model. */
static int prepare_ranges(struct merge *m, qobs_error *error)
{
    if (!m->model || m->own)
        return QOBS_OK;
    const struct state *from = &m->model->state;
    m->fresh.layout = from->layout;
    const int status =
        qobs_allocate_ranges(&m->o->runtime, &m->fresh.ranges, from->layout.dtype, from->layout.qparams, error);
    if (status == QOBS_OK)
        memcpy(m->fresh.ranges.min, from->ranges.min, from->ranges.size);
    return status;
}

static int prepare_mode(struct merge *m, qobs_error *error)
{
    size_t more = 0;
    for (size_t i = 0; i < m->count; i++)
        more += m->others[i]->state.mode.candidates;
    return more > 0 ? qobs_mode_reserve(&m->o->runtime, &m->state->mode, m->model->state.layout.qparams, more, error)
                    : QOBS_OK;
}

/* All histograms as one, which later replaces the observer's. */
static int prepare_histogram(struct merge *m, qobs_error *error)
{
    const struct histogram_rule *rule = &m->o->stages.reduction.histogram;
    const struct runtime *runtime = &m->o->runtime;
    if (!rule->ops || !m->model)
        return QOBS_OK;
    const fp_mode mode = fp_enter();
    int status = qobs_histogram_copy(runtime, rule->ops, &m->histogram, &m->model->state.histogram, error);
    for (size_t i = 0; status == QOBS_OK && i < m->count; i++)
        if (m->others[i] != m->model && !qobs_state_is_empty(&m->others[i]->state))
            status = rule->ops->merge(rule, runtime, &m->histogram, &m->others[i]->state.histogram, error);
    fp_leave(mode);
    return status;
}

static int prepare(struct merge *m, qobs_error *error)
{
    RETURN_IF_FAILED(check_others(m, error));
    RETURN_IF_FAILED(prepare_importance(m, error));
    RETURN_IF_FAILED(prepare_global(m, error));
    RETURN_IF_FAILED(prepare_ranges(m, error));
    RETURN_IF_FAILED(prepare_mode(m, error));
    RETURN_IF_FAILED(prepare_histogram(m, error));
    return m->model ? qobs_merge_search_prepare(m->o, m->state, m->model, m->others, m->count, error) : QOBS_OK;
}

static void discard(struct merge *m)
{
    qobs_state_release(&m->o->runtime, &m->fresh);
    qobs_histogram_release(&m->o->runtime, &m->histogram);
    qobs_importance_release(&m->o->runtime, &m->importance);
    qobs_gram_release(&m->o->runtime, &m->gram);
}

/* ---- Commit ------------------------------------------------------------------------------------------------------ */

/* Minima and maxima of the qparams, or of whole tensors; min NULL: there are none. */
struct bounds {
    qobs_dtype dtype;
    size_t n;
    unsigned char *min, *max;
};

static struct bounds bounds_of(const qobs_observer *o, bool global)
{
    struct global_range *g = (struct global_range *)&o->global_range;
    const struct state *s = &o->state;
    return global ? (struct bounds){g->dtype, 1, g->dtype ? g->min : NULL, g->max}
                  : (struct bounds){s->layout.dtype, s->layout.qparams, s->ranges.min, s->ranges.max};
}

/* `own`: o had such bounds before, else they are a copy of another's. */
static void merge_means(const struct merge *m, bool global, bool own)
{
    const struct bounds to = bounds_of(m->o, global);
    const size_t size = qobs_dtype_size(to.dtype);
    for (size_t at = 0; at < 2 * to.n; at++) {
        const size_t offset = at / 2 * size;
        unsigned char *bound = (at % 2 ? to.max : to.min) + offset;
        double sum = own ? qobs_element(bound, to.dtype) : 0, n = own ? 1 : 0;
        for (size_t i = 0; i < m->count; i++) {
            const struct bounds from = bounds_of(m->others[i], global);
            if (from.min) {
                sum += qobs_element((at % 2 ? from.max : from.min) + offset, to.dtype);
                n++;
            }
        }
        qobs_put_element(bound, to.dtype, sum / n);
    }
}

static void merge_extremes(const struct merge *m, bool global)
{
    const struct bounds to = bounds_of(m->o, global);
    for (size_t i = 0; i < m->count; i++) {
        const struct bounds from = bounds_of(m->others[i], global);
        if (from.min)
            qobs_update_running(to.dtype, to.n, to.min, to.max, from.min, from.max);
    }
}

static void merge_ranges(const struct merge *m, bool global, bool own)
{
    if (m->o->stages.accumulator.merge == MERGE_EXTREMES)
        merge_extremes(m, global);
    else if (m->o->stages.accumulator.merge == MERGE_MEANS)
        merge_means(m, global, own);
}

static void add_mode(struct mode_count *mode, const struct mode_count *other)
{
    const size_t size = 2 * 4 * other->n; /* scales and zero points */
    for (size_t i = 0; i < other->candidates; i++) {
        memcpy(qobs_mode_scale(mode, mode->candidates), qobs_mode_scale(other, i), size);
        qobs_mode_add(mode, other->count[i]);
    }
}

static void add_importance(struct importance *importance, const struct importance *other)
{
    importance->tokens += other->tokens;
    for (int64_t j = 0; j < other->columns; j++)
        importance->sum[j] += other->sum[j];
}

static void add_counts(qobs_counts *counts, const qobs_counts *other)
{
    counts->batches += other->batches;
    counts->elements += other->elements;
    counts->nan += other->nan;
    counts->inf += other->inf;
    counts->tokens += other->tokens;
    counts->nonzero_tokens += other->nonzero_tokens;
    counts->ignored += other->ignored;
}

/* Moves what was prepared into the observer; what it replaces goes to *m. */
static void adopt(struct merge *m)
{
    qobs_observer *o = m->o;
    if (m->model && !m->own) {
        const struct state old = o->state;
        o->state = m->fresh;
        m->fresh = old;
        if (qobs_range_has_sums(o->stages.range.ops))
            o->reference.dtype = m->model->reference.dtype;
    }
    if (m->histogram.bins > 0) {
        const struct histogram old = o->state.histogram;
        o->state.histogram = m->histogram;
        m->histogram = old;
    }
    if (m->importance.columns > 0) {
        o->importance = m->importance;
        m->importance = (struct importance){0};
    }
    if (m->gram.sum) {
        o->gram = m->gram;
        m->gram = (struct gram){0};
    }
}

/* Optimal scales go with the global scale under which they were searched. */
static void adopt_fused(const struct merge *m)
{
    const bool keeps = m->o->stages.range.ops->optimal != NULL;
    if (keeps && !m->own && m->model)
        m->o->fused_amax = m->model->fused_amax;
    m->o->fused = keeps && (m->own || !m->model ? m->o : m->model)->fused;
}

static void commit(struct merge *m)
{
    qobs_observer *o = m->o;
    const bool own_global = o->global_range.dtype != 0;
    const fp_mode mode = fp_enter();
    adopt(m);
    adopt_fused(m);
    o->global_range = m->global;
    qobs_merge_search_before(o);
    if (m->model)
        merge_ranges(m, false, m->own);
    if (m->global.dtype != 0)
        merge_ranges(m, true, own_global);
    qobs_merge_search_after(o, m->others, m->count);
    for (size_t i = 0; i < m->count; i++) {
        add_importance(&o->importance, &m->others[i]->importance);
        if (o->gram.sum)
            qobs_gram_merge(&o->gram, &m->others[i]->gram);
        add_mode(&o->state.mode, &m->others[i]->state.mode);
        add_counts(&o->counts, &m->others[i]->counts);
    }
    fp_leave(mode);
}

int qobs_observer_merge(qobs_observer *o, const qobs_observer *const *others, size_t count, qobs_error *error)
{
    if (!o || (count > 0 && !others))
        return qobs_invalid(error, "%s: is NULL", o ? "others" : "observer");
    struct merge m = {.o = o, .others = others, .count = count, .own = !qobs_state_is_empty(&o->state)};
    m.model = m.own ? o : NULL;
    for (size_t i = 0; i < count; i++) {
        if (!others[i] || others[i] == o)
            return qobs_invalid(error, "others[%zu]: is %s", i, others[i] ? "the observer itself" : "NULL");
        if (!m.model && !qobs_state_is_empty(&others[i]->state))
            m.model = others[i];
    }
    m.state = m.own ? &o->state : &m.fresh;
    const int status = prepare(&m, error);
    if (status == QOBS_OK)
        commit(&m);
    discard(&m);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

/* ---- One global scale for several observers ---------------------------------------------------------------------- */

static int check_global_scale(const qobs_observer *o, const char *name, qobs_error *error)
{
    if (o && o->stages.traits.global != GLOBAL_NONE)
        return QOBS_OK;
    return qobs_invalid(error, "%s: %s", name, o ? "has no global scale: its strategy is not tensor_group" : "is NULL");
}

static void share_amax(qobs_observer *o, double amax)
{
    o->fused = true;
    o->fused_amax = amax;
}

int qobs_observers_fuse(qobs_observer *const *observers, size_t count, qobs_error *error)
{
    if (count > 0 && !observers)
        return qobs_invalid(error, "observers: is NULL");
    double amax = 0;
    for (size_t i = 0; i < count; i++) {
        const qobs_observer *o = observers[i];
        char name[40];
        snprintf(name, sizeof name, "observers[%zu]", i);
        RETURN_IF_FAILED(check_global_scale(o, name, error));
        const bool tensors = o->stages.traits.global == GLOBAL_FROM_TENSORS;
        if (tensors ? o->global_range.dtype == 0 : qobs_state_is_empty(&o->state))
            return qobs_fail(error, QOBS_ERROR_NO_DATA, "%s: nothing has been observed yet", name);
        const struct bounds bounds = bounds_of(o, tensors);
        const struct range_view ranges = {.dtype = bounds.dtype, .n = bounds.n, .min = bounds.min, .max = bounds.max};
        const double own = qobs_amax_of_ranges(&ranges);
        amax = own > amax || isnan(own) ? own : amax;
    }
    for (size_t i = 0; i < count; i++)
        share_amax(observers[i], amax);
    return qobs_succeed(error);
}

int qobs_observer_set_global_amax(qobs_observer *o, double amax, qobs_error *error)
{
    RETURN_IF_FAILED(check_global_scale(o, "observer", error));
    const fp_mode mode = fp_enter();
    const bool magnitude = amax >= 0 && amax <= FLT_MAX; /* the global scale of a larger one would be 0 in F32 */
    fp_leave(mode);
    if (!magnitude)
        return qobs_invalid(error, "amax: is %g, allowed are numbers from 0 to %g", amax, (double)FLT_MAX);
    share_amax(o, amax);
    return qobs_succeed(error);
}

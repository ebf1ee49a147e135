/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Several observers become one, as one prepare/commit pair like a batch, and several observers share one global scale.
 */
#include <stdio.h>

#include "base/fpenv.h"
#include "config/settings.h"
#include "observer/state_parts.h"

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static int check_settings(const qobs_observer *o, const qobs_observer *other, size_t index, qobs_error *error)
{
    const struct qobs_config *a = &o->config, *b = &other->config;
    if (a->preset != b->preset)
        return qobs_invalid(error, "others[%zu]: its preset is %s, the observer's is %s", index, qobs_config_preset(b),
                            qobs_config_preset(a));
    const struct setting *setting;
    for (size_t i = 0; (setting = qobs_setting_at(a->preset, i)); i++) {
        char ours[QOBS_SETTING_VALUE], theirs[QOBS_SETTING_VALUE];
        qobs_setting_print(setting, a, false, ours);
        qobs_setting_print(setting, b, false, theirs);
        if (!setting->of_codes && strcmp(ours, theirs) != 0)
            return qobs_invalid(error, "others[%zu]: its setting %s is %s, the observer's is %s", index, setting->key,
                                theirs, ours);
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

static void commit(struct merge *m)
{
    const struct state_range *ops = m->o->stages.range.ops->state;
    const bool moves = m->model && !m->own, keeps = m->o->stages.range.ops->optimal != NULL;
    FP_SCOPE;
    qobs_parts_adopt(m->o, &m->next, moves);
    if (moves && keeps) { /* optimal scales go with the global scale under which they were searched */
        m->o->fused = m->model->fused;
        m->o->fused_amax = m->model->fused_amax;
    }
    m->o->fused = keeps && m->o->fused;
    qobs_parts_merge(m);
    const struct search_state state = qobs_search_state(m->o);
    if (ops && ops->after_merge)
        ops->after_merge(&state);
}

int qobs_observer_merge(qobs_observer *o, const qobs_observer *const *others, size_t count, qobs_error *error)
{
    if (!o || (count > 0 && !others))
        return qobs_invalid(error, "%s: is NULL", o ? "others" : "observer");
    struct merge m = {.o = o, .others = others, .count = count, .own = !qobs_state_is_empty(&o->state)};
    m.next.runtime = o->runtime;
    m.next.parts = o->parts;
    m.model = m.own ? o : NULL;
    for (size_t i = 0; i < count; i++) {
        if (!others[i] || others[i] == o)
            return qobs_invalid(error, "others[%zu]: is %s", i, others[i] ? "the observer itself" : "NULL");
        if (!m.model && !qobs_state_is_empty(&others[i]->state))
            m.model = others[i];
    }
    m.state = m.own ? &o->state : &m.next.state;
    int status = check_others(&m, error);
    if (status == QOBS_OK)
        status = qobs_parts_prepare_merge(&m, error);
    if (status == QOBS_OK)
        commit(&m);
    qobs_parts_release(&m.next);
    return qobs_finish(status, error);
}

/* ---- One global scale for several observers ---------------------------------------------------------------------- */

static int check_global_scale(const qobs_observer *o, const char *name, qobs_error *error)
{
    if (o && o->stages.traits.global != GLOBAL_NONE)
        return QOBS_OK;
    return qobs_invalid(error, "%s: %s", name, o ? "has no global scale: its strategy is not tensor_group" : "is NULL");
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
        const struct range_view ranges = qobs_view_global(o);
        const double own = qobs_amax_of_ranges(&ranges);
        amax = own > amax || isnan(own) ? own : amax;
    }
    for (size_t i = 0; i < count; i++) {
        observers[i]->fused = true;
        observers[i]->fused_amax = amax;
    }
    return qobs_succeed(error);
}

int qobs_observer_set_global_amax(qobs_observer *o, double amax, qobs_error *error)
{
    RETURN_IF_FAILED(check_global_scale(o, "observer", error));
    FP_SCOPE;
    const bool magnitude = amax >= 0 && amax <= FLT_MAX; /* the global scale of a larger one would be 0 in F32 */
    if (!magnitude)
        return qobs_invalid(error, "amax: is %g, allowed are numbers from 0 to %g", amax, (double)FLT_MAX);
    o->fused = true;
    o->fused_amax = amax;
    return qobs_succeed(error);
}

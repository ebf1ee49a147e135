/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "grid/qparam_sums.h"

#include <math.h>

#include "number/number.h"

void qobs_drop_nonfinite(const struct qparam_search *s, const struct qparam_workspace *w, size_t i, float *sum,
                         size_t step)
{
    for (size_t c = 0; c < s->shrink.candidates && !w->shrunk.finite[i]; c++)
        if (!isfinite(w->shrunk.scale[c * QOBS_SEARCH_LANES + i]) ||
            !isfinite(w->shrunk.offset[c * QOBS_SEARCH_LANES + i]))
            sum[c * step] = NAN;
}

/* Removes up to `bytes` bytes from the start of w->prefetch. */
static struct prefetch_ahead next_prefetch(struct qparam_workspace *w, size_t bytes)
{
    struct prefetch_ahead some = w->prefetch;
    if (bytes < (size_t)(some.end - some.from))
        some.end = some.from + bytes;
    w->prefetch.from = some.end;
    return some;
}

void qobs_sum_blocks(const struct qparam_search *s, struct qparam_workspace *w, size_t i, const struct elements *e,
                     int64_t first, int64_t end)
{
    const double factor = qobs_search_prescale(w->ranges.prescale_exp[i]);
    const struct search_candidates candidates = candidates_of(w, i);
    for (size_t c = 0; c < s->shrink.padded; c++)
        w->total[c] = 0;
    for (; first < end; first += QOBS_SEARCH_MOST) {
        const size_t n = end - first < QOBS_SEARCH_MOST ? (size_t)(end - first) : QOBS_SEARCH_MOST;
        e->gather->load(&s->source, e, first, n, factor, w->x);
        if (s->weighted)
            e->gather->weights(&s->source, e, first, n, w->weight);
        if (s->native.active) {
            s->kernels->search_native(&s->quantizer, &s->native.norm, s->native.is_bf16, s->shifted, w->x,
                                      s->weighted ? w->weight : NULL, n, &candidates, s->shrink.padded, w->total);
            continue;
        }
        s->kernels->search_errors(&s->quantizer, &s->norm.errors, s->shifted, w->x, s->weighted ? w->weight : NULL, n,
                                  &candidates, s->shrink.padded, next_prefetch(w, n * s->size), w->sum);
        qobs_drop_nonfinite(s, w, i, w->sum, 1);
        for (size_t c = 0; c < s->shrink.candidates; c++)
            w->total[c] += (double)w->sum[c];
    }
}

/* ---- Bounds of upstream's own arithmetic ------------------------------------------------------------------------- */

static const struct native_bound *rule_of(const struct qparam_search *s, struct qparam_workspace *w, float scale)
{
    const uint32_t key = bits_of_float(scale) >> RULE_SHIFT;
    struct rule_entry *const entry = &w->rules[key % RULE_ENTRIES];
    if (entry->key != key || key == 0) {
        entry->key = key;
        qobs_native_bound_rule(&s->native, &s->quantizer, float_of_bits(key << RULE_SHIFT), &entry->rule);
    }
    return &entry->rule;
}

size_t qobs_load_block(const struct qparam_search *s, struct qparam_workspace *w, const struct elements *e,
                       int64_t first, bool there)
{
    const size_t n = e->count - first < QOBS_SEARCH_MOST ? (size_t)(e->count - first) : QOBS_SEARCH_MOST;
    if (!there || e->count > QOBS_SEARCH_MOST)
        e->gather->load(&s->source, e, first, n, 1, w->x);
    return n;
}

/* Writes bounds of all candidates of qparam i of the batch to w->sum. */
static void find_bounds(const struct qparam_search *s, struct qparam_workspace *w, size_t i, const struct elements *e)
{
    const struct search_candidates candidates = candidates_of(w, i);
    const struct native_bound *const rule = rule_of(s, w, candidates.scale[0]);
    float *const bound = w->sum, *const some = w->sum + s->shrink.padded;
    for (size_t c = 0; c < s->shrink.padded; c++)
        bound[c] = 0;
    for (int64_t first = 0; first < e->count; first += QOBS_SEARCH_MOST) {
        const size_t n = qobs_load_block(s, w, e, first, false);
        s->kernels->search_native_bound(&s->quantizer, rule, s->shifted, w->x, n, &candidates, s->shrink.padded, some);
        for (size_t c = 0; c < s->shrink.padded; c++)
            bound[c] += some[c];
    }
}

void qobs_sum_candidates(const struct qparam_search *s, struct qparam_workspace *w, size_t i, const struct elements *e,
                         size_t from, size_t n)
{
    const size_t at = from * QOBS_SEARCH_LANES + i;
    const struct search_candidates candidates = {w->shrunk.scale + at, w->shrunk.inverse + at, w->shrunk.offset + at,
                                                 QOBS_SEARCH_LANES};
    for (size_t c = from; c < from + n; c++)
        w->total[c] = 0;
    for (int64_t first = 0; first < e->count; first += QOBS_SEARCH_MOST)
        s->kernels->search_native(&s->quantizer, &s->native.norm, true, s->shifted, w->x, NULL,
                                  qobs_load_block(s, w, e, first, true), &candidates, n, w->total + from);
}

/* The step with the smallest bound comes first. A bound that is NaN decides nothing. */
void qobs_sum_bounded(const struct qparam_search *s, struct qparam_workspace *w, size_t i, const struct elements *e)
{
    const size_t steps = (size_t)s->stop;
    const float *const bound = w->sum;
    size_t lowest = 0;
    find_bounds(s, w, i, e);
    for (size_t c = 0; c < s->shrink.candidates; c++)
        w->total[c] = (double)INFINITY;
    for (size_t c = 1; c < steps; c++)
        lowest = bound[c] < bound[lowest] ? c : lowest;
    if (!(bound[lowest] > 0)) { /* there are no bounds, or one that spares nothing */
        qobs_sum_candidates(s, w, i, e, 0, s->shrink.candidates);
        return;
    }
    qobs_sum_candidates(s, w, i, e, lowest, 1);
    const double best = qobs_native_error(&s->native, w->total[lowest]);
    if (s->error_before && s->shrink.before != lowest)
        qobs_sum_candidates(s, w, i, e, s->shrink.before, 1);
    const float limit = best > (double)QOBS_NATIVE_BOUND_MIN ? (float)best : QOBS_NATIVE_BOUND_MIN;
    const float limit_later = qobs_native_limit_later(limit);
    for (size_t c = 0, end; c < steps; c = end + 1) {
        for (end = c; end < steps && !(bound[end] > (end > lowest ? limit_later : limit)) && isinf(w->total[end]);)
            end++;
        if (end > c)
            qobs_sum_candidates(s, w, i, e, c, end - c);
    }
}

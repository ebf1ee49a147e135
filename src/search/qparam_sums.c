/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "search/grid_search.h"

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

size_t qobs_load_block(const struct qparam_search *s, struct qparam_workspace *w, const struct elements *e,
                       int64_t first, bool there)
{
    const size_t n = e->count - first < QOBS_SEARCH_MOST ? (size_t)(e->count - first) : QOBS_SEARCH_MOST;
    if (!there || e->count > QOBS_SEARCH_MOST)
        e->gather->load(&s->source, e, first, n, 1, w->x);
    return n;
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

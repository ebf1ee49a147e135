/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Qparams of few elements go through each step as a batch: their candidates, their errors, which step is best. Those of more have their
 * candidates as a batch, too, and their errors block by block. */
#include "number/convert.h"
#include "range/search_qparams.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { WORKSPACE_ELEMENTS = QOBS_SEARCH_LANES * QOBS_SEARCH_FEW };

size_t qobs_workspace_size(const struct qparam_search *s)
{
    return 2 * WORKSPACE_ELEMENTS * sizeof(float) + s->shrink.workspace * (QOBS_SEARCH_LANES * sizeof(float) + sizeof(double)) +
           qobs_shrunk_size(&s->shrink) + 64;
}

void qobs_workspace_place(const struct qparam_search *s, unsigned char *memory, struct workspace *d)
{
    memory += (64 - (uintptr_t)memory % 64) % 64;
    d->x = (float *)(void *)memory;
    d->weight = d->x + WORKSPACE_ELEMENTS;
    d->sum = d->weight + WORKSPACE_ELEMENTS;
    unsigned char *const behind = (unsigned char *)(d->sum + s->shrink.workspace * QOBS_SEARCH_LANES);
    qobs_shrunk_place(&s->shrink, behind, &d->shrunk);
    d->total = (double *)(void *)(behind + qobs_shrunk_size(&s->shrink));
    d->prefetch = (struct qobs_prefetch){NULL, NULL};
}

static void read_range(const struct qparam_search *s, size_t qparam, double *min, double *max)
{
    *min = qobs_element(s->min + qparam * s->size, s->plan->dtype);
    *max = qobs_element(s->max + qparam * s->size, s->plan->dtype);
}

/* Elements of that range are multiplied by this power of two. */
static int shift_of(const struct qparam_search *s, double min, double max)
{
    const double a = fabs(min), b = fabs(max);
    return qobs_search_shift(a > b ? a : b, s->plan->dtype);
}

/* ---- Candidates of a batch ---------------------------------------------------------------------------------------------- */

static void shrink(const struct qparam_search *s, struct workspace *d, size_t first, size_t n)
{
    struct ranges *r = &d->ranges;
    r->n = n;
    for (size_t i = 0; i < n; i++) {
        read_range(s, first + i, &r->min[i], &r->max[i]);
        r->finite[i] = isfinite(r->min[i]) && isfinite(r->max[i]);
        r->shift[i] = r->finite[i] ? shift_of(s, r->min[i], r->max[i]) : 0;
    }
    qobs_shrink(&s->shrink, r, &d->shrunk);
}

/* A candidate of qparam i that is no number has no error. */
static void drop_nonfinite(const struct qparam_search *s, const struct workspace *d, size_t i, float *sum, size_t step)
{
    for (size_t c = 0; c < s->shrink.candidates && !d->shrunk.finite[i]; c++)
        if (!isfinite(d->shrunk.scale[c * QOBS_SEARCH_LANES + i]) || !isfinite(d->shrunk.shift[c * QOBS_SEARCH_LANES + i]))
            sum[c * step] = NAN;
}

static struct qobs_search_candidates candidates_of(const struct workspace *d, size_t i)
{
    return (struct qobs_search_candidates){d->shrunk.scale + i, d->shrunk.inverse + i, d->shrunk.shift + i, QOBS_SEARCH_LANES};
}

/* ---- Errors of all candidates of a qparam ------------------------------------------------------------------------------- */

/* The next so many bytes of what is wanted after the batch. */
static struct qobs_prefetch take_ahead(struct workspace *d, size_t bytes)
{
    struct qobs_prefetch some = d->prefetch;
    if (bytes < (size_t)(some.end - some.from))
        some.end = some.from + bytes;
    d->prefetch.from = some.end;
    return some;
}

/* Sums over elements first to end of qparam i of the batch in d->total. */
static void sum_blocks(const struct qparam_search *s, struct workspace *d, size_t i, const struct elements *e, int64_t first, int64_t end)
{
    const double factor = qobs_search_factor(d->ranges.shift[i]);
    const struct qobs_search_candidates candidates = candidates_of(d, i);
    for (size_t c = 0; c < s->shrink.candidates; c++)
        d->total[c] = 0;
    for (; first < end; first += QOBS_SEARCH_MOST) {
        const size_t n = end - first < QOBS_SEARCH_MOST ? (size_t)(end - first) : QOBS_SEARCH_MOST;
        qobs_elements_load(&s->source, e, first, n, factor, d->x);
        if (s->weighted)
            qobs_elements_weights(&s->source, e, first, n, d->weight);
        s->kernels->search_errors(&s->quantizer, &s->norm.errors, s->shifted, d->x, s->weighted ? d->weight : NULL, n, &candidates,
                                  s->shrink.workspace, take_ahead(d, n * s->size), d->sum);
        drop_nonfinite(s, d, i, d->sum, 1);
        for (size_t c = 0; c < s->shrink.candidates; c++)
            d->total[c] += (double)d->sum[c];
    }
}

static void record(struct qparam_search *s, size_t qparam, int32_t step, double best, double before, double unit)
{
    s->best_step[qparam] = step;
    if (s->error)
        s->error[qparam] = (step < 0 ? before : best) * unit;
    if (s->error_before)
        s->error_before[qparam] = before * unit;
}

/* Takes the best of the steps that count. */
static void choose(struct qparam_search *s, size_t qparam, const double *total, double unit, uint64_t *improved)
{
    double best = (double)FLT_MAX / unit;
    int32_t step = -1;
    for (int32_t i = 0; i < s->stop; i++)
        if (total[i] < best) {
            best = total[i];
            step = i;
            improved[i / 64] |= UINT64_C(1) << i % 64;
        }
    record(s, qparam, step, best, total[s->shrink.before], unit);
}

/* What is not finite in a range has no error, and nothing of it improves. */
static void give_up(struct qparam_search *s, size_t qparam)
{
    record(s, qparam, -1, (double)NAN, (double)NAN, 1);
}

static void fill(float *x, size_t from, size_t to)
{
    if (from < to)
        memset(x + from, 0, (to - from) * sizeof *x);
}

/* The elements of qparam i of a batch. */
static void load(const struct qparam_search *s, struct workspace *d, size_t i, const struct elements *e)
{
    const size_t n = (size_t)e->count, padded = (n + QOBS_SEARCH_LANES - 1) / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES;
    qobs_elements_load(&s->source, e, 0, n, qobs_search_factor(d->ranges.shift[i]), d->x + i * s->row);
    fill(d->x + i * s->row, padded, s->row);
    d->most = n > d->most ? n : d->most;
    if (s->weighted) {
        qobs_elements_weights(&s->source, e, 0, n, d->weight + i * s->row);
        fill(d->weight + i * s->row, padded, s->row);
    }
}

/* The least number that is not above x, so that comparing floats with it is comparing them with x. */
static float round_up(double x)
{
    const float f = (float)x;
    return (double)f < x ? nextafterf(f, INFINITY) : f;
}

/* Of qparams that kernels take as a batch, whose elements are loaded. */
static void choose_together(struct qparam_search *s, struct workspace *d, size_t first, uint64_t *improved)
{
    _Alignas(64) float quant_min[QOBS_SEARCH_LANES], best[QOBS_SEARCH_LANES];
    double unit[QOBS_SEARCH_LANES];
    int32_t step[QOBS_SEARCH_LANES];
    const struct ranges *r = &d->ranges;
    const struct qobs_search_candidates candidates = candidates_of(d, 0);
    fill(d->x, r->n * s->row, QOBS_SEARCH_LANES * s->row);
    fill(d->weight, s->weighted ? r->n * s->row : 0, s->weighted ? QOBS_SEARCH_LANES * s->row : 0);
    s->kernels->search_batch(&s->quantizer, &s->norm.errors, s->shifted, d->x, s->weighted ? d->weight : NULL, s->row, d->most, &candidates,
                             s->shrink.workspace, d->prefetch, d->sum);
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        const bool there = i < r->n && r->finite[i];
        unit[i] = there ? qobs_search_unit(&s->norm, r->shift[i]) : 1;
        quant_min[i] = there ? round_up((double)FLT_MAX / unit[i]) : 0; /* no sum is less */
        if (there)
            drop_nonfinite(s, d, i, d->sum + i, QOBS_SEARCH_LANES);
    }
    s->kernels->search_improved(d->sum, (size_t)s->stop, quant_min, step, best, improved);
    const float *const before = d->sum + s->shrink.before * QOBS_SEARCH_LANES;
    for (size_t i = 0; i < r->n; i++) {
        if (r->finite[i])
            record(s, first + i, step[i], (double)best[i], (double)before[i], unit[i]);
        else
            give_up(s, first + i);
    }
}

/* The range of the best step of n qparams from `first` on. */
static void take_ranges(struct qparam_search *s, size_t first, size_t n)
{
    const size_t at = first * s->size;
    qobs_shrink_ends(&s->shrink, s->best_step + first, n, s->min + at, s->best_min + at);
    qobs_shrink_ends(&s->shrink, s->best_step + first, n, s->max + at, s->best_max + at);
}

void qobs_search_qparams(struct qparam_search *s, struct workspace *d, struct elements *e, size_t first, size_t n, uint64_t *improved)
{
    shrink(s, d, first, n);
    d->most = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            qobs_elements_next(&s->source, e);
        if (s->row > 0) {
            load(s, d, i, e);
        } else if (d->ranges.finite[i]) {
            sum_blocks(s, d, i, e, 0, e->count);
            choose(s, first + i, d->total, qobs_search_unit(&s->norm, d->ranges.shift[i]), improved);
        } else {
            give_up(s, first + i);
        }
    }
    if (s->row > 0)
        choose_together(s, d, first, improved);
    take_ranges(s, first, n);
}

/* ---- Qparams in parts --------------------------------------------------------------------------------------------------- */

bool qobs_sum_part(struct qparam_search *s, struct workspace *d, struct elements *e, size_t qparam, int64_t first, int64_t end)
{
    shrink(s, d, qparam, 1);
    if (d->ranges.finite[0])
        sum_blocks(s, d, 0, e, first, end);
    return d->ranges.finite[0];
}

void qobs_choose(struct qparam_search *s, size_t qparam, const double *total, uint64_t *improved)
{
    double min, max;
    read_range(s, qparam, &min, &max);
    if (isfinite(min) && isfinite(max))
        choose(s, qparam, total, qobs_search_unit(&s->norm, shift_of(s, min, max)), improved);
    else
        give_up(s, qparam);
    take_ranges(s, qparam, 1);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Batches of QOBS_SEARCH_LANES qparams: candidates are always computed for a whole batch. Qparams of at most
 * QOBS_SEARCH_FEW elements also get their errors and best steps as a batch, larger ones qparam by qparam, in blocks of
 * QOBS_SEARCH_MOST elements. */
#include "search/grid_search.h"

#include <float.h>

#include "number/convert.h"
#include "number/number.h"

enum { WORKSPACE_ELEMENTS = QOBS_SEARCH_LANES * QOBS_SEARCH_FEW };

size_t qobs_qparam_workspace_size(const struct qparam_search *s)
{
    return 2 * WORKSPACE_ELEMENTS * sizeof(float) +
           s->shrink.padded * (QOBS_SEARCH_LANES * sizeof(float) + sizeof(double)) + qobs_shrunk_size(&s->shrink) +
           s->capacity.rows * s->capacity.stride * sizeof(float) + 64;
}

void qobs_qparam_workspace_place(const struct qparam_search *s, unsigned char *memory, struct qparam_workspace *w)
{
    memory += (64 - (uintptr_t)memory % 64) % 64;
    w->rows = (float *)(void *)memory;
    w->x = w->rows + s->capacity.rows * s->capacity.stride;
    w->weight = w->x + WORKSPACE_ELEMENTS;
    w->sum = w->weight + WORKSPACE_ELEMENTS;
    unsigned char *const behind = (unsigned char *)(w->sum + s->shrink.padded * QOBS_SEARCH_LANES);
    qobs_shrunk_place(&s->shrink, behind, &w->shrunk);
    w->total = (double *)(void *)(behind + qobs_shrunk_size(&s->shrink));
    w->prefetch = (struct prefetch_ahead){NULL, NULL};
}

static void load_range(const struct qparam_search *s, size_t qparam, double *min, double *max)
{
    *min = qobs_element(s->min + qparam * s->size, s->plan->dtype);
    *max = qobs_element(s->max + qparam * s->size, s->plan->dtype);
}

/* Upstream's arithmetic leaves elements as they are. */
static int prescale_exp_of(const struct qparam_search *s, double min, double max)
{
    if (s->native.active)
        return 0;
    const double a = fabs(min), b = fabs(max);
    return qobs_search_prescale_exp(a > b ? a : b, s->plan->dtype);
}

/* ---- Sums of errors of one qparam -------------------------------------------------------------------------------- */

/* Makes the error of candidates of qparam i that are not finite NaN; errors are `step` floats apart. */
static void drop_nonfinite(const struct qparam_search *s, const struct qparam_workspace *w, size_t i, float *sum,
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

/* Sums over elements first to end. */
static void sum_blocks(const struct qparam_search *s, struct qparam_workspace *w, size_t i,
                       const struct qparam_block *e, int64_t first, int64_t end)
{
    const double factor = qobs_search_prescale(w->ranges.prescale_exp[i]);
    const struct search_candidates candidates = candidates_of(w, i);
    for (size_t c = 0; c < s->shrink.padded; c++)
        w->total[c] = 0;
    for (; first < end; first += QOBS_SEARCH_MOST) {
        const size_t n = end - first < QOBS_SEARCH_MOST ? (size_t)(end - first) : QOBS_SEARCH_MOST;
        qobs_block_load(&s->source, e, first, n, factor, w->x);
        if (s->weighted)
            qobs_block_weights(&s->source, e, first, n, w->weight);
        if (s->native.active) {
            s->kernels->search_native(&s->quantizer, &s->native.norm, s->native.is_bf16, s->shifted, w->x,
                                      s->weighted ? w->weight : NULL, n, &candidates, s->shrink.padded, w->total);
            continue;
        }
        s->kernels->search_errors(&s->quantizer, &s->norm.errors, s->shifted, w->x, s->weighted ? w->weight : NULL, n,
                                  &candidates, s->shrink.padded, next_prefetch(w, n * s->size), w->sum);
        drop_nonfinite(s, w, i, w->sum, 1);
        for (size_t c = 0; c < s->shrink.candidates; c++)
            w->total[c] += (double)w->sum[c];
    }
}

size_t qobs_load_block(const struct qparam_search *s, struct qparam_workspace *w, const struct qparam_block *e,
                       int64_t first, bool there)
{
    const size_t n = e->elements - first < QOBS_SEARCH_MOST ? (size_t)(e->elements - first) : QOBS_SEARCH_MOST;
    if (!there || e->elements > QOBS_SEARCH_MOST)
        qobs_block_load(&s->source, e, first, n, 1, w->x);
    return n;
}

void qobs_sum_candidates(const struct qparam_search *s, struct qparam_workspace *w, size_t i,
                         const struct qparam_block *e, size_t from, size_t n)
{
    const size_t at = from * QOBS_SEARCH_LANES + i;
    const struct search_candidates candidates = {w->shrunk.scale + at, w->shrunk.inverse + at, w->shrunk.offset + at,
                                                 QOBS_SEARCH_LANES};
    for (size_t c = from; c < from + n; c++)
        w->total[c] = 0;
    for (int64_t first = 0; first < e->elements; first += QOBS_SEARCH_MOST)
        s->kernels->search_native(&s->quantizer, &s->native.norm, true, s->shifted, w->x, NULL,
                                  qobs_load_block(s, w, e, first, true), &candidates, n, w->total + from);
}

/* ---- Candidates of a batch --------------------------------------------------------------------------------------- */

void qobs_shrink_qparams(const struct qparam_search *s, struct qparam_workspace *w, size_t first, size_t n)
{
    struct range_batch *r = &w->ranges;
    r->n = n;
    for (size_t i = 0; i < n; i++) {
        load_range(s, first + i, &r->min[i], &r->max[i]);
        r->finite[i] = isfinite(r->min[i]) && isfinite(r->max[i]);
        r->prescale_exp[i] = r->finite[i] ? prescale_exp_of(s, r->min[i], r->max[i]) : 0;
    }
    qobs_shrink(&s->shrink, r, &w->shrunk);
}

void qobs_record_step(struct qparam_search *s, size_t qparam, int32_t step, double best, double before, double unit)
{
    s->best_step[qparam] = step;
    if (s->error)
        s->error[qparam] = (step < 0 ? before : best) * unit;
    if (s->error_before)
        s->error_before[qparam] = before * unit;
}

/* The first step with the smallest error below the largest finite float, or number of the dtype in native arithmetic.
 */
static void choose(struct qparam_search *s, size_t qparam, double *total, double unit, uint64_t *improved)
{
    double best = s->native.active ? s->native.largest : (double)FLT_MAX / unit;
    for (size_t c = 0; c < s->shrink.candidates && s->native.active; c++)
        total[c] = qobs_native_error(&s->native, total[c]);
    int32_t step = -1;
    unit = s->native.active ? 1 : unit;
    for (int32_t i = 0; i < s->stop; i++)
        if (total[i] < best) {
            best = total[i];
            step = i;
            improved[i / 64] |= UINT64_C(1) << i % 64;
        }
    qobs_record_step(s, qparam, step, best, total[s->shrink.before], unit);
}

/* A range that is not finite has no error and no best step. */
static void record_nonfinite(struct qparam_search *s, size_t qparam)
{
    qobs_record_step(s, qparam, -1, (double)NAN, (double)NAN, 1);
}

static void fill_zeros(float *x, size_t from, size_t to)
{
    if (from < to)
        memset(x + from, 0, (to - from) * sizeof *x);
}

/* Loads the elements and weights of qparam i of a batch. */
static void load(const struct qparam_search *s, struct qparam_workspace *w, size_t i, const struct qparam_block *e)
{
    const size_t n = (size_t)e->elements, padded = (n + QOBS_SEARCH_LANES - 1) / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES;
    qobs_block_load(&s->source, e, 0, n, qobs_search_prescale(w->ranges.prescale_exp[i]), w->x + i * s->row);
    fill_zeros(w->x + i * s->row, padded, s->row);
    w->most = n > w->most ? n : w->most;
    if (s->weighted) {
        qobs_block_weights(&s->source, e, 0, n, w->weight + i * s->row);
        fill_zeros(w->weight + i * s->row, padded, s->row);
    }
}

/* The smallest float not below x: a float is below it exactly if it is below x. */
static float round_up(double x)
{
    const float f = (float)x;
    return (double)f < x ? nextafterf(f, INFINITY) : f;
}

/* Errors and best steps of a batch whose elements are loaded. */
static void choose_of_batch(struct qparam_search *s, struct qparam_workspace *w, size_t first, uint64_t *improved)
{
    _Alignas(64) float bound[QOBS_SEARCH_LANES], best[QOBS_SEARCH_LANES];
    double unit[QOBS_SEARCH_LANES];
    int32_t step[QOBS_SEARCH_LANES];
    const struct range_batch *r = &w->ranges;
    const struct search_candidates candidates = candidates_of(w, 0);
    fill_zeros(w->x, r->n * s->row, QOBS_SEARCH_LANES * s->row);
    fill_zeros(w->weight, s->weighted ? r->n * s->row : 0, s->weighted ? QOBS_SEARCH_LANES * s->row : 0);
    s->kernels->search_batch(&s->quantizer, &s->norm.errors, s->shifted, w->x, s->weighted ? w->weight : NULL, s->row,
                             w->most, &candidates, s->shrink.padded, w->prefetch, w->sum);
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        const bool valid = i < r->n && r->finite[i];
        unit[i] = valid ? qobs_search_error_unit(&s->norm, r->prescale_exp[i]) : 1;
        bound[i] = valid ? round_up((double)FLT_MAX / unit[i]) : 0; /* no sum is below 0 */
        if (valid)
            drop_nonfinite(s, w, i, w->sum + i, QOBS_SEARCH_LANES);
    }
    s->kernels->search_improved(w->sum, (size_t)s->stop, bound, step, best, improved);
    const float *const before = w->sum + s->shrink.before * QOBS_SEARCH_LANES;
    for (size_t i = 0; i < r->n; i++) {
        if (r->finite[i])
            qobs_record_step(s, first + i, step[i], (double)best[i], (double)before[i], unit[i]);
        else
            record_nonfinite(s, first + i);
    }
}

void qobs_store_ranges(struct qparam_search *s, size_t first, size_t n)
{
    const size_t at = first * s->size;
    qobs_shrink_bounds(&s->shrink, s->best_step + first, n, s->min + at, s->best_min + at);
    qobs_shrink_bounds(&s->shrink, s->best_step + first, n, s->max + at, s->best_max + at);
}

void qobs_search_qparams(struct qparam_search *s, struct qparam_workspace *w, struct qparam_block *e, size_t first,
                         size_t n, uint64_t *improved)
{
    qobs_shrink_qparams(s, w, first, n);
    w->most = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            qobs_block_of_qparam(&s->source, (int64_t)(first + i), e);
        if (s->row > 0) {
            load(s, w, i, e);
        } else if (w->ranges.finite[i]) {
            sum_blocks(s, w, i, e, 0, e->elements);
            choose(s, first + i, w->total, qobs_search_error_unit(&s->norm, w->ranges.prescale_exp[i]), improved);
        } else {
            record_nonfinite(s, first + i);
        }
    }
    if (s->row > 0)
        choose_of_batch(s, w, first, improved);
    qobs_store_ranges(s, first, n);
}

/* ---- Qparams in blocks ------------------------------------------------------------------------------------------- */

bool qobs_sum_block(struct qparam_search *s, struct qparam_workspace *w, struct qparam_block *e, size_t qparam,
                    int64_t first, int64_t end)
{
    qobs_shrink_qparams(s, w, qparam, 1);
    if (w->ranges.finite[0])
        sum_blocks(s, w, 0, e, first, end);
    return w->ranges.finite[0];
}

void qobs_choose_step(struct qparam_search *s, size_t qparam, double *total, uint64_t *improved)
{
    double min, max;
    load_range(s, qparam, &min, &max);
    if (isfinite(min) && isfinite(max))
        choose(s, qparam, total, qobs_search_error_unit(&s->norm, prescale_exp_of(s, min, max)), improved);
    else
        record_nonfinite(s, qparam);
    qobs_store_ranges(s, qparam, 1);
}

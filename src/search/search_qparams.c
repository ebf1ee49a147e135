/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Batches of QOBS_SEARCH_LANES qparams: candidates are always computed for a whole batch. Qparams of at most
 * QOBS_SEARCH_FEW elements also get their errors and best steps as a batch, larger ones qparam by qparam, in blocks of
 * QOBS_SEARCH_MOST elements. Qparams with the same amax have the same candidates. Errors of their elements come from
 * one table. */
#include "search/grid_search.h"

#include <math.h>

#include "number/convert.h"

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

/* Sums go to w->total, of qparam i of the batch whose candidates are in w->shrunk. */

/* The candidates of qparam i. */
static struct search_candidates candidates_of(const struct qparam_workspace *w, size_t i)
{
    return (struct search_candidates){w->shrunk.scale + i, w->shrunk.inverse + i, w->shrunk.offset + i,
                                      QOBS_SEARCH_LANES};
}

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

/* Loads a block in upstream's arithmetic, from element `first` on, unless it is all of the qparam and there already;
 * returns its size. */
static size_t load_block(const struct qparam_search *s, struct qparam_workspace *w, const struct qparam_block *e,
                         int64_t first, bool there)
{
    const size_t n = e->elements - first < QOBS_SEARCH_MOST ? (size_t)(e->elements - first) : QOBS_SEARCH_MOST;
    if (!there || e->elements > QOBS_SEARCH_MOST)
        qobs_block_load(&s->source, e, first, n, 1, w->x);
    return n;
}

/* Sums of n candidates from `from` on in upstream's arithmetic, after load_block. */
static void sum_candidates(const struct qparam_search *s, struct qparam_workspace *w, size_t i,
                           const struct qparam_block *e, size_t from, size_t n)
{
    const size_t at = from * QOBS_SEARCH_LANES + i;
    const struct search_candidates candidates = {w->shrunk.scale + at, w->shrunk.inverse + at, w->shrunk.offset + at,
                                                 QOBS_SEARCH_LANES};
    for (size_t c = from; c < from + n; c++)
        w->total[c] = 0;
    for (int64_t first = 0; first < e->elements; first += QOBS_SEARCH_MOST)
        s->kernels->search_native(&s->quantizer, &s->native.norm, true, s->shifted, w->x, NULL,
                                  load_block(s, w, e, first, true), &candidates, n, w->total + from);
}

/* ---- Candidates of a batch --------------------------------------------------------------------------------------- */

/* Writes candidates of n qparams from `first` on to w->shrunk. */
static void shrink_qparams(const struct qparam_search *s, struct qparam_workspace *w, size_t first, size_t n)
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

/* Writes best_step and errors of a qparam; `unit` multiplies both errors. */
static void record_step(struct qparam_search *s, size_t qparam, int32_t step, double best, double before, double unit)
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
    record_step(s, qparam, step, best, total[s->shrink.before], unit);
}

/* A range that is not finite has no error and no best step. */
static void record_nonfinite(struct qparam_search *s, size_t qparam)
{
    record_step(s, qparam, -1, (double)NAN, (double)NAN, 1);
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
            record_step(s, first + i, step[i], (double)best[i], (double)before[i], unit[i]);
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
    shrink_qparams(s, w, first, n);
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
    shrink_qparams(s, w, qparam, 1);
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

/* ---- Qparams with the same amax: tables of errors ---------------------------------------------------------------- */

/* BF16 has BINADE numbers between powers of two. Rows reach SPLAT_BINADES below the elements whose error depends on the
 * candidate, so that elements without a row are rare. */
enum { BINADE = 128, SPLAT_BINADES = 6, MOST_BYTES = 768 << 10 };

/* A quotient below ZERO_END is rounded to 0, after its own rounding to BF16, too. A quotient below SYMMETRIC_END times
 * the smaller limit is not limited. */
#define ZERO_END 0.498f
#define SYMMETRIC_END (1 - 0x1p-7f)

struct row_capacity qobs_native_rows_capacity(const struct native_search *native, const struct quantizer *quantizer,
                                              size_t candidates, float min_p)
{
    const double limit = fmin(quantizer->quant_max, -quantizer->quant_min);
    const bool integers = (double)quantizer->min_normal >= quantizer->quant_max;
    struct row_capacity capacity = {.stride = (candidates + 7) / 8 * 8};
    if (!native->active || !native->is_bf16 || !native->norm.table || !integers || limit < 1 || !(min_p > 0) ||
        candidates > NATIVE_ROWS_CANDIDATES)
        return capacity;
    /* From the largest element to the first one that is always rounded to 0, then rows of negative elements that are
     * limited. */
    const double binades = log2((limit + 1) / ((double)min_p * (double)ZERO_END)) - log2((double)min_p);
    capacity.rows = (SPLAT_BINADES + (size_t)ceil(binades) + 1) * BINADE;
    if (capacity.rows * capacity.stride * sizeof(float) > MOST_BYTES)
        capacity.rows = 0;
    return capacity;
}

/* The magnitude of the largest BF16 number that is not above x. */
static uint32_t magnitude_of(float x) { return bits_of_float(x) >> 16; }

/* Magnitudes up to `end` have the same error for all candidates. */
static void fill_splats(const struct native_search *native, size_t stride, uint32_t first, uint32_t end, float *row)
{
    for (uint32_t m = first; m <= end; m++, row += stride)
        for (size_t c = 0; c < stride; c++)
            row[c] = (float)native->norm.table[m];
}

bool qobs_native_rows_fill(const struct kernel_table *kernels, const struct native_search *native,
                           const struct quantizer *quantizer, const struct search_candidates *candidates, size_t count,
                           uint32_t amax, const struct row_capacity *capacity, struct native_rows *rows)
{
    enum { CHUNK = 256 };
    _Alignas(64) float x[CHUNK];
    float low = INFINITY, high = 0;
    for (size_t c = 0; c < count; c++) {
        const float scale = candidates->scale[c * candidates->step];
        low = scale < low ? scale : low;
        high = scale > high ? scale : high;
    }
    if (!(low >= 0x1p-90f && high <= 0x1p90f))
        return false;
    const float limit = (float)fmin(quantizer->quant_max, -quantizer->quant_min);
    const uint32_t zero_end = magnitude_of(low * ZERO_END), symmetric_end = magnitude_of(low * limit * SYMMETRIC_END);
    const uint32_t last = amax, end = zero_end < last ? zero_end : last;
    const uint32_t symmetric = symmetric_end < last ? symmetric_end : last;
    const uint32_t first = end > SPLAT_BINADES * BINADE ? end - SPLAT_BINADES * BINADE + 1 : 1;
    const size_t positive = last - first + 1, all = 1 + positive + (last - symmetric), stride = capacity->stride;
    if (all > capacity->rows)
        return false;
    memset(capacity->memory, 0, stride * sizeof(float));
    fill_splats(native, stride, first, end, capacity->memory + stride);
    for (size_t at = 1 + end - first + 1, n; at < all; at += n) {
        n = all - at < CHUNK ? all - at : CHUNK;
        for (size_t i = 0; i < CHUNK; i++) {
            const size_t k = at + i; /* the row */
            const uint32_t bits =
                k <= positive ? (uint32_t)(k + first - 1) : (uint32_t)(k - positive + symmetric) | 0x8000;
            x[i] = k < all ? float_of_bits(bits << 16) : 0;
        }
        float *const row = capacity->memory + at * stride;
        for (size_t i = 0; i < n && count < stride; i++)
            memset(row + i * stride + count, 0, (stride - count) * sizeof(float));
        kernels->search_native_rows(quantizer, &native->norm, x, n, candidates, count, row, stride);
    }
    *rows = (struct native_rows){capacity->memory, stride, first, symmetric, last, native->norm.table};
    return true;
}

/* ---- The order of qparams ---------------------------------------------------------------------------------------- */

uint32_t qobs_amax_bits(const unsigned char *min, const unsigned char *max, size_t qparam)
{
    uint16_t low, high;
    memcpy(&low, min + qparam * sizeof low, sizeof low);
    memcpy(&high, max + qparam * sizeof high, sizeof high);
    const uint32_t a = low & 0x7fff, b = high & 0x7fff, amax = a > b ? a : b;
    return amax < AMAX_NONFINITE ? amax : AMAX_NONFINITE;
}

size_t qobs_amax_order(const unsigned char *min, const unsigned char *max, size_t n, size_t enough, uint32_t *order)
{
    uint32_t *const start = order + n;
    size_t shared = 0, sum = 0;
    memset(start, 0, (AMAX_NONFINITE + 1) * sizeof *start);
    for (size_t i = 0; i < n; i++)
        start[qobs_amax_bits(min, max, i)]++;
    for (size_t amax = 0; amax <= AMAX_NONFINITE; amax++) {
        const uint32_t count = start[amax];
        shared += count >= enough && amax < AMAX_NONFINITE ? count : 0;
        start[amax] = (uint32_t)sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        order[start[qobs_amax_bits(min, max, i)]++] = (uint32_t)i;
    return shared;
}

/* The numbers behind the order have become the ends of each amax. */
size_t qobs_amax_count(const uint32_t *order, size_t n, uint32_t amax)
{
    const uint32_t *const end = order + n;
    return end[amax] - (amax > 0 ? end[amax - 1] : 0);
}

/* A row of the table costs as much as the errors of so many elements, measured: bench/notes/search.md. */
enum { ELEMENTS_PER_ROW = 2 };

size_t qobs_enough_for_table(const struct qparam_search *s, size_t elements)
{
    return s->capacity.rows * ELEMENTS_PER_ROW / elements + 1;
}

static void prefetch_elements(const struct qparam_search *s, const struct qparam_block *e)
{
    enum { LINE = 64 };
    const struct prefetch_ahead memory = qobs_block_memory(&s->source, e, 0, QOBS_SEARCH_MOST);
    for (const unsigned char *line = memory.from; line < memory.end; line += LINE)
        __builtin_prefetch(line);
}

/* Adds the sums of all blocks of a qparam but the first. */
static bool add_blocks(const struct qparam_search *s, struct qparam_workspace *w, const struct native_rows *rows,
                       const struct qparam_block *e, float *sum)
{
    double total[NATIVE_ROWS_CANDIDATES];
    float some[NATIVE_ROWS_CANDIDATES];
    for (size_t c = 0; c < rows->stride; c++)
        total[c] = (double)sum[c];
    for (int64_t first = QOBS_SEARCH_MOST; first < e->elements; first += QOBS_SEARCH_MOST) {
        if (!s->kernels->search_row_sums(rows, w->x, load_block(s, w, e, first, false), some))
            return false;
        for (size_t c = 0; c < rows->stride; c++)
            total[c] += (double)some[c];
    }
    for (size_t c = 0; c < rows->stride; c++)
        sum[c] = (float)total[c];
    return true;
}

/* The errors of candidates of a qparam, rounded to BF16; the bits of float of numbers that are not negative, which
 * order as they do. Returns false if an element is not in the table. A sum that may be on the other side of a midpoint
 * of two numbers of BF16 is computed anew. */
static bool errors_by_table(const struct qparam_search *s, struct qparam_workspace *w, const struct native_rows *rows,
                            const struct qparam_block *e, uint32_t *error)
{
    const size_t block = e->elements < QOBS_SEARCH_MOST ? (size_t)e->elements : QOBS_SEARCH_MOST;
    const uint32_t uncertain = row_sums_error(block) + 2, middle = 0x8000;
    float sum[NATIVE_ROWS_CANDIDATES];
    uint32_t any = 0;
    if (!s->kernels->search_row_sums(rows, w->x, load_block(s, w, e, 0, false), sum))
        return false;
    if (e->elements > QOBS_SEARCH_MOST && !add_blocks(s, w, rows, e, sum))
        return false;
    for (size_t c = 0; c < rows->stride; c++) {
        const uint32_t bits = bits_of_float(sum[c]), low = bits & 0xffff;
        any |= low - middle + uncertain <= 2 * uncertain;
        error[c] = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    }
    for (size_t c = 0; c < s->shrink.candidates && any; c++)
        if ((bits_of_float(sum[c]) & 0xffff) - middle + uncertain <= 2 * uncertain) {
            sum_candidates(s, w, 0, e, c, 1);
            error[c] = bits_of_float((float)qobs_native_error(&s->native, w->total[c]));
        }
    return true;
}

/* Takes the first step with the smallest error, if it is below the largest number of BF16. */
static void choose_by_table(struct qparam_search *s, size_t qparam, const uint32_t *error, uint64_t *improved)
{
    uint32_t best = bits_of_float((float)s->native.largest);
    int32_t step = -1;
    for (int32_t first = 0; first < s->stop; first += 64) {
        const int32_t end = s->stop - first < 64 ? s->stop : first + 64;
        uint64_t word = 0;
        for (int32_t i = first; i < end; i++) {
            const bool better = error[i] < best;
            best = better ? error[i] : best;
            step = better ? i : step;
            word |= (uint64_t)better << (i - first);
        }
        improved[first / 64] |= word;
    }
    record_step(s, qparam, step, (double)float_of_bits(best), (double)float_of_bits(error[s->shrink.before]), 1);
}

static void search_by_table(struct qparam_search *s, struct qparam_workspace *w, const struct native_rows *rows,
                            const uint32_t *qparam, size_t n, uint64_t *improved)
{
    uint32_t error[NATIVE_ROWS_CANDIDATES];
    struct qparam_block e[2]; /* of a qparam and of the next one */
    qobs_block_of_qparam(&s->source, qparam[0], &e[0]);
    for (size_t i = 0; i < n; i++) {
        struct qparam_block *const now = &e[i % 2], *const next = &e[(i + 1) % 2];
        if (i + 1 < n) {
            qobs_block_of_qparam(&s->source, qparam[i + 1], next);
            prefetch_elements(s, next);
        }
        if (errors_by_table(s, w, rows, now, error))
            choose_by_table(s, qparam[i], error, improved);
        else
            qobs_search_qparams(s, w, now, qparam[i], 1, improved); /* leaves the same candidates in the workspace */
    }
}

void qobs_search_same_amax(struct qparam_search *s, struct qparam_workspace *w, const uint32_t *qparam, size_t n,
                           bool by_table, uint64_t *improved)
{
    const uint32_t amax = qobs_amax_bits(s->min, s->max, qparam[0]);
    const struct row_capacity capacity = {s->capacity.rows, s->capacity.stride, w->rows};
    const struct search_candidates candidates = candidates_of(w, 0);
    struct native_rows rows;
    struct qparam_block e;
    if (by_table && amax < AMAX_NONFINITE) {
        shrink_qparams(s, w, qparam[0], 1);
        if (qobs_native_rows_fill(s->kernels, &s->native, &s->quantizer, &candidates, s->shrink.padded, amax, &capacity,
                                  &rows)) {
            search_by_table(s, w, &rows, qparam, n, improved);
            return;
        }
    }
    for (size_t i = 0; i < n; i++) {
        qobs_block_of_qparam(&s->source, qparam[i], &e);
        qobs_search_qparams(s, w, &e, qparam[i], 1, improved);
    }
}

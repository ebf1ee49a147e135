/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Qparams with the same amax have the same candidates. Errors of their elements come from one table. */

#include <math.h>
#include <string.h>

#include "number/number.h"
#include "search/grid_search.h"

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

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
        if (!s->kernels->search_row_sums(rows, w->x, qobs_load_block(s, w, e, first, false), some))
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
    if (!s->kernels->search_row_sums(rows, w->x, qobs_load_block(s, w, e, 0, false), sum))
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
            qobs_sum_candidates(s, w, 0, e, c, 1);
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
    qobs_record_step(s, qparam, step, (double)float_of_bits(best), (double)float_of_bits(error[s->shrink.before]), 1);
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
        qobs_shrink_qparams(s, w, qparam[0], 1);
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

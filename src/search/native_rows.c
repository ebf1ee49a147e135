/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "search/grid_search.h"

#include <math.h>
#include <string.h>

#include "number/number.h"

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
    if (!native->active || !native->is_bf16 || !native->table || !integers || limit < 1 || !(min_p > 0) ||
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
            row[c] = (float)native->table[m];
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
    *rows = (struct native_rows){capacity->memory, stride, first, symmetric, last, native->table};
    return true;
}

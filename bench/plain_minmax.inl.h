/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One element width of plain.c's minimum and maximum: on integers in the order of the floats, as gcc makes no vectors
 * of a minimum of floats that has to skip NaN. */
#include "templates/width_begin.h"

#include "templates/minmax_key.inl.h"

typedef BITS __attribute__((aligned(1), may_alias)) K(any);

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf,
                    unsigned char *min, unsigned char *max, ptrdiff_t out_step, struct nonfinite_count *nonfinite)
{
    const KEY highest = (KEY)inf, lowest = K(key_of_bits)((BITS)(inf | (BITS)((BITS)1 << (WIDTH - 1))));
    for (; runs > 0; runs--, x += run_stride, min += out_step, max += out_step) {
        KEY lo = highest, hi = lowest;
        for (size_t i = 0; i < length; i++) {
            const KEY k = K(key_of_bits)(K(load_bits)(x + i * sizeof(BITS)));
            lo = k < lo ? k : lo;
            hi = k > hi ? k : hi;
        }
        if (lo <= lowest || hi >= highest) { /* not all are finite */
            lo = highest, hi = lowest;
            K(scan_elements)(x, length, inf, &lo, &hi, nonfinite);
        }
        K(merge_keys)(lo, hi, min, max);
    }
}

static void K(row_panels)(const unsigned char *x, ptrdiff_t row_stride, size_t panels, size_t rows, size_t runs,
                          size_t length, BITS inf, unsigned char *min, unsigned char *max,
                          struct nonfinite_count *nonfinite)
{
    for (size_t b = 0; b < panels; b++, min += runs * sizeof(BITS), max += runs * sizeof(BITS))
        for (size_t r = 0; r < rows; r++, x += row_stride)
            K(rows)(x, (ptrdiff_t)(length * sizeof(BITS)), runs, length, inf, min, max, sizeof(BITS), nonfinite);
}

/* A row of finite elements; at any address. */
static void K(row_of_columns)(const K(any) *restrict x, size_t columns, K(any) *restrict min, K(any) *restrict max)
{
    for (size_t j = 0; j < columns; j++) {
        const KEY k = K(key_of_bits)(x[j]), lo = K(key_of_bits)(min[j]), hi = K(key_of_bits)(max[j]);
        const KEY low = k < lo ? k : lo, high = k > hi ? k : hi;
        min[j] = K(key_of_bits)((BITS)(low == -1 ? 0 : low)); /* -0 becomes +0 */
        max[j] = K(key_of_bits)((BITS)(high == -1 ? 0 : high));
    }
}

static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                       unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite)
{
    for (; rows > 0; rows--, x += row_stride) {
        const K(any) *const v = (const K(any) *)x;
        BITS largest = 0;
        for (size_t j = 0; j < columns; j++) {
            const BITS magnitude = v[j] & ((BITS) ~(BITS)0 >> 1);
            largest = magnitude > largest ? magnitude : largest;
        }
        if (largest < inf)
            K(row_of_columns)(v, columns, (K(any) *)min, (K(any) *)max);
        else
            K(rows)(x, sizeof(BITS), columns, 1, inf, min, max, sizeof(BITS), nonfinite);
    }
}

static void K(indexed)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, const uint32_t *group,
                       size_t groups, BITS inf, unsigned char *min, unsigned char *max, unsigned char *scratch,
                       struct nonfinite_count *nonfinite)
{
    (void)scratch;
    for (; rows > 0; rows--, x += row_stride, min += groups * sizeof(BITS), max += groups * sizeof(BITS))
        for (size_t j = 0; j < columns; j++) {
            unsigned char *const lo = min + group[j] * sizeof(BITS), *const hi = max + group[j] * sizeof(BITS);
            K(rows)(x + j * sizeof(BITS), 0, 1, 1, inf, lo, hi, 0, nonfinite);
        }
}

#include "templates/width_end.h"

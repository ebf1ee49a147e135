/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum in plain C, for one element width: the scalar kernels, and F64 of every instruction set, whose
 * flags decide how wide the compiler makes the loops. Included by src/ISA/minmax.c once per WIDTH.
 *
 * Accumulators: integer keys (minmax_key.inl.h); none can overflow.
 * Counts: 64 bits, made only for blocks and panels that hold an element that is not finite, which are read twice.
 * Tails: the compiler's. Nothing outside a run is read.
 * In flight: as many as the compiler unrolls.
 * Caller's duty: none. */
#include "templates/width_begin.h"

#include "templates/minmax_key.inl.h"

#define PLAIN_ROWS 64 /* of a panel */
enum { K(PLAIN_COLUMNS) = 4096 / sizeof(BITS) };

/* Bounds of n elements as keys. Returns whether all are finite. */
static inline bool K(plain_bounds)(const unsigned char *x, size_t n, BITS inf, KEY *lo, KEY *hi)
{
    KEY l = MOST_POSITIVE, h = MOST_NEGATIVE;
    for (size_t i = 0; i < n; i++) {
        const KEY k = K(key_of_bits)(K(load_bits)(x + i * sizeof(BITS)));
        l = K(key_min)(l, k);
        h = K(key_max)(h, k);
    }
    *lo = l;
    *hi = h;
    return h < (KEY)inf && l > (KEY)~inf;
}

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf,
                    unsigned char *min, unsigned char *max, ptrdiff_t out_step, struct nonfinite_count *nonfinite)
{
    for (size_t i = 0; i < runs; i++, x += run_stride, min += out_step, max += out_step)
        for (size_t done = 0, n; done < length; done += n) {
            n = length - done < K(PLAIN_BLOCK) ? length - done : K(PLAIN_BLOCK);
            KEY lo, hi;
            if (!K(plain_bounds)(x + done * sizeof(BITS), n, inf, &lo, &hi)) {
                lo = MOST_POSITIVE, hi = MOST_NEGATIVE;
                K(scan_elements)(x + done * sizeof(BITS), n, inf, &lo, &hi, nonfinite);
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

/* A panel of at most PLAIN_COLUMNS columns, whose keys stay in L1. */
static void K(plain_panel)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                           unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite)
{
    KEY lo[K(PLAIN_COLUMNS)], hi[K(PLAIN_COLUMNS)], infinite = 0;
    for (size_t j = 0; j < columns; j++)
        lo[j] = MOST_POSITIVE, hi[j] = MOST_NEGATIVE;
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j++) {
            const KEY k = K(key_of_bits)(K(load_bits)(x + (ptrdiff_t)r * row_stride + j * sizeof(BITS)));
            lo[j] = K(key_min)(lo[j], k);
            hi[j] = K(key_max)(hi[j], k);
        }
    for (size_t j = 0; j < columns; j++)
        infinite |= (hi[j] >= (KEY)inf) | (lo[j] <= (KEY)~inf);
    for (size_t r = 0; infinite && r < rows; r++)
        K(rows)(x + (ptrdiff_t)r * row_stride, sizeof(BITS), columns, 1, inf, min, max, sizeof(BITS), nonfinite);
    for (size_t j = 0; !infinite && j < columns; j++)
        K(merge_keys)(lo[j], hi[j], min + j * sizeof(BITS), max + j * sizeof(BITS));
}

static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                       unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite)
{
    for (size_t r = 0; r < rows; r += PLAIN_ROWS)
        for (size_t j = 0; j < columns; j += K(PLAIN_COLUMNS))
            K(plain_panel)
            (x + (ptrdiff_t)r * row_stride + j * sizeof(BITS), row_stride,
             rows - r < PLAIN_ROWS ? rows - r : PLAIN_ROWS,
             columns - j < K(PLAIN_COLUMNS) ? columns - j : K(PLAIN_COLUMNS), inf, min + j * sizeof(BITS),
             max + j * sizeof(BITS), nonfinite);
}

#undef PLAIN_ROWS
#include "templates/width_end.h"

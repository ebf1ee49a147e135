/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The Gram of columns; included by src/ISA/gram.c after simd.h and tuning.h of that folder.
 *
 * Accumulators: a tile of GRAM_ROWS x GRAM_VECTORS * 16 floats in registers; each lane is one entry, so that tiles of
 *   any size give the same bits. Products and sums are fused, rounded once. Doubles are the caller's.
 * Overflow: an infinite product or sum makes its entry infinite or NaN; the bits of a NaN are not defined.
 * Tails: rows one at a time; columns in vectors that reach into the zeros behind b, whose entries are not stored.
 * In flight: GRAM_ROWS * GRAM_VECTORS sums. Lines behind the tokens of b are prefetched into L2, one for 8 tokens of
 *   a tile: callers whose matrices are longer than a call continue there. They need not be readable.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). */
#include "kernels/kernel_hessian.h"
#include "templates/inline.h"

enum { GRAM_LANES = 16, GRAM_PREFETCHED = 8 /* bytes a token and tile */ };

DEEP_INLINE void gram_tile(size_t rows, size_t vectors, const float *a, const float *b, size_t stride, size_t tokens,
                           const char *next, float *out)
{
    f32x16 s[GRAM_ROWS * GRAM_VECTORS];
    for (size_t i = 0; i < rows * vectors; i++)
        s[i] = f32x16_splat(0);
    for (size_t t = 0; t < tokens; t++, a += stride, b += stride) {
        __builtin_prefetch(next + t * GRAM_PREFETCHED, 0, 2);
        f32x16 y[GRAM_VECTORS];
        for (size_t v = 0; v < vectors; v++)
            y[v] = f32x16_load(b + v * GRAM_LANES);
        for (size_t r = 0; r < rows; r++) {
            const f32x16 x = f32x16_splat(a[r]);
            for (size_t v = 0; v < vectors; v++)
                s[r * vectors + v] = f32x16_fma(x, y[v], s[r * vectors + v]);
        }
    }
    for (size_t i = 0; i < rows * vectors; i++)
        f32x16_store(out + i * GRAM_LANES, s[i]);
}

/* Adds a row of a tile to the doubles: columns [from, to), of which the tile starts at `first` and has `width`. */
ALWAYS_INLINE void gram_add(const float *tile, size_t width, size_t first, size_t from, size_t to, double *sum)
{
    if (from == first && to == first + width)
        for (size_t k = 0; k < width; k++)
            sum[first + k] += (double)tile[k];
    else
        for (size_t k = from; k < to; k++)
            sum[k] += (double)tile[k - first];
}

QOBS_GRAM(ENTRY(qobs_gram))
{
    CLEARS_UPPER_HALVES
    /* NOLINTBEGIN(bugprone-branch-clone): where a tile has one row or one vector, branches are the same */
    enum { WIDTH = GRAM_VECTORS * GRAM_LANES };
    float tile[GRAM_ROWS * WIDTH];
    const char *next = (const char *)(b + tokens * stride);
    for (size_t j = 0, n; j < rows; j += n) {
        n = rows - j >= GRAM_ROWS ? GRAM_ROWS : 1;
        for (size_t k = upper ? j / GRAM_LANES * GRAM_LANES : 0, w; k < columns; k += w) {
            const size_t left = (columns - k + GRAM_LANES - 1) / GRAM_LANES;
            const size_t vectors = left >= GRAM_VECTORS ? GRAM_VECTORS : 1;
            w = vectors * GRAM_LANES;
            if (n == GRAM_ROWS && vectors == GRAM_VECTORS)
                gram_tile(GRAM_ROWS, GRAM_VECTORS, a + j, b + k, stride, tokens, next, tile);
            else if (n == GRAM_ROWS)
                gram_tile(GRAM_ROWS, 1, a + j, b + k, stride, tokens, next, tile);
            else if (vectors == GRAM_VECTORS)
                gram_tile(1, GRAM_VECTORS, a + j, b + k, stride, tokens, next, tile);
            else
                gram_tile(1, 1, a + j, b + k, stride, tokens, next, tile);
            next += tokens * GRAM_PREFETCHED;
            for (size_t r = 0; r < n; r++) {
                const size_t from = upper && j + r > k ? j + r : k, to = k + w < columns ? k + w : columns;
                if (w == WIDTH)
                    gram_add(tile + r * WIDTH, WIDTH, k, from, to, sum + (j + r) * sum_stride);
                else
                    gram_add(tile + r * GRAM_LANES, GRAM_LANES, k, from, to, sum + (j + r) * sum_stride);
            }
        }
    }
    /* NOLINTEND(bugprone-branch-clone) */
}

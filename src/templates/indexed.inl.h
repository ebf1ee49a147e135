/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum of columns that an index assigns to groups, for one element width on one instruction set.
 * Included by src/ISA/indexed.c once per WIDTH (16, 32, 64), after simd.h and tuning.h of that folder. Scalar kernels
 * and F64 go element by element.
 *
 * Rows go together, as many as a vector has lanes. Tiles of them are transposed in registers: then a vector holds one
 * column and is added to its group's accumulators as a whole. There is no gather and no copy of the rows.
 *
 * Accumulators: a pair of vectors of keys (minmax_key.inl.h) a group, in the caller's scratch; none can overflow.
 * Counts: 64 bits, made only for rows that hold an element that is not finite.
 * Tails: the last columns and the last rows are read twice, which changes no bound. Rows of fewer bytes than a cache
 *   line go element by element. Nothing outside a row is read.
 * In flight: a cache line of as many rows as a vector has lanes. Rows a power of two apart fall into the same cache
 *   set, so no line can be read twice: if a tile is narrower than a line, its other tiles are stored to a buffer.
 * Caller's duty: group[j] < groups. */
#include "templates/width_begin.h"

#include "templates/inline.h"
#include "templates/minmax_key.inl.h"

/* Stores the bound if it exceeds the one that is there, which is rare. A bound of -0 becomes +0. */
static inline void K(indexed_bound)(bool exceeds, KEY bound, unsigned char *to, BITS before)
{
    const BITS after = K(bits_of_key)(bound), minus_zero = (BITS)MOST_NEGATIVE;
    if (exceeds || before == minus_zero)
        memcpy(to, &after, sizeof after);
}

/* Rows element by element. */
static void K(indexed_plain)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns,
                             const uint32_t *group, size_t groups, BITS inf, unsigned char *min, unsigned char *max,
                             struct nonfinite_count *nonfinite)
{
    const size_t row_bytes = groups * sizeof(BITS);
    for (; rows > 0; rows--, x += row_stride, min += row_bytes, max += row_bytes)
        for (size_t j = 0; j < columns; j++) {
            const size_t at = group[j] * sizeof(BITS);
            const BITS b = K(load_bits)(x + j * sizeof(BITS)), magnitude = b & (BITS)MOST_POSITIVE;
            const BITS lo = K(load_bits)(min + at), hi = K(load_bits)(max + at);
            const KEY key = K(key_of_bits)(b), low = K(key_of_bits)(lo), high = K(key_of_bits)(hi);
            if (magnitude >= inf) {
                nonfinite->inf += magnitude == inf;
                nonfinite->nan += magnitude > inf;
                if (magnitude > inf)
                    continue;
            }
            K(indexed_bound)(key < low, K(key_min)(key, low), min + at, lo);
            K(indexed_bound)(key > high, K(key_max)(key, high), max + at, hi);
        }
}

#if defined VEC_BYTES && WIDTH != 64
/* A vector of a tile has this many parts, each of another row, so that a tile has as many vectors as columns. */
#define PARTS K(VEC_PARTS)
#define TILE (LANES / PARTS)
#define LINE 64
#define LINE_COLUMNS (LINE * 8 / WIDTH)

/* Vector `i` of a tile; its part `p` is from row p * TILE + i. */
ALWAYS_INLINE vec K(indexed_part)(const unsigned char *x, ptrdiff_t step, int i, int p)
{
    return PARTS == 1 ? vec_load(x + i * step)
                      : vec_halves(vec_load(x + i * step), vec_load(x + (TILE + i) * step), p);
}

/* Adds the columns of a tile of LANES rows to their groups. prefetch: lines that are needed next. */
ALWAYS_INLINE void K(indexed_columns)(vec r[TILE], const uint32_t *group, unsigned char *accumulators,
                                      const unsigned char *prefetch)
{
    K(vec_transpose)(r);
    _Pragma("GCC unroll 16") for (int c = 0; c < TILE; c++)
    {
        unsigned char *const lo = accumulators + (size_t)group[c] * 2 * VEC_BYTES, *const hi = lo + VEC_BYTES;
        __builtin_prefetch(prefetch + c * LINE, 0, 2);
        vec_store(lo, K(vec_min_s)(vec_load(lo), r[c]));
        vec_store(hi, K(vec_max_s)(vec_load(hi), r[c]));
    }
}

/* Adds LANES rows to the accumulators, a cache line of each at a time; the first tile of a line stays in registers.
 * few: the last row stands for the missing ones. */
ALWAYS_INLINE void K(indexed_rows)(bool few, const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns,
                                   const uint32_t *group, unsigned char *accumulators)
{
    enum { TILES = LINE_COLUMNS / TILE };
    vec tiles[TILES][TILE];
    unsigned char lines[LANES][LINE];
    const unsigned char *prefetch = x + LANES * row_stride;
    for (size_t j = 0; j < columns; j += LINE_COLUMNS, prefetch += LANES * LINE) {
        j = j + LINE_COLUMNS <= columns ? j : columns - LINE_COLUMNS;
        const unsigned char *from = x + j * sizeof(BITS);
        for (size_t i = 0; few && i < LANES; i++)
            memcpy(lines[i], from + (ptrdiff_t)(i < rows ? i : rows - 1) * row_stride, LINE);
        from = few ? lines[0] : from;
        const ptrdiff_t step = few ? LINE : row_stride;
        vec r[TILE];
        _Pragma("GCC unroll 16") for (int i = 0; i < TILE; i++)
        {
            r[i] = K(vec_key)(K(indexed_part)(from, step, i, 0));
            _Pragma("GCC unroll 4") for (int t = 1; t < TILES; t++)
                vec_store(&tiles[t][i], K(vec_key)(K(indexed_part)(from + t / PARTS * VEC_BYTES, step, i, t % PARTS)));
        }
        K(indexed_columns)(r, group + j, accumulators, prefetch);
        for (int t = 1; t < TILES; t++) {
            _Pragma("GCC unroll 16") for (int i = 0; i < TILE; i++) r[i] = vec_load(&tiles[t][i]);
            K(indexed_columns)(r, group + j + t * TILE, accumulators, prefetch + t * TILE * LINE);
        }
    }
}

static bool K(indexed_nonfinite)(const unsigned char *accumulators, size_t groups, BITS inf)
{
    const vec infinite = K(vec_splat)((KEY)inf);
    bool any = false;
    for (size_t g = 0; g < groups; g++, accumulators += 2 * VEC_BYTES) {
        any |= K(vec_any_ge)(~vec_load(accumulators), infinite);
        any |= K(vec_any_ge)(vec_load(accumulators + VEC_BYTES), infinite);
    }
    return any;
}

/* Merges one bound of LANES groups, of which `n` exist, for up to TILE rows of a part of their accumulators into the
 * outputs. */
static void K(indexed_merge)(const unsigned char *accumulators, int part, size_t rows, bool is_max, unsigned char *out,
                             size_t row_bytes, size_t n)
{
    vec r[TILE];
    unsigned char workspace[VEC_BYTES] = {0};
    for (int i = 0; i < TILE; i++)
        r[i] = K(indexed_part)(accumulators, 2 * VEC_BYTES, i, part);
    K(vec_transpose)(r);
    for (size_t c = 0; c < TILE && c < rows; c++, out += row_bytes) {
        unsigned char *to = out;
        if (n < LANES)
            to = memcpy(workspace, out, n * sizeof(BITS));
        const vec before = K(vec_key)(vec_load(to));
        const vec merged = is_max ? K(vec_max_s)(before, r[c]) : K(vec_min_s)(before, r[c]);
        vec_store(to, K(vec_key)(K(vec_no_minus_zero)(merged)));
        if (n < LANES)
            memcpy(out, workspace, n * sizeof(BITS));
    }
}

static void K(indexed_transposed)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns,
                                  const uint32_t *group, size_t groups, BITS inf, unsigned char *min,
                                  unsigned char *max, unsigned char *accumulators, struct nonfinite_count *nonfinite)
{
    const size_t row_bytes = groups * sizeof(BITS), together = rows < LANES ? rows : LANES;
    for (size_t done = 0; done < rows; done += LANES) {
        const size_t first = done + together <= rows ? done : rows - together;
        for (size_t g = 0; g < (groups + LANES - 1) / LANES * LANES; g++) {
            vec_store(accumulators + g * 2 * VEC_BYTES, K(vec_splat)(MOST_POSITIVE));
            vec_store(accumulators + g * 2 * VEC_BYTES + VEC_BYTES, K(vec_splat)(MOST_NEGATIVE));
        }
        if (together < LANES)
            K(indexed_rows)(true, x, row_stride, together, columns, group, accumulators);
        else
            K(indexed_rows)
        (false, x + (ptrdiff_t)first * row_stride, row_stride, together, columns, group, accumulators);
        if (K(indexed_nonfinite)(accumulators, groups, inf)) {
            K(indexed_plain)
            (x + (ptrdiff_t)done * row_stride, row_stride, first + together - done, columns, group, groups, inf,
             min + done * row_bytes, max + done * row_bytes, nonfinite);
            continue;
        }
        for (size_t g = 0; g < groups; g += LANES)
            for (size_t row = 0; row < together; row += TILE) {
                const unsigned char *at = accumulators + g * 2 * VEC_BYTES;
                const size_t to = (first + row) * row_bytes + g * sizeof(BITS),
                             n = groups - g < LANES ? groups - g : LANES;
                K(indexed_merge)(at, (int)(row / TILE), together - row, false, min + to, row_bytes, n);
                K(indexed_merge)(at + VEC_BYTES, (int)(row / TILE), together - row, true, max + to, row_bytes, n);
            }
    }
}

#ifdef PERMUTED
#include PERMUTED
#endif
#endif

static void K(indexed)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, const uint32_t *group,
                       size_t groups, BITS inf, unsigned char *min, unsigned char *max,
                       /* NOLINTNEXTLINE(readability-non-const-parameter): not all widths work in it */
                       unsigned char *scratch, struct nonfinite_count *nonfinite)
{
    size_t done = 0;
#ifdef PERMUTED
    if (groups <= PERMUTED_LANES && rows >= PERMUTED_MIN_ROWS)
        done = indexed_permuted(x, row_stride, rows, columns, group, groups, inf, min, max, nonfinite);
#endif
#ifdef LINE_COLUMNS
    if (columns - done >= LINE_COLUMNS) {
        K(indexed_transposed)
        (x + done * sizeof(BITS), row_stride, rows, columns - done, group + done, groups, inf, min, max,
         scratch + (-(uintptr_t)scratch & (VEC_BYTES - 1)), nonfinite);
        return;
    }
#endif
    (void)scratch;
    K(indexed_plain)
    (x + done * sizeof(BITS), row_stride, rows, columns - done, group + done, groups, inf, min, max, nonfinite);
}

#undef PARTS
#undef TILE
#undef LINE
#undef LINE_COLUMNS
#include "templates/width_end.h"

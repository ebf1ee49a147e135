/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The largest magnitude over rows and over columns, for one element width on one instruction set. Included by
 * src/ISA/absmax.c once per WIDTH (16, 32), after simd.h and tuning.h of that folder.
 *
 * Accumulators: vectors of the element width, of bits without the sign; none can overflow. One operation clears the
 *   sign, one takes the maximum. An element that is not finite makes the result infinity or above.
 * Counts: 64 bits, made only for blocks that hold an element that is not finite.
 * Tails: the last vector of a run is loaded from `length - LANES`, so some elements are read twice, which changes no
 *   maximum. Runs shorter than a vector go element by element. Nothing outside a run is read.
 * In flight: 256 bytes in a long run, 2 vectors in a short run, 8 rows of a cache line in columns.
 * Caller's duty: none. */
#include "templates/width_begin.h"

#include "templates/inline.h"
#include "templates/minmax_key.inl.h"
#include "templates/absmax_elements.inl.h"

#define UNROLLED (ABSMAX_UNROLLED_BYTES / VEC_BYTES)
#define LINE_VECTORS (64 / VEC_BYTES)

static inline vec K(load_magnitudes)(const void *p) { return K(vec_magnitude)(vec_load(p)); }

#include "templates/transpose_reduce.inl.h"

/* A block of at least a vector. */
static inline KEY K(block_absmax)(const unsigned char *x, size_t n, ptrdiff_t ahead)
{
    const unsigned char *const last = x + (n - LANES) * sizeof(BITS);
    vec max[UNROLLED];
    for (int i = 0; i < UNROLLED; i++)
        max[i] = K(load_magnitudes)(x);
    for (; x + (UNROLLED - 1) * VEC_BYTES < last; x += UNROLLED * VEC_BYTES)
        for (int i = 0; i < UNROLLED; i++) {
            if (ahead > 0 && i * VEC_BYTES % 64 == 0)
                K(prefetch_ahead)(x + i * VEC_BYTES, ahead);
            max[i] = K(vec_max_s)(max[i], K(load_magnitudes)(x + i * VEC_BYTES));
        }
    for (; x < last; x += VEC_BYTES)
        max[0] = K(vec_max_s)(max[0], K(load_magnitudes)(x));
    max[0] = K(vec_max_s)(max[0], K(load_magnitudes)(last)); /* last, as in minmax.inl.h */
    for (int i = 1; i < UNROLLED; i++)
        max[0] = K(vec_max_s)(max[0], max[i]);
    return (KEY)~K(vec_reduce_min)(~max[0]);
}

/* One run of any length, block by block. */
static void K(one_run)(const unsigned char *x, size_t n, ptrdiff_t ahead, BITS inf, unsigned char *absmax,
                       struct nonfinite_count *nonfinite)
{
    KEY max = 0;
    while (n > 0) {
        const size_t m = n >= 2 * BLOCK_BYTES / sizeof(BITS) ? BLOCK_BYTES / sizeof(BITS) : n;
        const KEY block = m >= LANES ? K(block_absmax)(x, m, ahead) : (KEY)inf;
        if (block < (KEY)inf)
            max = K(key_max)(max, block);
        else
            K(scan_magnitudes)(x, m, inf, &max, nonfinite);
        x += m * sizeof(BITS);
        n -= m;
    }
    K(merge_magnitude)(max, absmax);
}

/* Short runs and their outputs. */
struct K(runs) {
    const unsigned char *x;
    ptrdiff_t run_stride;
    size_t length;
    BITS inf;
    unsigned char *absmax;
    ptrdiff_t out_step, ahead;
    struct nonfinite_count *nonfinite;
};

#define FORM AS_MAGNITUDES

/* Merges magnitudes of LANES runs from `run` on. */
DEEP_INLINE void K(merge_extent)(enum bounds_form form, struct K(extent) e, const struct K(runs) * r, size_t run)
{
    (void)form;
    unsigned char *out = r->absmax + (ptrdiff_t)run * r->out_step;
    if (r->out_step == sizeof(BITS)) {
        vec_store(out, K(vec_max_s)(e.hi, vec_load(out)));
        return;
    }
    KEY magnitude[LANES];
    vec_store(magnitude, e.hi);
    for (size_t i = 0; i < LANES; i++, out += r->out_step)
        K(merge_magnitude)(magnitude[i], out);
}

static void K(one_by_one)(const struct K(runs) * r, size_t run)
{
    for (size_t i = run; i < run + LANES; i++)
        K(one_run)
    (r->x + (ptrdiff_t)i * r->run_stride, r->length, r->ahead, r->inf, r->absmax + (ptrdiff_t)i * r->out_step,
     r->nonfinite);
}

#include "templates/short_runs.inl.h"

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf,
                    unsigned char *absmax, ptrdiff_t out_step, struct nonfinite_count *nonfinite)
{
    const ptrdiff_t ahead = K(ahead_of)(runs * length * sizeof(BITS));
    const struct K(runs) r = {x, run_stride, length, inf, absmax, out_step, ahead, nonfinite};
    for (size_t done = K(reduce_short_runs)(&r, runs); done < runs; done++)
        K(one_run)(x + (ptrdiff_t)done * run_stride, length, ahead, inf, absmax + (ptrdiff_t)done * out_step,
                   nonfinite);
}

/* `vectors` adjacent vectors of columns over `rows` rows. prefetch: rows further down are fetched into L2, because the
 * hardware does not foresee that the streams continue there. If an element is not finite, the columns go
 * element by element, except the first `counted` ones, which another vector has counted. */
ALWAYS_INLINE void K(column_tile)(int vectors, bool prefetch, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                                  size_t counted, BITS inf, unsigned char *absmax, struct nonfinite_count *nonfinite)
{
    vec max[LINE_VECTORS];
    for (int i = 0; i < vectors; i++)
        max[i] = K(vec_splat)(0);
    const unsigned char *row = x;
#pragma GCC unroll 1
    for (size_t r = 0; r < rows; r++, row += row_stride)
        for (int i = 0; i < vectors; i++) {
            max[i] = K(vec_max_s)(max[i], K(load_magnitudes)(row + i * VEC_BYTES));
            if (prefetch)
                __builtin_prefetch(row + ABSMAX_ROWS_AHEAD * row_stride + i * VEC_BYTES, 0, 2);
        }
    for (int i = 0; i < vectors; i++, absmax += VEC_BYTES) {
        if (!K(vec_any_ge)(max[i], K(vec_splat)((KEY)inf))) {
            vec_store(absmax, K(vec_max_s)(max[i], vec_load(absmax)));
            continue;
        }
        for (size_t j = counted * sizeof(BITS); j < VEC_BYTES; j += sizeof(BITS)) {
            KEY magnitude = 0;
            for (size_t r = 0; r < rows; r++)
                K(scan_magnitudes)(x + (ptrdiff_t)r * row_stride + i * VEC_BYTES + j, 1, inf, &magnitude, nonfinite);
            K(merge_magnitude)(magnitude, absmax + j);
        }
    }
}

/* At max ABSMAX_UNROLLED_ROWS rows over all columns. The last vector may overlap the one before. */
ALWAYS_INLINE void K(column_rows)(bool prefetch, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                                  size_t columns, BITS inf, unsigned char *absmax, struct nonfinite_count *nonfinite)
{
    const size_t end = columns * sizeof(BITS), last = end - VEC_BYTES;
    size_t j = 0;
    for (; j + LINE_VECTORS * VEC_BYTES <= end; j += LINE_VECTORS * VEC_BYTES)
        K(column_tile)(LINE_VECTORS, prefetch, x + j, row_stride, rows, 0, inf, absmax + j, nonfinite);
    for (; j + VEC_BYTES <= end; j += VEC_BYTES)
        K(column_tile)(1, prefetch, x + j, row_stride, rows, 0, inf, absmax + j, nonfinite);
    if (j < end)
        K(column_tile)
    (1, prefetch, x + last, row_stride, rows, (j - last) / sizeof(BITS), inf, absmax + last, nonfinite);
}

/* Memory is read in the order of rows, some rows at a time, so that outputs are loaded once for that many elements
 * and few streams are open. */
static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                       unsigned char *absmax, struct nonfinite_count *nonfinite)
{
    if (columns < LANES) {
        for (size_t j = 0; j < columns * sizeof(BITS); j += sizeof(BITS)) {
            KEY magnitude = 0;
            for (size_t r = 0; r < rows; r++)
                K(scan_magnitudes)(x + (ptrdiff_t)r * row_stride + j, 1, inf, &magnitude, nonfinite);
            K(merge_magnitude)(magnitude, absmax + j);
        }
        return;
    }
    const bool streaming = rows * columns * sizeof(BITS) >= ABSMAX_STREAMING_BYTES;
    for (; streaming && rows >= ABSMAX_STREAMING_ROWS;
         rows -= ABSMAX_STREAMING_ROWS, x += ABSMAX_STREAMING_ROWS * row_stride)
        K(column_rows)(true, x, row_stride, ABSMAX_STREAMING_ROWS, columns, inf, absmax, nonfinite);
    for (; rows > 0;
         rows -= rows < ABSMAX_UNROLLED_ROWS ? rows : ABSMAX_UNROLLED_ROWS, x += ABSMAX_UNROLLED_ROWS * row_stride)
        K(column_rows)
    (false, x, row_stride, rows < ABSMAX_UNROLLED_ROWS ? rows : ABSMAX_UNROLLED_ROWS, columns, inf, absmax, nonfinite);
}

#undef FORM
#undef UNROLLED
#undef LINE_VECTORS
#include "templates/width_end.h"

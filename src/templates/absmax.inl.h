/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The largest magnitude over rows and over columns, for one element width on one instruction set. Included by src/<isa>/absmax.c
 * once per WIDTH (16, 32, 64), after that instruction set's vec.h.
 *
 * Accumulators: vectors of the element width, of bits without the sign; nothing can overflow. One operation clears the sign, one
 *   takes the maximum, and what is not finite shows in the result: it is infinity or above.
 * Counts: 64 bits, made only for blocks that hold something not finite.
 * Tails: the last vector of a run is read again from `length - LANES`, which changes no maximum; runs shorter than a vector go
 *   element by element. Nothing outside a run is read.
 * In flight: 256 bytes in a long run, 2 vectors in a short run, 8 rows of a cache line in a strip of columns. */

#include "templates/minmax_key.inl.h"
#include "templates/absmax_elements.inl.h"

#define LANES (VEC_BYTES * 8 / WIDTH)
#define MOST_POSITIVE ((KEY)((BITS)~(BITS)0 >> 1))
#define MOST_NEGATIVE ((KEY)(-MOST_POSITIVE - 1))
#define HAS_RAW 0

/* A block of a long run: small enough to be in a near cache when it must be read again for its NaN. */
#define BLOCK ((size_t)262144 * 8 / WIDTH)
#define UNROLLED (256 / VEC_BYTES)
/* Columns go ABREAST rows and TILE vectors, one line of the cache, at a time. */
#define ABREAST 8
#define TILE (64 / VEC_BYTES)
/* From this size on columns are taken to come from memory. */
#define FAR ((size_t)16 << 20)

static inline vec K(load_magnitudes)(const void *p)
{
    return vec_and(vec_load(p), K(vec_splat)(MOST_POSITIVE));
}

/* A block of at least a vector. */
static inline KEY K(block_absmax)(const unsigned char *x, size_t n)
{
    const unsigned char *const last = x + (n - LANES) * sizeof(BITS);
    vec most[UNROLLED];
    for (int i = 0; i < UNROLLED; i++)
        most[i] = K(load_magnitudes)(x);
    for (; x + (UNROLLED - 1) * VEC_BYTES < last; x += UNROLLED * VEC_BYTES)
        for (int i = 0; i < UNROLLED; i++)
            most[i] = K(vec_max_s)(most[i], K(load_magnitudes)(x + i * VEC_BYTES));
    for (; x < last; x += VEC_BYTES)
        most[0] = K(vec_max_s)(most[0], K(load_magnitudes)(x));
    most[0] = K(vec_max_s)(most[0], K(load_magnitudes)(last)); /* not before the rest, as in minmax.inl.h */
    for (int i = 1; i < UNROLLED; i++)
        most[0] = K(vec_max_s)(most[0], most[i]);
    return (KEY)~K(vec_reduce_min)(vec_not(most[0]));
}

/* One run of any length, block by block. */
static void K(one_run)(const unsigned char *x, size_t n, BITS inf, unsigned char *absmax, struct qobs_nonfinite *nonfinite)
{
    KEY most = 0;
    while (n > 0) {
        const size_t m = n >= 2 * BLOCK ? BLOCK : n;
        const KEY block = m >= LANES ? K(block_absmax)(x, m) : (KEY)inf;
        if (block < (KEY)inf)
            most = K(key_max)(most, block);
        else
            K(scan_magnitudes)(x, m, inf, &most, nonfinite);
        x += m * sizeof(BITS);
        n -= m;
    }
    K(merge_magnitude)(most, absmax);
}

#if LANES >= 4
#include "templates/fold.inl.h"
#include "templates/signs.inl.h"

/* Where short runs are and where their magnitudes go. */
struct K(runs) {
    const unsigned char *x;
    ptrdiff_t run_stride;
    size_t length;
    BITS inf;
    unsigned char *absmax;
    ptrdiff_t out_step;
    struct qobs_nonfinite *nonfinite;
};

#define FORM K(MAGNITUDES)

/* Of LANES runs from `run` on. */
static UNFOLDED void K(merge_extent)(enum K(form) form, struct K(extent) e, const struct K(runs) *r, size_t run)
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

static void K(one_by_one)(const struct K(runs) *r, size_t run)
{
    for (size_t i = run; i < run + LANES; i++)
        K(one_run)(r->x + (ptrdiff_t)i * r->run_stride, r->length, r->inf, r->absmax + (ptrdiff_t)i * r->out_step, r->nonfinite);
}

#include "templates/short_runs.inl.h"
#endif

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf, unsigned char *absmax,
                    ptrdiff_t out_step, struct qobs_nonfinite *nonfinite)
{
    size_t done = 0;
#if LANES >= 4
    const struct K(runs) r = {x, run_stride, length, inf, absmax, out_step, nonfinite};
    done = K(fold_short_runs)(&r, runs);
#endif
    for (; done < runs; done++)
        K(one_run)(x + (ptrdiff_t)done * run_stride, length, inf, absmax + (ptrdiff_t)done * out_step, nonfinite);
}

/* `vectors` vectors of columns, side by side, over `rows` rows; `ahead`: the same columns of as many rows further down are fetched
 * into the second-level cache, as the hardware does not foresee that the streams go on there. Where something is not finite the
 * elements are gone through one by one, but for the first `seen` columns, which another vector has counted. */
static inline __attribute__((always_inline)) void K(column_tile)(int vectors, bool prefetch, const unsigned char *x,
                                                                  ptrdiff_t row_stride, size_t rows, size_t seen, BITS inf,
                                                                  unsigned char *absmax, struct qobs_nonfinite *nonfinite)
{
    vec most[TILE];
    for (int i = 0; i < vectors; i++)
        most[i] = K(vec_splat)(0);
    const unsigned char *row = x;
#pragma GCC unroll 1
    for (size_t r = 0; r < rows; r++, row += row_stride)
        for (int i = 0; i < vectors; i++) {
            most[i] = K(vec_max_s)(most[i], K(load_magnitudes)(row + i * VEC_BYTES));
            if (prefetch)
                __builtin_prefetch(row + (ptrdiff_t)rows * row_stride + i * VEC_BYTES, 0, 2);
        }
    for (int i = 0; i < vectors; i++, absmax += VEC_BYTES) {
        if (!K(vec_any_ge)(most[i], K(vec_splat)((KEY)inf))) {
            vec_store(absmax, K(vec_max_s)(most[i], vec_load(absmax)));
            continue;
        }
        for (size_t j = seen * sizeof(BITS); j < VEC_BYTES; j += sizeof(BITS)) {
            KEY magnitude = 0;
            for (size_t r = 0; r < rows; r++)
                K(scan_magnitudes)(x + (ptrdiff_t)r * row_stride + i * VEC_BYTES + j, 1, inf, &magnitude, nonfinite);
            K(merge_magnitude)(magnitude, absmax + j);
        }
    }
}

/* ABREAST rows, or fewer, over all columns; the last vector is read again where the width is no multiple of LANES. */
static inline __attribute__((always_inline)) void K(column_strip)(bool prefetch, const unsigned char *x, ptrdiff_t row_stride,
                                                                   size_t rows, size_t columns, BITS inf, unsigned char *absmax,
                                                                   struct qobs_nonfinite *nonfinite)
{
    const size_t end = columns * sizeof(BITS), last = end - VEC_BYTES;
    size_t j = 0;
    for (; j + TILE * VEC_BYTES <= end; j += TILE * VEC_BYTES)
        K(column_tile)(TILE, prefetch, x + j, row_stride, rows, 0, inf, absmax + j, nonfinite);
    for (; j + VEC_BYTES <= end; j += VEC_BYTES)
        K(column_tile)(1, prefetch, x + j, row_stride, rows, 0, inf, absmax + j, nonfinite);
    if (j < end)
        K(column_tile)(1, prefetch, x + last, row_stride, rows, (j - last) / sizeof(BITS), inf, absmax + last, nonfinite);
}

/* Memory is walked in the order of its rows, ABREAST of them at a time, so that the accumulators are touched once for that many
 * elements and few streams are open. */
static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf, unsigned char *absmax,
                       struct qobs_nonfinite *nonfinite)
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
    const bool far = rows * columns * sizeof(BITS) >= FAR;
    for (; far && rows >= ABREAST; rows -= ABREAST, x += ABREAST * row_stride)
        K(column_strip)(true, x, row_stride, ABREAST, columns, inf, absmax, nonfinite);
    for (; rows > 0; rows -= rows < ABREAST ? rows : ABREAST, x += ABREAST * row_stride)
        K(column_strip)(false, x, row_stride, rows < ABREAST ? rows : ABREAST, columns, inf, absmax, nonfinite);
}

#undef UNFOLDED
#undef FORM
#undef LANES
#undef MOST_POSITIVE
#undef MOST_NEGATIVE
#undef HAS_RAW
#undef BLOCK
#undef UNROLLED
#undef ABREAST
#undef TILE
#undef FAR
#undef K
#undef KEY
#undef BITS
#undef KEY_CAT
#undef KEY_CAT_

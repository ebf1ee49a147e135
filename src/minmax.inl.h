/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Min/max over rows and over columns, for one element width on one instruction set. Included by src/<isa>/minmax.c once per
 * WIDTH (16, 32, 64), after that instruction set's vec.h.
 *
 * Accumulators: vectors of the element width, as keys (minmax_key.inl.h), as raw bits or as floats; nothing can overflow.
 * Counts: 64 bits, made only for blocks that hold something not finite.
 * Tails: the last vector of a run is read again from `length - LANES`, which changes no minimum and no maximum; runs shorter
 *   than a vector go element by element. Nothing outside a run is read.
 * In flight: 128 bytes in a long run, 2 vectors in a short run and in a strip of columns.
 * Caller's duty: the floating-point unit must not treat subnormals as zeros (src/fpenv.h sees to it). */

#include "minmax_key.inl.h"

#define LANES (VEC_BYTES * 8 / WIDTH)
#define MOST_POSITIVE ((KEY)((BITS)~(BITS)0 >> 1))
#define MOST_NEGATIVE ((KEY)(-MOST_POSITIVE - 1))

/* A block of a long run: small enough to be in a near cache when it must be read again for its NaN. */
#define BLOCK ((size_t)262144 * 8 / WIDTH)
/* Columns go ABREAST rows and TILE vectors, one line of the cache, at a time. */
#define ABREAST 8
#define TILE (64 / VEC_BYTES)
/* From this size on columns are taken to come from memory. */
#define FAR ((size_t)16 << 20)
#define HAS_RAW (WIDTH != 64)
/* Where runs of one sign have been met, so many folds pass before raw bits are tried again. */
#define KEYED 64

/* A block of this many bytes is worth two streams. */
#define TWO_STREAMS 131072
#define UNROLLED (VEC_BYTES == 64 ? 2 : 4) /* vectors in flight in a block: 128 bytes */

#if WIDTH == 16
/* Raw bits need no conversion in the loop: the largest as signed is the maximum if anything is non-negative, the largest as
 * unsigned is the minimum if anything is negative. Where everything has one sign, the block is read once more for its
 * smallest as unsigned, which is then the other end. */
static inline void K(block_keys)(const unsigned char *x, size_t n, KEY *lo, KEY *hi)
{
    const unsigned char *const first = x, *const last = x + (n - LANES) * sizeof(BITS);
    vec most[UNROLLED], high[UNROLLED];
    for (int i = 0; i < UNROLLED; i++)
        most[i] = high[i] = vec_load(last);
    for (; x + (UNROLLED - 1) * VEC_BYTES < last; x += UNROLLED * VEC_BYTES)
        for (int i = 0; i < UNROLLED; i++) {
            const vec v = vec_load(x + i * VEC_BYTES);
            most[i] = K(vec_max_s)(most[i], v);
            high[i] = K(vec_max_u)(high[i], v);
        }
    for (; x < last; x += VEC_BYTES) {
        most[0] = K(vec_max_s)(most[0], vec_load(x));
        high[0] = K(vec_max_u)(high[0], vec_load(x));
    }
    for (int i = 1; i < UNROLLED; i++) {
        most[0] = K(vec_max_s)(most[0], most[i]);
        high[0] = K(vec_max_u)(high[0], high[i]);
    }
    const KEY top = (KEY)~K(vec_reduce_min)(vec_not(most[0]));
    /* As signed, the unsigned order is off by the sign bit. */
    const vec flip = K(vec_splat)(MOST_NEGATIVE);
    const KEY far = (KEY)(~K(vec_reduce_min)(vec_not(vec_xor(high[0], flip))) ^ MOST_NEGATIVE);
    if (top >= 0 && far < 0) {
        *lo = K(key_of_bits)((BITS)far);
        *hi = top;
        return;
    }
    vec low = vec_load(last);
    for (x = first; x < last; x += VEC_BYTES)
        low = K(vec_min_u)(low, vec_load(x));
    const KEY near = K(key_of_bits)((BITS)(K(vec_reduce_min)(vec_xor(low, flip)) ^ MOST_NEGATIVE));
    *lo = far < 0 ? K(key_of_bits)((BITS)far) : near;
    *hi = top >= 0 ? top : near;
}
#else
/* Floating-point minimum and maximum run on more ports than integer ones. One unordered comparison for two vectors finds
 * NaN, which is handed on as a key beyond infinity. Both halves of a large block are read at once: two streams come faster out
 * of the third-level cache than one; in a short run they would keep the prefetchers from ever settling. */
static inline void K(block_keys)(const unsigned char *x, size_t n, KEY *lo, KEY *hi)
{
    const unsigned char *last = x + (n - LANES) * sizeof(BITS);
    vec l[UNROLLED], h[UNROLLED];
    for (int i = 0; i < UNROLLED; i++)
        l[i] = h[i] = vec_load(last);
    vec_mask nan = K(vec_or_unordered)(vec_mask_none(), l[0], l[0]);
    if (n * sizeof(BITS) >= TWO_STREAMS) {
        const size_t step = UNROLLED / 2 * VEC_BYTES, half = (size_t)(last - x) / 2 / step * step;
        const unsigned char *y = x + half, *const middle = y;
        for (; x < middle; x += step, y += step)
            for (int i = 0; i < UNROLLED / 2; i++) {
                const vec v = vec_load(x + i * VEC_BYTES), w = vec_load(y + i * VEC_BYTES);
                l[2 * i] = K(vec_min_f)(v, l[2 * i]);
                h[2 * i] = K(vec_max_f)(v, h[2 * i]);
                l[2 * i + 1] = K(vec_min_f)(w, l[2 * i + 1]);
                h[2 * i + 1] = K(vec_max_f)(w, h[2 * i + 1]);
                nan = K(vec_or_unordered)(nan, v, w);
            }
        x = y;
    }
    for (; x + (UNROLLED - 1) * VEC_BYTES < last; x += UNROLLED * VEC_BYTES)
        for (int i = 0; i < UNROLLED; i += 2) {
            const vec v = vec_load(x + i * VEC_BYTES), w = vec_load(x + (i + 1) * VEC_BYTES);
            l[i] = K(vec_min_f)(v, l[i]);
            h[i] = K(vec_max_f)(v, h[i]);
            l[i + 1] = K(vec_min_f)(w, l[i + 1]);
            h[i + 1] = K(vec_max_f)(w, h[i + 1]);
            nan = K(vec_or_unordered)(nan, v, w);
        }
    for (; x < last; x += VEC_BYTES) {
        const vec v = vec_load(x);
        l[0] = K(vec_min_f)(v, l[0]);
        h[0] = K(vec_max_f)(v, h[0]);
        nan = K(vec_or_unordered)(nan, v, v);
    }
    for (int i = 1; i < UNROLLED; i++) {
        l[0] = K(vec_min_f)(l[i], l[0]);
        h[0] = K(vec_max_f)(h[i], h[0]);
    }
    *lo = K(vec_reduce_min)(K(vec_key)(l[0]));
    *hi = vec_mask_any(nan) ? MOST_POSITIVE : (KEY)~K(vec_reduce_min)(vec_not(K(vec_key)(h[0])));
}
#endif

static inline bool K(special)(KEY lo, KEY hi, BITS inf)
{
    return hi >= (KEY)inf || lo <= (KEY)~inf;
}

/* One run of any length, block by block. */
static void K(one_run)(const unsigned char *x, size_t n, BITS inf, unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    KEY lo = MOST_POSITIVE, hi = MOST_NEGATIVE;
    while (n > 0) {
        const size_t m = n >= 2 * BLOCK ? BLOCK : n;
        bool finite = false;
        if (m >= LANES) {
            KEY block_lo, block_hi;
            K(block_keys)(x, m, &block_lo, &block_hi);
            finite = !K(special)(block_lo, block_hi, inf);
            if (finite) {
                lo = K(key_min)(lo, block_lo);
                hi = K(key_max)(hi, block_hi);
            }
        }
        if (!finite)
            K(scan_elements)(x, m, inf, &lo, &hi, nonfinite);
        x += m * sizeof(BITS);
        n -= m;
    }
    K(merge_keys)(lo, hi, min, max);
}

#if LANES >= 4
#include "fold.inl.h"

/* The same in keys, out of the way of the other. */
static __attribute__((noinline)) void K(fold_keys)(enum K(layout) layout, const unsigned char *x, ptrdiff_t pair,
                                                    ptrdiff_t next, size_t length, vec *least, vec *greatest)
{
    if (layout == K(LONGER))
        K(fold_runs)(K(KEYS), K(LONGER), x, pair, next, length, least, greatest);
    else if (layout == K(VECTORS))
        K(fold_runs)(K(KEYS), K(VECTORS), x, pair, next, length, least, greatest);
    else if (layout == K(WHOLE))
        K(fold_runs)(K(KEYS), K(WHOLE), x, pair, next, length, least, greatest);
    else if (LANES >= 8 && layout == K(HALVES))
        K(fold_runs)(K(KEYS), K(HALVES), x, pair, next, length, least, greatest);
    else if (LANES >= 16)
        K(fold_runs)(K(KEYS), K(QUARTERS), x, pair, next, length, least, greatest);
}

/* Merges the keys of LANES / 2 runs from x on and as many that lie `apart` runs further on into the caller's pairs. Where
 * something is not finite they are done again one by one. */
static inline void K(merge_runs)(const unsigned char *x, ptrdiff_t run_stride, ptrdiff_t apart, size_t length, vec least,
                                 vec greatest, BITS inf, unsigned char *min, unsigned char *max, ptrdiff_t out_step,
                                 struct qobs_nonfinite *nonfinite)
{
    const vec limit = K(vec_splat)((KEY)inf);
    const bool finite = !K(vec_any_ge)(greatest, limit) && !K(vec_any_ge)(vec_not(least), limit);
    if (finite && out_step == sizeof(BITS)) {
        unsigned char *const second_min = min + apart * out_step, *const second_max = max + apart * out_step;
        const vec l = K(vec_min_s)(K(vec_key)(vec_load_halves(min, second_min)), least);
        const vec h = K(vec_max_s)(K(vec_key)(vec_load_halves(max, second_max)), greatest);
        vec_store_halves(min, second_min, K(vec_key)(K(vec_no_minus_zero)(l)));
        vec_store_halves(max, second_max, K(vec_key)(K(vec_no_minus_zero)(h)));
        return;
    }
    KEY l[LANES], h[LANES];
    vec_store(l, least);
    vec_store(h, greatest);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)LANES; i++) {
        const ptrdiff_t run = i < (ptrdiff_t)LANES / 2 ? i : apart + i - (ptrdiff_t)LANES / 2;
        if (finite)
            K(merge_keys)(l[i], h[i], min + run * out_step, max + run * out_step);
        else
            K(one_run)(x + run * run_stride, length, inf, min + run * out_step, max + run * out_step, nonfinite);
    }
}

/* Where short runs are and where their bounds go. */
struct K(runs) {
    const unsigned char *x;
    ptrdiff_t run_stride;
    size_t length;
    BITS inf;
    unsigned char *min, *max;
    ptrdiff_t out_step;
    struct qobs_nonfinite *nonfinite;
    size_t keyed; /* so many more folds with keys before raw bits are tried again */
};

/* LANES runs from `run` on; or, with `apart` above 0, in turns LANES / 2 runs from `run` on and as many from `run + apart` on. */
static UNFOLDED void K(one_fold)(enum K(layout) layout, struct K(runs) *r, size_t run, ptrdiff_t apart)
{
    const ptrdiff_t stride = layout == K(HALVES) || layout == K(QUARTERS) ? VEC_BYTES : r->run_stride;
    const ptrdiff_t pair = apart > 0 ? apart * stride : stride, next = apart > 0 ? stride : 2 * stride;
    const unsigned char *const x = r->x + (ptrdiff_t)run * r->run_stride;
    const ptrdiff_t out = (ptrdiff_t)run * r->out_step;
    vec least, greatest;
    if (r->keyed > 0 || !K(fold_runs)(HAS_RAW ? K(RAW) : K(KEYS), layout, x, pair, next, r->length, &least, &greatest)) {
        K(fold_keys)(layout, x, pair, next, r->length, &least, &greatest);
        r->keyed = r->keyed > 0 ? r->keyed - 1 : KEYED;
    }
    if (apart > 0) {
        least = K(vec_even_odd)(least);
        greatest = K(vec_even_odd)(greatest);
    }
    K(merge_runs)(x, r->run_stride, apart > 0 ? apart : LANES / 2, r->length, least, greatest, r->inf, r->min + out,
                  r->max + out, r->out_step, r->nonfinite);
}

#include "short_runs.inl.h"
#endif

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf, unsigned char *min,
                    unsigned char *max, ptrdiff_t out_step, struct qobs_nonfinite *nonfinite)
{
    size_t done = 0;
#if LANES >= 4
    const struct K(runs) r = {x, run_stride, length, inf, min, max, out_step, nonfinite, HAS_RAW ? 0 : SIZE_MAX};
    done = K(fold_short_runs)(r, runs);
#endif
    for (; done < runs; done++)
        K(one_run)(x + (ptrdiff_t)done * run_stride, length, inf, min + (ptrdiff_t)done * out_step,
                   max + (ptrdiff_t)done * out_step, nonfinite);
}

/* Merges the keys of one vector of columns into the caller's, which are keys here. Where something is not finite the elements are
 * gone through one by one, but for the first `seen` columns, which another vector has counted. */
static inline void K(merge_columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t seen, vec lo, vec hi,
                                    bool nan, BITS inf, unsigned char *min, unsigned char *max,
                                    struct qobs_nonfinite *nonfinite)
{
    const vec limit = K(vec_splat)((KEY)inf);
    if (!nan && !K(vec_any_ge)(hi, limit) && !K(vec_any_ge)(vec_not(lo), limit)) {
        vec_store(min, K(vec_min_s)(lo, vec_load(min)));
        vec_store(max, K(vec_max_s)(hi, vec_load(max)));
        return;
    }
    for (size_t j = seen * sizeof(BITS); j < VEC_BYTES; j += sizeof(BITS)) {
        KEY l = (KEY)K(load_bits)(min + j), h = (KEY)K(load_bits)(max + j);
        for (size_t r = 0; r < rows; r++)
            K(scan_elements)(x + (ptrdiff_t)r * row_stride + j, 1, inf, &l, &h, nonfinite);
        memcpy(min + j, &l, sizeof l);
        memcpy(max + j, &h, sizeof h);
    }
}

/* `vectors` vectors of columns, side by side, over `rows` rows; `ahead`: the same columns of as many rows further down are fetched
 * into the second-level cache, as the hardware does not foresee that the streams go on there. Accumulated as in a block, but three bounds of raw bits at once:
 * there is no second look. */
static inline __attribute__((always_inline)) void K(column_tile)(int vectors, bool ahead, const unsigned char *x,
                                                                  ptrdiff_t row_stride, size_t rows, size_t seen, BITS inf,
                                                                  unsigned char *min, unsigned char *max,
                                                                  struct qobs_nonfinite *nonfinite)
{
    vec most[TILE], high[TILE]; /* as floats: maxima and minima */
#if WIDTH == 16
    vec low[TILE];
#endif
    vec_mask nan = vec_mask_none();
    for (int i = 0; i < vectors; i++) {
        most[i] = high[i] = vec_load(x + i * VEC_BYTES);
#if WIDTH == 16
        low[i] = most[i];
#else
        nan = K(vec_or_unordered)(nan, most[i], most[i]);
#endif
        if (ahead)
            __builtin_prefetch(x + (ptrdiff_t)rows * row_stride + i * VEC_BYTES, 0, 2);
    }
    const unsigned char *row = x;
#pragma GCC unroll 1
    for (size_t r = 1; r < rows; r++) {
        row += row_stride;
        for (int i = 0; i < vectors; i++) {
            const vec v = vec_load(row + i * VEC_BYTES);
            if (ahead)
                __builtin_prefetch(row + (ptrdiff_t)rows * row_stride + i * VEC_BYTES, 0, 2);
#if WIDTH == 16
            most[i] = K(vec_max_s)(most[i], v);
            high[i] = K(vec_max_u)(high[i], v);
            low[i] = K(vec_min_u)(low[i], v);
#else
            most[i] = K(vec_max_f)(v, most[i]);
            high[i] = K(vec_min_f)(v, high[i]);
            nan = K(vec_or_unordered)(nan, v, v);
#endif
        }
    }
    for (int i = 0; i < vectors; i++) {
        vec lo = K(vec_key)(high[i]), hi = K(vec_key)(most[i]);
#if WIDTH == 16
        lo = K(vec_min_s)(lo, K(vec_key)(low[i]));
        hi = K(vec_max_s)(hi, K(vec_key)(low[i]));
#endif
        const size_t at = (size_t)i * VEC_BYTES;
        K(merge_columns)(x + at, row_stride, rows, seen, lo, hi, vec_mask_any(nan), inf, min + at, max + at, nonfinite);
    }
}

/* ABREAST rows, or fewer, over all columns; the last vector is read again where the width is no multiple of LANES. */
static inline __attribute__((always_inline)) void K(column_strip)(bool ahead, const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                                   unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    const size_t end = columns * sizeof(BITS), last = end - VEC_BYTES;
    size_t j = 0;
    for (; j + TILE * VEC_BYTES <= end; j += TILE * VEC_BYTES)
        K(column_tile)(TILE, ahead, x + j, row_stride, rows, 0, inf, min + j, max + j, nonfinite);
    for (; j + VEC_BYTES <= end; j += VEC_BYTES)
        K(column_tile)(1, ahead, x + j, row_stride, rows, 0, inf, min + j, max + j, nonfinite);
    if (j < end)
        K(column_tile)(1, ahead, x + last, row_stride, rows, (j - last) / sizeof(BITS), inf, min + last, max + last, nonfinite);
}

static inline void K(convert_keys)(unsigned char *k, size_t n, bool back)
{
    for (size_t i = 0; i < n; i++) {
        const BITS b = K(load_bits)(k + i * sizeof(BITS));
        const BITS c = back ? K(bits_of_key)((KEY)b) : (BITS)K(key_of_bits)(b);
        memcpy(k + i * sizeof(BITS), &c, sizeof c);
    }
}

/* Memory is walked in the order of its rows, ABREAST of them at a time, so that the accumulators (the caller's min and max,
 * turned into keys for the duration) are touched once for that many elements and few streams are open. */
static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf, unsigned char *min,
                       unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    if (rows == 0)
        return;
    K(convert_keys)(min, columns, false);
    K(convert_keys)(max, columns, false);
    if (columns >= LANES) {
        const bool far = rows * columns * sizeof(BITS) >= FAR;
        for (; far && rows >= ABREAST; rows -= ABREAST, x += ABREAST * row_stride)
            K(column_strip)(true, x, row_stride, ABREAST, columns, inf, min, max, nonfinite);
        for (; rows > 0; rows -= rows < ABREAST ? rows : ABREAST, x += ABREAST * row_stride)
            K(column_strip)(false, x, row_stride, rows < ABREAST ? rows : ABREAST, columns, inf, min, max, nonfinite);
    } else {
        for (size_t j = 0; j < columns * sizeof(BITS); j += sizeof(BITS)) {
            KEY lo = (KEY)K(load_bits)(min + j), hi = (KEY)K(load_bits)(max + j);
            for (size_t r = 0; r < rows; r++)
                K(scan_elements)(x + (ptrdiff_t)r * row_stride + j, 1, inf, &lo, &hi, nonfinite);
            memcpy(min + j, &lo, sizeof lo);
            memcpy(max + j, &hi, sizeof hi);
        }
    }
    K(convert_keys)(min, columns, true);
    K(convert_keys)(max, columns, true);
}

#undef UNFOLDED
#undef UNROLLED
#undef TWO_STREAMS
#undef LANES
#undef MOST_POSITIVE
#undef MOST_NEGATIVE
#undef BLOCK
#undef ABREAST
#undef TILE
#undef FAR
#undef HAS_RAW
#undef KEYED
#undef K
#undef KEY
#undef BITS
#undef KEY_CAT
#undef KEY_CAT_

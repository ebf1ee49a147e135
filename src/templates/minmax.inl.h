/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum over rows, row panels and columns, for one element width on one instruction set. Included by
 * src/ISA/minmax.c once per WIDTH (16, 32), after simd.h and tuning.h of that folder.
 *
 * Accumulators: vectors of the element width: raw bits or keys (minmax_key.inl.h); none can overflow.
 * Counts: 64 bits, made only for blocks that hold an element that is not finite.
 * Tails: the last vector of a run is loaded from `length - LANES`, so some elements are read twice, which changes no
 *   bound. Runs shorter than a vector go element by element. Nothing outside a run is read.
 * In flight: 4 vectors in a run of more than 4, 2 in a shorter run; in columns as many as registers hold, or 4 or 8
 *   rows.
 * Caller's duty: the floating-point unit must not treat subnormals as zeros (base/fpenv.h). */
#include "templates/width_begin.h"

#include "templates/inline.h"
#include "templates/minmax_key.inl.h"

#define UNROLLED 4 /* vectors in flight in a block */

#include "templates/transpose_reduce.inl.h"

/* Bounds of any number of vectors, lane by lane. Raw bits need no conversion in the loop. Minimum and maximum are among
 * the largest and the smallest bits as unsigned and the largest as signed integers, whatever the signs are. NaN is
 * beyond infinity. */
struct K(bounds) {
    vec high, low, high_signed;
};

static inline struct K(bounds) K(bounds_of)(vec v) { return (struct K(bounds)){v, v, v}; }

/* both_signs: what the bounds hold or get has elements of both signs. Then two bounds are enough. */
ALWAYS_INLINE void K(add_vector)(bool both_signs, struct K(bounds) * b, vec v)
{
    b->high = K(vec_max_u)(b->high, v);
    b->high_signed = K(vec_max_s)(b->high_signed, v);
    if (!both_signs)
        b->low = K(vec_min_u)(b->low, v);
}

/* Four vectors. They meet each other first, so that one operation waits for those before instead of four: on Zen 5 an
 * operation takes two cycles, and four of them begin in each. */
ALWAYS_INLINE void K(add_quad)(bool both_signs, struct K(bounds) * b, vec p, vec q, vec r, vec s)
{
    b->high = K(vec_max_u)(b->high, K(vec_max_u)(K(vec_max_u)(p, q), K(vec_max_u)(r, s)));
    b->high_signed = K(vec_max_s)(b->high_signed, K(vec_max_s)(K(vec_max_s)(p, q), K(vec_max_s)(r, s)));
    if (!both_signs)
        b->low = K(vec_min_u)(b->low, K(vec_min_u)(K(vec_min_u)(p, q), K(vec_min_u)(r, s)));
}

static inline void K(keys_of_bounds)(const struct K(bounds) * b, vec *lo, vec *hi)
{
    const vec low = K(vec_key)(b->low);
    *lo = K(vec_min_s)(K(vec_key)(b->high), low);
    *hi = K(vec_max_s)(K(vec_key)(b->high_signed), low);
}

static inline void K(range_of_bounds)(const struct K(bounds) * b, KEY *lo, KEY *hi)
{
    vec lowest, highest;
    K(keys_of_bounds)(b, &lowest, &highest);
    *lo = K(vec_reduce_min)(lowest);
    *hi = (KEY)~K(vec_reduce_min)(~highest);
}

/* Blocks from TWO_STREAMS_BYTES on are read as two streams: faster from L3; in short runs it would confuse the
 * prefetchers. Bounds start from the first vector: touching the end first costs a third of the bandwidth of memory if
 * loads are unaligned. */
ALWAYS_INLINE struct K(bounds) K(block_bounds)(bool both_signs, const unsigned char *x, size_t n)
{
    const unsigned char *const last = x + (n - LANES) * sizeof(BITS);
    struct K(bounds) b = K(bounds_of)(vec_load(x));
    if (n * sizeof(BITS) >= TWO_STREAMS_BYTES) {
        const size_t step = UNROLLED / 2 * VEC_BYTES, half = (size_t)(last - x) / 2 / step * step;
        const unsigned char *y = x + half, *const middle = y;
        for (; x < middle; x += step, y += step)
            K(add_quad)(both_signs, &b, vec_load(x), vec_load(y), vec_load(x + VEC_BYTES), vec_load(y + VEC_BYTES));
        x = y;
    }
    for (; x + (UNROLLED - 1) * VEC_BYTES < last; x += UNROLLED * VEC_BYTES)
        K(add_quad)
    (both_signs, &b, vec_load(x), vec_load(x + VEC_BYTES), vec_load(x + 2 * VEC_BYTES), vec_load(x + 3 * VEC_BYTES));
    for (; x < last; x += VEC_BYTES)
        K(add_vector)(both_signs, &b, vec_load(x));
    K(add_vector)(both_signs, &b, vec_load(last));
    return b;
}

static inline void K(block_keys)(const unsigned char *x, size_t n, KEY *lo, KEY *hi)
{
    const bool both_signs = n >= 4 * LANES && K(begins_with_both_signs)(x);
    const struct K(bounds) b = both_signs ? K(block_bounds)(true, x, n) : K(block_bounds)(false, x, n);
    K(range_of_bounds)(&b, lo, hi);
}

/* True if an element was not finite. */
static inline bool K(has_nonfinite)(KEY lo, KEY hi, BITS inf) { return hi >= (KEY)inf || lo <= (KEY)~inf; }

/* One run of any length, block by block. */
static void K(one_run)(const unsigned char *x, size_t n, BITS inf, unsigned char *min, unsigned char *max,
                       struct nonfinite_count *nonfinite)
{
    KEY lo = MOST_POSITIVE, hi = MOST_NEGATIVE;
    while (n > 0) {
        const size_t m = n >= 2 * BLOCK_BYTES / sizeof(BITS) ? BLOCK_BYTES / sizeof(BITS) : n;
        bool finite = false;
        if (m >= LANES) {
            KEY block_lo, block_hi;
            K(block_keys)(x, m, &block_lo, &block_hi);
            finite = !K(has_nonfinite)(block_lo, block_hi, inf);
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

/* Short runs and their outputs. */
struct K(runs) {
    const unsigned char *x;
    ptrdiff_t run_stride;
    size_t length;
    BITS inf;
    unsigned char *min, *max;
    ptrdiff_t out_step, ahead;
    struct nonfinite_count *nonfinite;
};

static const enum bounds_form K(form) = AS_RAW_BITS;
#define FORM K(form)

/* Merges bounds of LANES runs from `run` on. Bounds as raw bits that are right compare as raw bits with any output. */
DEEP_INLINE void K(merge_extent)(enum bounds_form form, struct K(extent) e, const struct K(runs) * r, size_t run)
{
    unsigned char *min = r->min + (ptrdiff_t)run * r->out_step, *max = r->max + (ptrdiff_t)run * r->out_step;
    if (r->out_step == sizeof(BITS)) {
        vec lo = vec_load(min), hi = vec_load(max);
        if (form == AS_RAW_BITS) {
            lo = K(vec_clear_equal)(K(lower)(AS_RAW_BITS, e.lo, lo), K(vec_splat)(MOST_NEGATIVE));
            hi = K(vec_max_s)(e.hi, hi);
        } else {
            lo = K(vec_key)(K(vec_no_minus_zero)(K(vec_min_s)(e.lo, K(vec_key)(lo))));
            hi = K(vec_key)(K(vec_no_minus_zero)(K(vec_max_s)(e.hi, K(vec_key)(hi))));
        }
        vec_store(min, lo);
        vec_store(max, hi);
        return;
    }
    KEY l[LANES], h[LANES];
    vec_store(l, form == AS_RAW_BITS ? K(vec_key)(e.lo) : e.lo);
    vec_store(h, e.hi);
    for (size_t i = 0; i < LANES; i++, min += r->out_step, max += r->out_step)
        K(merge_keys)(l[i], h[i], min, max);
}

static void K(one_by_one)(const struct K(runs) * r, size_t run)
{
    for (size_t i = run; i < run + LANES; i++)
        K(one_run)
    (r->x + (ptrdiff_t)i * r->run_stride, r->length, r->inf, r->min + (ptrdiff_t)i * r->out_step,
     r->max + (ptrdiff_t)i * r->out_step, r->nonfinite);
}

#include "templates/short_runs.inl.h"

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf,
                    unsigned char *min, unsigned char *max, ptrdiff_t out_step, struct nonfinite_count *nonfinite)
{
    const size_t bytes = length * sizeof(BITS);
    const struct K(runs) r = {x, run_stride, length, inf, min, max, out_step, K(ahead_of)(runs * bytes), nonfinite};
    for (size_t done = K(reduce_short_runs)(&r, runs); done < runs; done++)
        K(one_run)
    (x + (ptrdiff_t)done * run_stride, length, inf, min + (ptrdiff_t)done * out_step, max + (ptrdiff_t)done * out_step,
     nonfinite);
}

#include "templates/minmax_row_panels.inl.h"
#include "templates/minmax_columns.inl.h"

#undef FORM
#undef UNROLLED
#include "templates/width_end.h"

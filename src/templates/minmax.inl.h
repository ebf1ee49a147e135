/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum over rows, row panels and columns, for one element width on one instruction set. Included by
 * src/ISA/minmax.c once per WIDTH (16, 32), after simd.h and tuning.h of that folder.
 *
 * Accumulators: vectors of the element width: raw bits or keys (minmax_key.inl.h); none can overflow.
 * Counts: 64 bits, made only for blocks that hold an element that is not finite.
 * Tails: the last vector of a run is loaded from `length - LANES`, so some elements are read twice, which changes no
 *   bound. Runs shorter than a vector go element by element. Nothing outside a run is read.
 * In flight: 4 vectors in a long run, 2 in a short run; in columns as many as registers hold, or 4 or 8 rows; long runs
 *   that exceed the share of L3 are read from 2 pages at a time.
 * Caller's duty: the floating-point unit must not treat subnormals as zeros (base/fpenv.h). */
#include "templates/width_begin.h"

#include "templates/inline.h"
#include "templates/minmax_key.inl.h"

#define UNROLLED 4 /* vectors in flight in a block */
#define SETS 2     /* of bounds for them; 16 registers do not hold more */
#define PAGE_BYTES 4096

#include "templates/transpose_reduce.inl.h"

/* Bounds of any number of vectors, lane by lane. Raw bits need no conversion in the loop. Minimum and maximum are among
 * the largest and the smallest bits as unsigned and the largest as signed integers, whatever the signs are. NaN is
 * beyond infinity. */
struct K(bounds) {
    vec high, low, high_signed;
};

static inline struct K(bounds) K(bounds_of)(vec v) { return (struct K(bounds)){v, v, v}; }

static inline void K(add_vector)(struct K(bounds) * b, vec v)
{
    b->high = K(vec_max_u)(b->high, v);
    b->low = K(vec_min_u)(b->low, v);
    b->high_signed = K(vec_max_s)(b->high_signed, v);
}

static inline void K(add_two)(struct K(bounds) * b, struct K(bounds) * c, vec v, vec w)
{
    K(add_vector)(b, v);
    K(add_vector)(c, w);
}

/* For elements that are known to hold both signs. */
static inline void K(add_two_signed)(struct K(bounds) * b, struct K(bounds) * c, vec v, vec w)
{
    b->high = K(vec_max_u)(b->high, v);
    b->high_signed = K(vec_max_s)(b->high_signed, v);
    c->high = K(vec_max_u)(c->high, w);
    c->high_signed = K(vec_max_s)(c->high_signed, w);
}

static inline void K(merge)(struct K(bounds) * b, const struct K(bounds) * c)
{
    b->high = K(vec_max_u)(b->high, c->high);
    b->low = K(vec_min_u)(b->low, c->low);
    b->high_signed = K(vec_max_s)(b->high_signed, c->high_signed);
}

static inline void K(merge_signed)(struct K(bounds) * b, const struct K(bounds) * c)
{
    b->high = K(vec_max_u)(b->high, c->high);
    b->high_signed = K(vec_max_s)(b->high_signed, c->high_signed);
}

/* In registers only: otherwise gcc also updates copies in memory. */
static inline void K(in_registers)(struct K(bounds) * b)
{
    vec_in_register(&b->high);
    vec_in_register(&b->low);
    vec_in_register(&b->high_signed);
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

/* Reads two pages side by side and prefetches the pages +4 and +5 into L2, each line twice, because some prefetches
 * are dropped. Faster than two streams while L3 holds a part of the data; slower from memory. */
ALWAYS_INLINE const unsigned char *K(two_pages)(void (*add)(struct K(bounds) *, struct K(bounds) *, vec, vec),
                                                struct K(bounds) * b, const unsigned char *x, const unsigned char *end)
{
    for (; x + 2 * PAGE_BYTES <= end; x += 2 * PAGE_BYTES)
        for (const unsigned char *at = x; at < x + PAGE_BYTES; at += 64) {
            for (int v = 0; v < 64; v += VEC_BYTES)
                add(&b[0], &b[1], vec_load_ordered(at + v), vec_load_ordered(at + PAGE_BYTES + v));
            for (int page = PAGES_AHEAD; page < PAGES_AHEAD + 2; page++) {
                __builtin_prefetch(at + page * PAGE_BYTES, 0, 2);
                __builtin_prefetch(at + page * PAGE_BYTES + 32, 0, 2);
            }
            for (int set = 0; set < SETS; set++)
                K(in_registers)(&b[set]);
        }
    return x;
}

/* Two bounds are enough for elements that begin with both signs. */
static inline const unsigned char *K(pages)(struct K(bounds) * b, const unsigned char *x, const unsigned char *end)
{
    if (end - x >= 4 * VEC_BYTES && K(begins_with_both_signs)(x))
        return K(two_pages)(K(add_two_signed), b, x, end);
    return K(two_pages)(K(add_two), b, x, end);
}

/* Blocks from TWO_STREAMS_BYTES on are read as two streams: faster from L3; in short runs it would confuse the
 * prefetchers. Accumulators start from the first vector. The path with software prefetch starts from the last one;
 * without prefetch, touching the end first costs a third of the bandwidth of memory if loads are unaligned. */
static inline void K(block_keys)(bool two_pages, const unsigned char *x, size_t n, KEY *lo, KEY *hi)
{
    const unsigned char *const last = x + (n - LANES) * sizeof(BITS);
    struct K(bounds) b[SETS];
    for (int i = 0; i < SETS; i++)
        b[i] = K(bounds_of)(vec_load(two_pages ? last : x));
    if (two_pages) {
        x = K(pages)(b, x, last + VEC_BYTES);
    } else if (n * sizeof(BITS) >= TWO_STREAMS_BYTES) {
        const size_t step = UNROLLED / 2 * VEC_BYTES, half = (size_t)(last - x) / 2 / step * step;
        const unsigned char *y = x + half, *const middle = y;
        for (; x < middle; x += step, y += step) {
            for (int i = 0; i < UNROLLED; i += 2)
                K(add_two)
            (&b[i % SETS], &b[(i + 1) % SETS], vec_load(x + i / 2 * VEC_BYTES), vec_load(y + i / 2 * VEC_BYTES));
            for (int i = 0; i < SETS; i++)
                K(in_registers)(&b[i]);
        }
        x = y;
    }
    for (; x + (UNROLLED - 1) * VEC_BYTES < last; x += UNROLLED * VEC_BYTES) {
        for (int i = 0; i < UNROLLED; i += 2)
            K(add_two)
        (&b[i % SETS], &b[(i + 1) % SETS], vec_load(x + i * VEC_BYTES), vec_load(x + (i + 1) * VEC_BYTES));
        for (int i = 0; i < SETS; i++)
            K(in_registers)(&b[i]);
    }
    for (; x < last; x += VEC_BYTES)
        K(add_vector)(&b[0], vec_load(x));
    K(add_vector)(&b[0], vec_load(last));
    for (int i = 1; i < SETS; i++)
        K(merge)(&b[0], &b[i]);
    K(range_of_bounds)(&b[0], lo, hi);
}

/* True if an element was not finite. */
static inline bool K(has_nonfinite)(KEY lo, KEY hi, BITS inf) { return hi >= (KEY)inf || lo <= (KEY)~inf; }

/* One run of any length, block by block. */
static void K(one_run)(bool two_pages, const unsigned char *x, size_t n, BITS inf, unsigned char *min,
                       unsigned char *max, struct nonfinite_count *nonfinite)
{
    KEY lo = MOST_POSITIVE, hi = MOST_NEGATIVE;
    while (n > 0) {
        const size_t m = n >= 2 * BLOCK_BYTES / sizeof(BITS) ? BLOCK_BYTES / sizeof(BITS) : n;
        bool finite = false;
        if (m >= LANES) {
            KEY block_lo, block_hi;
            K(block_keys)(two_pages, x, m, &block_lo, &block_hi);
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
    (false, r->x + (ptrdiff_t)i * r->run_stride, r->length, r->inf, r->min + (ptrdiff_t)i * r->out_step,
     r->max + (ptrdiff_t)i * r->out_step, r->nonfinite);
}

#include "templates/short_runs.inl.h"

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf,
                    unsigned char *min, unsigned char *max, ptrdiff_t out_step, struct nonfinite_count *nonfinite)
{
    const size_t bytes = length * sizeof(BITS);
    const bool two_pages = runs * bytes >= TWO_PAGES_BYTES && runs * bytes < TWO_PAGES_END_BYTES &&
                           (runs == 1 || run_stride == (ptrdiff_t)bytes);
    const struct K(runs) r = {x, run_stride, length, inf, min, max, out_step, K(ahead_of)(runs * bytes), nonfinite};
    for (size_t done = K(reduce_short_runs)(&r, runs); done < runs; done++)
        K(one_run)
    (two_pages, x + (ptrdiff_t)done * run_stride, length, inf, min + (ptrdiff_t)done * out_step,
     max + (ptrdiff_t)done * out_step, nonfinite);
}

#include "templates/minmax_row_panels.inl.h"
#include "templates/minmax_columns.inl.h"

#undef FORM
#undef UNROLLED
#undef SETS
#undef PAGE_BYTES
#include "templates/width_end.h"

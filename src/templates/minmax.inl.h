/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Min/max over rows, over bands and over columns, for one element width on one instruction set. Included by src/<isa>/minmax.c once per
 * WIDTH (16, 32, 64), after that instruction set's vec.h.
 *
 * Accumulators: vectors of the element width, as keys (minmax_key.inl.h), as raw bits, or, where these are 64, as floats; nothing
 *   can overflow.
 * Counts: 64 bits, made only for blocks that hold something not finite.
 * Tails: the last vector of a run is read again from `length - LANES`, which changes no minimum and no maximum; runs shorter
 *   than a vector go element by element. Nothing outside a run is read.
 * In flight: 4 vectors in a long run, 2 in a short run, as many as the registers hold or 4 or 8 rows in columns; long runs
 *   from far away are read from 2 pages at a time.
 * Caller's duty: the floating-point unit must not treat subnormals as zeros (src/fpenv.h sees to it). */

#include "templates/minmax_key.inl.h"

#define LANES (VEC_BYTES * 8 / WIDTH)
#define MOST_POSITIVE ((KEY)((BITS)~(BITS)0 >> 1))
#define MOST_NEGATIVE ((KEY)(-MOST_POSITIVE - 1))

/* A block of a long run: small enough to be in a near cache when it must be read again for its NaN. */
#define BLOCK ((size_t)262144 * 8 / WIDTH)
/* Unsigned comparison of 64 bits is no instruction everywhere. */
#define HAS_RAW (WIDTH != 64)

/* A block of this many bytes is worth two streams. */
#define TWO_STREAMS 131072
#define UNROLLED 4 /* vectors in flight in a block */
#define SETS 2     /* of bounds for them: a minimum takes a cycle or two, and 16 registers do not hold more */
/* From this size on data are taken to come in part from memory, and from this one on all of them. */
#define FAR ((size_t)16 << 20)
#define FARTHEST ((size_t)64 << 20)
/* Between them runs are read two pages side by side, some pages ahead of which lines are fetched. */
#define PAGE 4096
#define PAGES_AHEAD 4

#if LANES >= 4
#include "templates/signs.inl.h"
#endif

/* What is accumulated of any number of vectors, lane by lane. */
#if HAS_RAW
/* Raw bits need no conversion in the loop: the largest and the smallest as unsigned and the largest as signed, among which are the
 * minimum and the maximum, whatever signs there are. NaN is what lies beyond infinity. */
struct K(bounds) {
    vec high, low, most;
};

static inline struct K(bounds) K(bounds_of)(vec v)
{
    return (struct K(bounds)){v, v, v};
}

static inline void K(enter)(struct K(bounds) *b, vec v)
{
    b->high = K(vec_max_u)(b->high, v);
    b->low = K(vec_min_u)(b->low, v);
    b->most = K(vec_max_s)(b->most, v);
}

static inline void K(enter_two)(struct K(bounds) *b, struct K(bounds) *c, vec v, vec w)
{
    K(enter)(b, v);
    K(enter)(c, w);
}

/* Of what is known to hold both signs. */
static inline void K(enter_two_signed)(struct K(bounds) *b, struct K(bounds) *c, vec v, vec w)
{
    b->high = K(vec_max_u)(b->high, v);
    b->most = K(vec_max_s)(b->most, v);
    c->high = K(vec_max_u)(c->high, w);
    c->most = K(vec_max_s)(c->most, w);
}

static inline void K(join)(struct K(bounds) *b, const struct K(bounds) *c)
{
    b->high = K(vec_max_u)(b->high, c->high);
    b->low = K(vec_min_u)(b->low, c->low);
    b->most = K(vec_max_s)(b->most, c->most);
}

static inline void K(join_signed)(struct K(bounds) *b, const struct K(bounds) *c)
{
    b->high = K(vec_max_u)(b->high, c->high);
    b->most = K(vec_max_s)(b->most, c->most);
}

/* In registers, and there only: gcc would otherwise keep copies in memory up to date. */
static inline void K(keep)(struct K(bounds) *b)
{
    vec_keep(&b->high);
    vec_keep(&b->low);
    vec_keep(&b->most);
}

static inline void K(keys_of_bounds)(const struct K(bounds) *b, vec *quant_min, vec *quant_max)
{
    const vec low = K(vec_key)(b->low);
    *quant_min = K(vec_min_s)(K(vec_key)(b->high), low);
    *quant_max = K(vec_max_s)(K(vec_key)(b->most), low);
}
#else
/* Floating-point minimum and maximum. One unordered comparison for two vectors finds NaN, which is handed on as a key beyond
 * infinity. */
struct K(bounds) {
    vec quant_min, most;
    vec_mask nan;
};

static inline struct K(bounds) K(bounds_of)(vec v)
{
    return (struct K(bounds)){v, v, K(vec_or_unordered)(vec_mask_none(), v, v)};
}

static inline void K(enter_two)(struct K(bounds) *b, struct K(bounds) *c, vec v, vec w)
{
    b->quant_min = K(vec_min_f)(v, b->quant_min);
    b->most = K(vec_max_f)(v, b->most);
    c->quant_min = K(vec_min_f)(w, c->quant_min);
    c->most = K(vec_max_f)(w, c->most);
    b->nan = K(vec_or_unordered)(b->nan, v, w);
}

static inline void K(enter)(struct K(bounds) *b, vec v)
{
    K(enter_two)(b, b, v, v);
}

static inline void K(join)(struct K(bounds) *b, const struct K(bounds) *c)
{
    b->quant_min = K(vec_min_f)(c->quant_min, b->quant_min);
    b->most = K(vec_max_f)(c->most, b->most);
    b->nan |= c->nan;
}

static inline void K(keep)(struct K(bounds) *b)
{
    vec_keep(&b->quant_min);
    vec_keep(&b->most);
}

static inline void K(keys_of_bounds)(const struct K(bounds) *b, vec *quant_min, vec *quant_max)
{
    *quant_min = K(vec_key)(b->quant_min);
    *quant_max = vec_mask_any(b->nan) ? K(vec_splat)(MOST_POSITIVE) : K(vec_key)(b->most);
}
#endif

static inline void K(ends_of_bounds)(const struct K(bounds) *b, KEY *lo, KEY *hi)
{
    vec quant_min, quant_max;
    K(keys_of_bounds)(b, &quant_min, &quant_max);
    *lo = K(vec_reduce_min)(quant_min);
    *hi = (KEY)~K(vec_reduce_min)(vec_not(quant_max));
}

/* Two pages side by side, while those further on are fetched into the second-level cache, every line twice, as some first tries come to
 * nothing. Where the third-level cache holds only a part that is faster than two streams, from memory slower. */
static inline __attribute__((always_inline)) const unsigned char *K(two_pages)(
    void (*enter)(struct K(bounds) *, struct K(bounds) *, vec, vec), struct K(bounds) *b, const unsigned char *x, const unsigned char *end)
{
    for (; x + 2 * PAGE <= end; x += 2 * PAGE)
        for (const unsigned char *at = x; at < x + PAGE; at += 64) {
            for (int v = 0; v < 64; v += VEC_BYTES)
                enter(&b[0], &b[1], vec_load_in_turn(at + v), vec_load_in_turn(at + PAGE + v));
            for (int page = PAGES_AHEAD; page < PAGES_AHEAD + 2; page++) {
                __builtin_prefetch(at + page * PAGE, 0, 2);
                __builtin_prefetch(at + page * PAGE + 32, 0, 2);
            }
            for (int set = 0; set < SETS; set++)
                K(keep)(&b[set]);
        }
    return x;
}

/* Of what begins with both signs two bounds are enough. */
static inline const unsigned char *K(pages)(struct K(bounds) *b, const unsigned char *x, const unsigned char *end)
{
#if HAS_RAW
    if (end - x >= 4 * VEC_BYTES && K(begins_with_both)(x))
        return K(two_pages)(K(enter_two_signed), b, x, end);
#endif
    return K(two_pages)(K(enter_two), b, x, end);
}

/* Both halves of a large block are read at once: two streams come faster out of the third-level cache than one; in a short run they
 * would keep the prefetchers from ever settling. The end is touched before the rest only where that is fetched in software: where vectors
 * cross lines, memory comes a third slower after that. */
static inline void K(block_keys)(bool far, const unsigned char *x, size_t n, KEY *lo, KEY *hi)
{
    const unsigned char *const last = x + (n - LANES) * sizeof(BITS);
    struct K(bounds) b[SETS];
    for (int i = 0; i < SETS; i++)
        b[i] = K(bounds_of)(vec_load(far ? last : x));
    if (far) {
        x = K(pages)(b, x, last + VEC_BYTES);
    } else if (n * sizeof(BITS) >= TWO_STREAMS) {
        const size_t step = UNROLLED / 2 * VEC_BYTES, half = (size_t)(last - x) / 2 / step * step;
        const unsigned char *y = x + half, *const middle = y;
        for (; x < middle; x += step, y += step) {
            for (int i = 0; i < UNROLLED; i += 2)
                K(enter_two)(&b[i % SETS], &b[(i + 1) % SETS], vec_load(x + i / 2 * VEC_BYTES), vec_load(y + i / 2 * VEC_BYTES));
            for (int i = 0; i < SETS; i++)
                K(keep)(&b[i]);
        }
        x = y;
    }
    for (; x + (UNROLLED - 1) * VEC_BYTES < last; x += UNROLLED * VEC_BYTES) {
        for (int i = 0; i < UNROLLED; i += 2)
            K(enter_two)(&b[i % SETS], &b[(i + 1) % SETS], vec_load(x + i * VEC_BYTES), vec_load(x + (i + 1) * VEC_BYTES));
        for (int i = 0; i < SETS; i++)
            K(keep)(&b[i]);
    }
    for (; x < last; x += VEC_BYTES)
        K(enter)(&b[0], vec_load(x));
    K(enter)(&b[0], vec_load(last));
    for (int i = 1; i < SETS; i++)
        K(join)(&b[0], &b[i]);
    K(ends_of_bounds)(&b[0], lo, hi);
}

static inline bool K(special)(KEY lo, KEY hi, BITS inf)
{
    return hi >= (KEY)inf || lo <= (KEY)~inf;
}

/* One run of any length, block by block. */
static void K(one_run)(bool far, const unsigned char *x, size_t n, BITS inf, unsigned char *min, unsigned char *max,
                       struct qobs_nonfinite *nonfinite)
{
    KEY lo = MOST_POSITIVE, hi = MOST_NEGATIVE;
    while (n > 0) {
        const size_t m = n >= 2 * BLOCK ? BLOCK : n;
        bool finite = false;
        if (m >= LANES) {
            KEY block_lo, block_hi;
            K(block_keys)(far, x, m, &block_lo, &block_hi);
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
#include "templates/fold.inl.h"

/* Where short runs are and where their bounds go. */
struct K(runs) {
    const unsigned char *x;
    ptrdiff_t run_stride;
    size_t length;
    BITS inf;
    unsigned char *min, *max;
    ptrdiff_t out_step;
    struct qobs_nonfinite *nonfinite;
};

#define FORM (HAS_RAW ? K(RAW) : K(KEYS))

/* Of LANES runs from `run` on. Of raw bounds that hold the same comparisons are right with whatever the caller has. */
static UNFOLDED void K(merge_extent)(enum K(form) form, struct K(extent) e, const struct K(runs) *r, size_t run)
{
    unsigned char *min = r->min + (ptrdiff_t)run * r->out_step, *max = r->max + (ptrdiff_t)run * r->out_step;
    if (r->out_step == sizeof(BITS)) {
        vec lo = vec_load(min), hi = vec_load(max);
        if (form == K(RAW)) {
            lo = K(vec_clear_equal)(K(lower)(K(RAW), e.lo, lo), K(vec_splat)(MOST_NEGATIVE));
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
    vec_store(l, form == K(RAW) ? K(vec_key)(e.lo) : e.lo);
    vec_store(h, e.hi);
    for (size_t i = 0; i < LANES; i++, min += r->out_step, max += r->out_step)
        K(merge_keys)(l[i], h[i], min, max);
}

static void K(one_by_one)(const struct K(runs) *r, size_t run)
{
    for (size_t i = run; i < run + LANES; i++)
        K(one_run)(false, r->x + (ptrdiff_t)i * r->run_stride, r->length, r->inf, r->min + (ptrdiff_t)i * r->out_step,
                   r->max + (ptrdiff_t)i * r->out_step, r->nonfinite);
}

#include "templates/short_runs.inl.h"
#endif

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf, unsigned char *min,
                    unsigned char *max, ptrdiff_t out_step, struct qobs_nonfinite *nonfinite)
{
    const size_t bytes = length * sizeof(BITS);
    const bool far = VEC_BYTES >= 32 && runs * bytes >= FAR && runs * bytes < FARTHEST && (runs == 1 || run_stride == (ptrdiff_t)bytes);
    size_t done = 0;
#if LANES >= 4
    const struct K(runs) r = {x, run_stride, length, inf, min, max, out_step, nonfinite};
    done = K(fold_short_runs)(&r, runs);
#endif
    for (; done < runs; done++)
        K(one_run)(far, x + (ptrdiff_t)done * run_stride, length, inf, min + (ptrdiff_t)done * out_step,
                   max + (ptrdiff_t)done * out_step, nonfinite);
}

#include "templates/minmax_row_panels.inl.h"
#include "templates/minmax_columns.inl.h"

#undef UNFOLDED
#undef FORM
#undef UNROLLED
#undef SETS
#undef FAR
#undef FARTHEST
#undef PAGE
#undef PAGES_AHEAD
#undef TWO_STREAMS
#undef LANES
#undef MOST_POSITIVE
#undef MOST_NEGATIVE
#undef BLOCK
#undef HAS_RAW
#undef K
#undef KEY
#undef BITS
#undef KEY_CAT
#undef KEY_CAT_

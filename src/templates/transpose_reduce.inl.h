/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Bounds of LANES short runs by one transposed reduction: every run has an accumulator or two, and every step makes
 * half as many vectors in which each run has half as many lanes. Included by minmax.inl.h and absmax.inl.h.
 *
 * Vectors are loaded in memory order, which decides about the speed from memory, and reduced depth first, so that
 * few are live. */
#include "templates/inline.h"

#ifndef RUN_LAYOUTS /* once for all widths */
#define RUN_LAYOUTS

/* The length of short runs in vectors. */
enum run_layout {
    OVER_4_VECTORS,
    OVER_2_VECTORS, /* up to 4 */
    OVER_1_VECTOR,  /* up to 2 */
    ONE_VECTOR,
    HALF_VECTORS,   /* contiguous runs of half a vector */
    QUARTER_VECTORS /* contiguous runs of a quarter of a vector */
};

/* The form of accumulators. Raw bits need no conversion in the loop but are right only if a run has elements of both
 * signs: then the largest bits as signed integers are the maximum, and the largest as unsigned integers are the
 * minimum. Magnitudes have no minimum. */
enum bounds_form { AS_KEYS, AS_RAW_BITS, AS_MAGNITUDES };
#endif

/* True if the four vectors at x hold both signs. Then the largest raw bits of everything they are part of are the
 * maximum if compared as signed integers, and the minimum if compared as unsigned integers. */
static inline bool K(begins_with_both_signs)(const unsigned char *x)
{
    vec lo = vec_load(x), hi = lo;
    for (int i = 1; i < 4; i++) {
        lo = K(vec_min_s)(lo, vec_load(x + i * VEC_BYTES));
        hi = K(vec_max_s)(hi, vec_load(x + i * VEC_BYTES));
    }
    return K(vec_any_ge)(hi, K(vec_splat)(0)) && K(vec_any_ge)(~lo, K(vec_splat)(0));
}

/* Bounds of some runs, each in some lanes. */
struct K(extent) {
    vec lo, hi;
};

/* The distance of prefetches in a call that reads so many bytes. With 0 a prefetch costs less than a branch. */
static inline ptrdiff_t K(ahead_of)(size_t bytes)
{
    return bytes >= AHEAD_CALL_BYTES && PREFETCHES_INTO_L1 ? (ptrdiff_t)BYTES_AHEAD : 0;
}

/* Prefetches the line `ahead` bytes after p into L1, if BYTES_AHEAD is not 0. */
static inline void K(prefetch_ahead)(const unsigned char *p, ptrdiff_t ahead)
{
    if (BYTES_AHEAD > 0)
        __builtin_prefetch(p + ahead, 0, 3);
}

DEEP_INLINE vec K(load_as)(enum bounds_form form, const unsigned char *p, ptrdiff_t ahead)
{
    const vec v = vec_load_ordered(p);
    K(prefetch_ahead)(p, ahead);
    return form == AS_RAW_BITS ? v : form == AS_KEYS ? K(vec_key)(v) : K(vec_magnitude)(v);
}

DEEP_INLINE vec K(lower)(enum bounds_form form, vec a, vec b)
{
    if (form == AS_RAW_BITS)
        return K(vec_max_u)(a, b);
    return form == AS_KEYS ? K(vec_min_s)(a, b) : a;
}

DEEP_INLINE struct K(extent) K(extent_of)(enum bounds_form form, vec a, vec b)
{
    return (struct K(extent)){K(lower)(form, a, b), K(vec_max_s)(a, b)};
}

DEEP_INLINE void K(add)(enum bounds_form form, struct K(extent) * e, vec v)
{
    e->lo = K(lower)(form, e->lo, v);
    e->hi = K(vec_max_s)(e->hi, v);
}

/* Two vectors. They meet first, as in minmax.inl.h. */
DEEP_INLINE void K(add_two)(enum bounds_form form, struct K(extent) * e, vec v, vec w)
{
    e->lo = K(lower)(form, e->lo, K(lower)(form, v, w));
    e->hi = K(vec_max_s)(e->hi, K(vec_max_s)(v, w));
}

/* Four vectors. */
DEEP_INLINE void K(add_four)(enum bounds_form form, struct K(extent) * e, struct K(extent) * f, const unsigned char *x,
                             ptrdiff_t ahead)
{
    const vec p = K(load_as)(form, x, ahead), q = K(load_as)(form, x + VEC_BYTES, ahead);
    const vec r = K(load_as)(form, x + 2 * VEC_BYTES, ahead), s = K(load_as)(form, x + 3 * VEC_BYTES, ahead);
    K(add_two)(form, e, p, q);
    K(add_two)(form, f, r, s);
}

/* One run of more than 2 vectors. The last four may overlap: that changes no bound and needs no branch. */
DEEP_INLINE struct K(extent)
    K(run_extent)(enum bounds_form form, enum run_layout layout, const unsigned char *x, size_t n, ptrdiff_t ahead)
{
    const unsigned char *const last = x + (n - LANES) * sizeof(BITS);
#define UP_TO_LAST(p) K(load_as)(form, (p) < last ? (p) : last, ahead)
    const vec v = K(load_as)(form, x, ahead), w = K(load_as)(form, x + VEC_BYTES, ahead);
    struct K(extent) e = {v, v}, f = {w, w};
    if (layout == OVER_4_VECTORS) {
        K(add)(form, &e, K(load_as)(form, x + 2 * VEC_BYTES, ahead));
        K(add)(form, &f, K(load_as)(form, x + 3 * VEC_BYTES, ahead));
        for (x += 4 * VEC_BYTES; x + 3 * VEC_BYTES < last; x += 4 * VEC_BYTES)
            K(add_four)(form, &e, &f, x, ahead);
        K(add)(form, &e, UP_TO_LAST(x));
        K(add)(form, &f, UP_TO_LAST(x + VEC_BYTES));
    }
    K(add)(form, &e, UP_TO_LAST(x + 2 * VEC_BYTES));
    K(add)(form, &f, K(load_as)(form, last, ahead));
#undef UP_TO_LAST
    return (struct K(extent)){K(lower)(form, e.lo, f.lo), K(vec_max_s)(e.hi, f.hi)};
}

/* One step: two vectors become one in which each run has half as many lanes. */
DEEP_INLINE struct K(extent)
    K(reduce_step)(enum bounds_form form, int first, int step, struct K(extent) a, struct K(extent) b)
{
    vec x, y, v, w;
    K(vec_pair)(first, step, a.lo, b.lo, &x, &y);
    K(vec_pair)(first, step, a.hi, b.hi, &v, &w);
    return (struct K(extent)){K(lower)(form, x, y), K(vec_max_s)(v, w)};
}

/* Advances *x and returns the run before. The barrier hides the address from gcc, which would compute all addresses
 * first and spill them. */
DEEP_INLINE const unsigned char *K(next_run)(const unsigned char **x, ptrdiff_t stride)
{
    const unsigned char *const run = *x;
    *x += stride;
    __asm__("" : "+r"(*x));
    return run;
}

/* Two vectors of runs after the first step; *x advances by `stride` bytes for each. */
DEEP_INLINE struct K(extent) K(reduce_2)(enum bounds_form form, enum run_layout layout, int first,
                                         const unsigned char **x, ptrdiff_t stride, size_t length, ptrdiff_t ahead)
{
    const unsigned char *const a = K(next_run)(x, stride), *const b = K(next_run)(x, stride);
    if (layout == OVER_4_VECTORS || layout == OVER_2_VECTORS) {
        const struct K(extent) e = K(run_extent)(form, layout, a, length, ahead);
        return K(reduce_step)(form, first, 0, e, K(run_extent)(form, layout, b, length, ahead));
    }
    const vec v = K(load_as)(form, a, ahead);
    if (layout == OVER_1_VECTOR) {
        const size_t last = (length - LANES) * sizeof(BITS);
        const struct K(extent) e = K(extent_of)(form, v, K(load_as)(form, a + last, ahead));
        const vec w = K(load_as)(form, b, ahead);
        return K(reduce_step)(form, first, 0, e, K(extent_of)(form, w, K(load_as)(form, b + last, ahead)));
    }
    vec p, q; /* minima and maxima are the same vector up to here */
    K(vec_pair)(first, 0, v, K(load_as)(form, b, ahead), &p, &q);
    return K(extent_of)(form, p, q);
}

/* Twice as many runs each. */
#define REDUCE_TWICE(name, half, step)                                                                                 \
    DEEP_INLINE struct K(extent) name(enum bounds_form form, enum run_layout layout, int first,                        \
                                      const unsigned char **x, ptrdiff_t stride, size_t length, ptrdiff_t ahead)       \
    {                                                                                                                  \
        const struct K(extent) e = half(form, layout, first, x, stride, length, ahead);                                \
        return K(reduce_step)(form, first, step, e, half(form, layout, first, x, stride, length, ahead));              \
    }
REDUCE_TWICE(K(reduce_4), K(reduce_2), 1)
REDUCE_TWICE(K(reduce_8), K(reduce_4), 2)
REDUCE_TWICE(K(reduce_16), K(reduce_8), 3)
#undef REDUCE_TWICE

/* Half of so many vectors of runs. */
DEEP_INLINE struct K(extent)
    K(reduce_half)(int vectors, enum bounds_form form, enum run_layout layout, int first, const unsigned char **x,
                   ptrdiff_t stride, size_t length, ptrdiff_t ahead)
{
    if (vectors == 4)
        return K(reduce_2)(form, layout, first, x, stride, length, ahead);
    if (vectors == 8)
        return K(reduce_4)(form, layout, first, x, stride, length, ahead);
    if (vectors == 16)
        return K(reduce_8)(form, layout, first, x, stride, length, ahead);
    return K(reduce_16)(form, layout, first, x, stride, length, ahead);
}

/* Bounds of LANES runs from x on, in the order of the runs. If they fill 2 KB, both halves share their instructions: a
 * Zen 5 reads L2 at half its speed if each load advances by 2 KB (bench/notes/minmax-groups.md). */
DEEP_INLINE struct K(extent) K(reduce_runs)(enum bounds_form form, enum run_layout layout, const unsigned char *x,
                                            ptrdiff_t run_stride, size_t length, ptrdiff_t ahead)
{
    const int first = layout == HALF_VECTORS ? 1 : layout == QUARTER_VECTORS ? 2 : 0, vectors = (int)LANES >> first;
    const int run_vectors = layout == OVER_1_VECTOR ? 2 : layout > OVER_1_VECTOR ? 1 : 0; /* 0: more than 2 */
    const ptrdiff_t stride = first > 0 ? VEC_BYTES : run_stride;
    struct K(extent) half = {K(vec_splat)(0), K(vec_splat)(0)}, e = half;
    if (vectors * run_vectors * VEC_BYTES == 2048) {
        for (int halves = 2; halves > 0; halves--) {
            __asm__("" : "+r"(halves)); /* against unrolling */
            half = e;
            e = K(reduce_half)(vectors, form, layout, first, &x, stride, length, ahead);
        }
    } else {
        half = K(reduce_half)(vectors, form, layout, first, &x, stride, length, ahead);
        e = K(reduce_half)(vectors, form, layout, first, &x, stride, length, ahead);
    }
    e = K(reduce_step)(form, first, vectors == 4 ? 1 : vectors == 8 ? 2 : vectors == 16 ? 3 : 4, half, e);
    return (struct K(extent)){K(vec_order)(first, e.lo), K(vec_order)(first, e.hi)};
}

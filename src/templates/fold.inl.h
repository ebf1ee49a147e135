/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Bounds of as many short runs as a vector has lanes, by one transposed fold: an accumulator or a pair of them a run, of which
 * every step makes half as many with half as many lanes for each run. Included by minmax.inl.h and absmax.inl.h, where LANES is at
 * least 4: runs of 2 lanes gain nothing from a common fold.
 *
 * Vectors are loaded in the order of the memory, which decides about the speed there, and folded depth first, so that few wait.
 *
 * HAS_RAW: are raw bits tried? Unsigned comparison of 64 bits is no instruction everywhere. */

#include "base/sanitized.h"

/* What is unfolded into straight code; with the checks of a sanitizer in every step that would keep a compiler busy for minutes. */
#ifdef SANITIZED
#define UNFOLDED inline
#else
#define UNFOLDED inline __attribute__((always_inline))
#endif

/* How short runs lie in vectors. */
enum K(layout) {
    K(LONGER),  /* more than 4 vectors */
    K(FOUR),    /* more than 2, at most 4 */
    K(TWO),     /* more than 1 vector, at most 2 */
    K(WHOLE),   /* one vector */
    K(HALVES),  /* contiguous runs of half a vector */
    K(QUARTERS) /* contiguous runs of a quarter of a vector */
};

/* How they are accumulated and folded: as keys, or, where every run has elements of both signs, as raw bits. The largest as
 * signed is then the maximum and the largest as unsigned the minimum, and nothing is converted in the loop. Of magnitudes only the
 * greatest is looked for; the least are none. */
enum K(form) { K(KEYS), K(RAW), K(MAGNITUDES) };

/* Of any number of runs, each in some lanes. */
struct K(extent) {
    vec lo, hi;
};

static UNFOLDED vec K(load_as)(enum K(form) form, const void *p)
{
    const vec v = vec_load_in_turn(p);
    return form == K(RAW) ? v : form == K(KEYS) ? K(vec_key)(v) : vec_and(v, K(vec_splat)(MOST_POSITIVE));
}

static UNFOLDED vec K(lower)(enum K(form) form, vec a, vec b)
{
#if HAS_RAW
    if (form == K(RAW))
        return K(vec_max_u)(a, b);
#endif
    return form == K(KEYS) ? K(vec_min_s)(a, b) : a;
}

static UNFOLDED struct K(extent) K(extent_of)(enum K(form) form, vec a, vec b)
{
    return (struct K(extent)){K(lower)(form, a, b), K(vec_max_s)(a, b)};
}

static UNFOLDED void K(add)(enum K(form) form, struct K(extent) *e, vec v)
{
    e->lo = K(lower)(form, e->lo, v);
    e->hi = K(vec_max_s)(e->hi, v);
}

/* One run of more than 2 vectors. The last four may overlap, which changes no bound and needs no branches. */
static UNFOLDED struct K(extent) K(run_extent)(enum K(form) form, enum K(layout) layout, const unsigned char *x, size_t n)
{
    const unsigned char *const last = x + (n - LANES) * sizeof(BITS);
#define UP_TO_LAST(p) K(load_as)(form, (p) < last ? (p) : last)
    const vec v = K(load_as)(form, x), w = K(load_as)(form, x + VEC_BYTES);
    struct K(extent) e = {v, v}, f = {w, w};
    if (layout == K(LONGER)) {
        K(add)(form, &e, K(load_as)(form, x + 2 * VEC_BYTES));
        K(add)(form, &f, K(load_as)(form, x + 3 * VEC_BYTES));
        for (x += 4 * VEC_BYTES; x + 3 * VEC_BYTES < last; x += 4 * VEC_BYTES) {
            K(add)(form, &e, K(load_as)(form, x));
            K(add)(form, &f, K(load_as)(form, x + VEC_BYTES));
            K(add)(form, &e, K(load_as)(form, x + 2 * VEC_BYTES));
            K(add)(form, &f, K(load_as)(form, x + 3 * VEC_BYTES));
        }
        K(add)(form, &e, UP_TO_LAST(x));
        K(add)(form, &f, UP_TO_LAST(x + VEC_BYTES));
    }
    K(add)(form, &e, UP_TO_LAST(x + 2 * VEC_BYTES));
    K(add)(form, &f, K(load_as)(form, last));
#undef UP_TO_LAST
    return (struct K(extent)){K(lower)(form, e.lo, f.lo), K(vec_max_s)(e.hi, f.hi)};
}

/* One step of a transposed fold: of two vectors, one in which each run has half as many lanes. */
static UNFOLDED struct K(extent) K(fold)(enum K(form) form, int first, int step, struct K(extent) a, struct K(extent) b)
{
    vec x, y, v, w;
    K(vec_pair)(first, step, a.lo, b.lo, &x, &y);
    K(vec_pair)(first, step, a.hi, b.hi, &v, &w);
    return (struct K(extent)){K(lower)(form, x, y), K(vec_max_s)(v, w)};
}

/* Where the next run is. gcc knows nothing about it: it would compute all such addresses ahead and spill them. */
static UNFOLDED const unsigned char *K(next_run)(const unsigned char **x, ptrdiff_t stride)
{
    const unsigned char *const run = *x;
    *x += stride;
    __asm__("" : "+r"(*x));
    return run;
}

/* Two vectors' worth of runs, folded into one by the first step; *x goes on by them, `stride` bytes for each. */
static UNFOLDED struct K(extent) K(fold_2)(enum K(form) form, enum K(layout) layout, int first, const unsigned char **x,
                                           ptrdiff_t stride, size_t length)
{
    const unsigned char *const a = K(next_run)(x, stride), *const b = K(next_run)(x, stride);
    if (layout == K(LONGER) || layout == K(FOUR)) {
        const struct K(extent) e = K(run_extent)(form, layout, a, length);
        return K(fold)(form, first, 0, e, K(run_extent)(form, layout, b, length));
    }
    const vec v = K(load_as)(form, a);
    if (layout == K(TWO)) {
        const size_t last = (length - LANES) * sizeof(BITS);
        const struct K(extent) e = K(extent_of)(form, v, K(load_as)(form, a + last));
        const vec w = K(load_as)(form, b);
        return K(fold)(form, first, 0, e, K(extent_of)(form, w, K(load_as)(form, b + last)));
    }
    vec p, q; /* the bounds part only after the first pair is made */
    K(vec_pair)(first, 0, v, K(load_as)(form, b), &p, &q);
    return K(extent_of)(form, p, q);
}

/* Twice as many each. */
#define FOLD_TWICE(name, half, step)                                                                                       \
    static UNFOLDED struct K(extent) name(enum K(form) form, enum K(layout) layout, int first, const unsigned char **x,    \
                                          ptrdiff_t stride, size_t length)                                                 \
    {                                                                                                                      \
        const struct K(extent) e = half(form, layout, first, x, stride, length);                                           \
        return K(fold)(form, first, step, e, half(form, layout, first, x, stride, length));                                \
    }
FOLD_TWICE(K(fold_4), K(fold_2), 1)
FOLD_TWICE(K(fold_8), K(fold_4), 2)
FOLD_TWICE(K(fold_16), K(fold_8), 3)
FOLD_TWICE(K(fold_32), K(fold_16), 4)
#undef FOLD_TWICE

/* The bounds of LANES runs from x on, in their order. */
static UNFOLDED struct K(extent) K(fold_runs)(enum K(form) form, enum K(layout) layout, const unsigned char *x, ptrdiff_t run_stride,
                                              size_t length)
{
    const int first = layout == K(HALVES) ? 1 : layout == K(QUARTERS) ? 2 : 0, vectors = (int)LANES >> first;
    const ptrdiff_t stride = first > 0 ? VEC_BYTES : run_stride;
    struct K(extent) e;
    if (vectors == 4)
        e = K(fold_4)(form, layout, first, &x, stride, length);
    else if (vectors == 8)
        e = K(fold_8)(form, layout, first, &x, stride, length);
    else if (vectors == 16)
        e = K(fold_16)(form, layout, first, &x, stride, length);
    else
        e = K(fold_32)(form, layout, first, &x, stride, length);
    return (struct K(extent)){K(vec_order)(first, e.lo), K(vec_order)(first, e.hi)};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Bounds of as many short runs as a vector has lanes, by one transposed fold: an accumulator or a pair of them a run, of which
 * every step makes half as many with half as many lanes for each run. Included by minmax.inl.h and absmax.inl.h, where LANES is at
 * least 4: runs of 2 lanes gain nothing from a common fold.
 *
 * HAS_RAW: are raw bits tried? Unsigned comparison of 64 bits is no instruction everywhere. */

#include "sanitized.h"

/* What is unfolded into straight code; with the checks of a sanitizer in every step that would keep a compiler busy for minutes. */
#ifdef SANITIZED
#define UNFOLDED inline
#else
#define UNFOLDED inline __attribute__((always_inline))
#endif

/* How short runs lie in vectors. */
enum K(layout) {
    K(LONGER),  /* more than 2 vectors: one run after the other */
    K(VECTORS), /* more than 1 vector, at most 2: four runs abreast */
    K(WHOLE),   /* one vector */
    K(HALVES),  /* contiguous runs of half a vector */
    K(QUARTERS) /* contiguous runs of a quarter of a vector */
};

/* How they are accumulated and folded: as keys, or, where every run has elements of both signs, as raw bits. The largest as
 * signed is then the maximum and the largest as unsigned the minimum, and nothing is converted in the loop. Of magnitudes only the
 * greatest is looked for; the least are none. */
enum K(form) { K(KEYS), K(RAW), K(MAGNITUDES) };

static UNFOLDED vec K(load_as)(enum K(form) form, const void *p)
{
    const vec v = vec_load(p);
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

static UNFOLDED void K(add)(enum K(form) form, vec *lo, vec *hi, vec v)
{
    *lo = K(lower)(form, *lo, v);
    *hi = K(vec_max_s)(*hi, v);
}

/* One run of more than 2 vectors. */
static UNFOLDED void K(run_bounds)(enum K(form) form, const unsigned char *x, size_t n, vec *lo,
                                    vec *hi)
{
    const unsigned char *const last = x + (n - LANES) * sizeof(BITS);
    vec l = K(load_as)(form, x), h = l, m = K(load_as)(form, x + VEC_BYTES), g = m;
    for (x += 2 * VEC_BYTES; x + VEC_BYTES < last; x += 2 * VEC_BYTES) {
        K(add)(form, &l, &h, K(load_as)(form, x));
        K(add)(form, &m, &g, K(load_as)(form, x + VEC_BYTES));
    }
    if (x < last)
        K(add)(form, &l, &h, K(load_as)(form, x));
    l = K(lower)(form, l, m);
    h = K(vec_max_s)(h, g);
    K(add)(form, &l, &h, K(load_as)(form, last));
    *lo = l;
    *hi = h;
}

/* One step of a transposed fold: of two vectors, one in which each run has half as many lanes. */
static UNFOLDED void K(fold)(enum K(form) form, int step, vec *lo, vec *hi, vec m, vec g)
{
    vec x, y;
    K(vec_pair)(step, *lo, m, &x, &y);
    *lo = K(lower)(form, x, y);
    K(vec_pair)(step, *hi, g, &x, &y);
    *hi = K(vec_max_s)(x, y);
}

/* Four vectors' worth of runs, folded into one by the first two steps: two of them at x, `pair` bytes apart, and two `next` bytes
 * further on. */
static UNFOLDED void K(fold_4)(enum K(form) form, enum K(layout) layout, int first,
                                const unsigned char *x, ptrdiff_t pair, ptrdiff_t next,
                                size_t length, vec *lo, vec *hi)
{
    const unsigned char *const run[] = {x, x + pair, x + next, x + next + pair};
    vec l[4], h[4];
    if (layout == K(LONGER)) {
        K(run_bounds)(form, run[0], length, &l[0], &h[0]);
        K(run_bounds)(form, run[1], length, &l[1], &h[1]);
        K(run_bounds)(form, run[2], length, &l[2], &h[2]);
        K(run_bounds)(form, run[3], length, &l[3], &h[3]);
    } else if (layout == K(VECTORS)) {
        for (int i = 0; i < 4; i++) {
            l[i] = h[i] = K(load_as)(form, run[i]);
            K(add)(form, &l[i], &h[i], K(load_as)(form, run[i] + (length - LANES) * sizeof(BITS)));
        }
    } else { /* the bounds part only after the first pairs are made */
        for (int i = 0; i < 4; i += 2) {
            vec p, q;
            K(vec_pair)(first, K(load_as)(form, run[i]), K(load_as)(form, run[i + 1]), &p, &q);
            l[i] = K(lower)(form, p, q);
            h[i] = K(vec_max_s)(p, q);
        }
    }
    if (layout == K(LONGER) || layout == K(VECTORS))
        for (int i = 0; i < 4; i += 2)
            K(fold)(form, first, &l[i], &h[i], l[i + 1], h[i + 1]);
    K(fold)(form, first + 1, &l[0], &h[0], l[2], h[2]);
    *lo = l[0];
    *hi = h[0];
}

/* Twice as many: depth first, so that few vectors wait. */
static UNFOLDED void K(fold_8)(enum K(form) form, enum K(layout) layout, int first,
                                const unsigned char *x, ptrdiff_t pair, ptrdiff_t next,
                                size_t length, vec *lo, vec *hi)
{
    vec m, g;
    K(fold_4)(form, layout, first, x, pair, next, length, lo, hi);
    K(fold_4)(form, layout, first, x + 2 * next, pair, next, length, &m, &g);
    K(fold)(form, first + 2, lo, hi, m, g);
}

static UNFOLDED void K(fold_16)(enum K(form) form, enum K(layout) layout, int first,
                                 const unsigned char *x, ptrdiff_t pair, ptrdiff_t next,
                                 size_t length, vec *lo, vec *hi)
{
    vec m, g;
    K(fold_8)(form, layout, first, x, pair, next, length, lo, hi);
    K(fold_8)(form, layout, first, x + 4 * next, pair, next, length, &m, &g);
    K(fold)(form, first + 3, lo, hi, m, g);
}

static UNFOLDED void K(fold_32)(enum K(form) form, enum K(layout) layout, int first,
                                 const unsigned char *x, ptrdiff_t pair, ptrdiff_t next,
                                 size_t length, vec *lo, vec *hi)
{
    vec m, g;
    K(fold_16)(form, layout, first, x, pair, next, length, lo, hi);
    K(fold_16)(form, layout, first, x + 8 * next, pair, next, length, &m, &g);
    K(fold)(form, first + 4, lo, hi, m, g);
}

/* The bounds of LANES runs as keys or as magnitudes; false: in raw bits they are not to be had. */
static UNFOLDED bool K(fold_runs)(enum K(form) form, enum K(layout) layout,
                                   const unsigned char *x, ptrdiff_t pair, ptrdiff_t next,
                                   size_t length, vec *least, vec *greatest)
{
    const int first = layout == K(HALVES) ? 1 : layout == K(QUARTERS) ? 2 : 0, vectors = (int)LANES >> first;
    vec lo, hi;
    if (vectors == 4)
        K(fold_4)(form, layout, first, x, pair, next, length, &lo, &hi);
    else if (vectors == 8)
        K(fold_8)(form, layout, first, x, pair, next, length, &lo, &hi);
    else if (vectors == 16)
        K(fold_16)(form, layout, first, x, pair, next, length, &lo, &hi);
    else
        K(fold_32)(form, layout, first, x, pair, next, length, &lo, &hi);
    lo = K(vec_order)(first, lo);
    hi = K(vec_order)(first, hi);
    const vec zero = K(vec_splat)(0);
    *least = form == K(RAW) ? K(vec_key)(lo) : lo;
    *greatest = hi;
    return form != K(RAW) || !(K(vec_any_ge)(lo, zero) || K(vec_any_ge)(vec_not(hi), zero));
}

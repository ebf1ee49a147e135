/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Searches for the scales of the runs of a pack: each tries candidates and retains the one with the least weighted
 * error. Included by superblock.inl.h. */

/* The result for each run: the scale and, if there is one, the minimum. Codes of runs whose stored scale
 * becomes 0 are the nearest to code_scale * (x - code_minimum); NaN: they are 0. */
struct found {
    float scale[RUNS], minimum[RUNS], code_scale[RUNS], code_minimum[RUNS], weight[RUNS];
};

/* ---- Scale and minimum ------------------------------------------------------------------------------------------- */

/* The rounding of a candidate's codes: no limit above is reached; both limits; the same for numbers beyond 2^22. */
enum limits { WITHIN, LIMITED, FAR };

struct affine {
    f32v low, high, weight, weighted; /* of the elements: minimum, maximum, sums of weights and of weighted elements */
    f32v inverse, minimum, best, scale, code_scale, code_minimum;
    f32v l, ll, xl; /* sums of a candidate: codes, their squares, codes times elements, each weighted */
    f32v new_scale, new_minimum, error;
    f32v_mask flat, improves;
};

DEEP_INLINE f32v affine_code(enum limits limits, f32v t, int top)
{
    vec rounded = limits == FAR ? any_rounded(t) : (vec)(t + f32v_splat(ROUNDER));
    if (limits != WITHIN)
        rounded = vec_min_s32(rounded, s32_splat(ROUNDED + top));
    return rounded_number(vec_max_s32(rounded, s32_splat(ROUNDED)));
}

/* The sums of a candidate of TOGETHER vectors from v0 on; their codes go to the pack. */
ALWAYS_INLINE void affine_sums(enum limits limits, struct pack *p, int v0, int n, int top, struct affine *a)
{
    const float *const x = AT(p->x, v0), *const w = AT(p->w, v0);
    float *const code = AT(p->code, v0);
    f32v l[TOGETHER], ll[TOGETHER], xl[TOGETHER], inverse[TOGETHER], minimum[TOGETHER];
    EACH_LANES(v, TOGETHER)
    {
        l[v] = ll[v] = xl[v] = f32v_splat(0);
        inverse[v] = a[v].inverse;
        minimum[v] = a[v].minimum;
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < n; i++) EACH_LANES(v, TOGETHER)
    {
        const f32v e = LOAD(AT(x, v) + ROW * i), weight = LOAD(AT(w, v) + ROW * i);
        const f32v c = affine_code(limits, inverse[v] * (e - minimum[v]), top), wc = weight * c;
        STORE(AT(code, v) + ROW * i, c);
        l[v] += wc;
        ll[v] += wc * c;
        xl[v] += wc * e;
    }
    EACH_LANES(v, TOGETHER)
    {
        a[v].l = l[v];
        a[v].ll = ll[v];
        a[v].xl = xl[v];
    }
}

/* The error of a candidate with its new scale and minimum. */
ALWAYS_INLINE void affine_error(bool absolute, const struct pack *p, int v0, int n, struct affine *a)
{
    const float *const x = AT(p->x, v0), *const w = AT(p->w, v0), *const code = AT(p->code, v0);
    f32v error[TOGETHER], scale[TOGETHER], minimum[TOGETHER];
    EACH_LANES(v, TOGETHER)
    {
        error[v] = f32v_splat(0);
        scale[v] = a[v].new_scale;
        minimum[v] = a[v].new_minimum;
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < n; i++) EACH_LANES(v, TOGETHER)
    {
        const f32v d = scale[v] * LOAD(AT(code, v) + ROW * i) + minimum[v] - LOAD(AT(x, v) + ROW * i);
        const f32v size = absolute ? f32v_magnitude(d) : (f32v)(d * d);
        error[v] += LOAD(AT(w, v) + ROW * i) * size;
    }
    EACH_LANES(v, TOGETHER) a[v].error = error[v];
}

static inline void affine_errors(bool absolute, const struct pack *p, int n, struct affine *a)
{
    for (int v = 0; v < VECTORS; v += TOGETHER) {
        if (absolute)
            affine_error(true, p, v, n, a + v);
        else
            affine_error(false, p, v, n, a + v);
    }
}

static inline void affine_all_sums(enum limits limits, struct pack *p, int n, int top, struct affine *a)
{
    for (int v = 0; v < VECTORS; v += TOGETHER) {
        if (limits == WITHIN)
            affine_sums(WITHIN, p, v, n, top, a + v);
        else if (limits == LIMITED)
            affine_sums(LIMITED, p, v, n, top, a + v);
        else
            affine_sums(FAR, p, v, n, top, a + v);
    }
}

DEEP_INLINE void affine_begin(const float *x, const float *w, int n, struct affine *a)
{
    const f32v zero = f32v_splat(0);
    a->low = a->high = LOAD(x);
    a->weight = LOAD(w);
    a->weighted = LOAD(w) * LOAD(x);
    for (int i = 1; i < n; i++) {
        const f32v e = LOAD(x + ROW * i), weight = LOAD(w + ROW * i);
        a->low = f32v_min(e, a->low);
        a->high = f32v_max(e, a->high);
        a->weight += weight;
        a->weighted += weight * e;
    }
    a->minimum = f32v_choose(f32v_less(zero, a->low), zero, a->low);
    a->flat = f32v_equal(a->high, a->minimum);
}

/* Whether the codes of all lanes that count are in the range of ROUNDER. */
DEEP_INLINE bool affine_is_near(const struct affine *a)
{
    const f32v limit = f32v_splat(4194303.0f);
    const f32v low = f32v_magnitude(a->inverse * (a->low - a->minimum)),
               high = f32v_magnitude(a->inverse * (a->high - a->minimum));
    const f32v_mask near = (f32v_mask)(f32v_less(low, limit) & f32v_less(high, limit));
    const f32v_mask all = f32v_equal(limit, limit);
    return !f32v_any(f32v_without(f32v_without(all, a->flat), near));
}

/* The least squares of a candidate's codes; a minimum above 0 is 0. */
DEEP_INLINE void affine_solve(struct affine *a)
{
    const f32v zero = f32v_splat(0), determinant = a->weight * a->ll - a->l * a->l;
    a->improves = f32v_without(f32v_less(zero, determinant), a->flat);
    a->new_scale = (a->weight * a->xl - a->weighted * a->l) / determinant;
    a->new_minimum = (a->ll * a->weighted - a->l * a->xl) / determinant;
    const f32v_mask above = f32v_less(zero, a->new_minimum);
    if (f32v_any(above)) {
        a->new_minimum = f32v_unless(above, a->new_minimum);
        a->new_scale = f32v_choose(above, a->xl / a->ll, a->new_scale);
    }
}

DEEP_INLINE void affine_take(struct affine *a)
{
    const f32v_mask k = (f32v_mask)(a->improves & f32v_less(a->error, a->best));
    a->best = f32v_choose(k, a->error, a->best);
    a->code_scale = f32v_choose(k, a->inverse, a->code_scale);
    a->code_minimum = f32v_choose(k, a->minimum, a->code_minimum);
    a->scale = f32v_choose(k, a->new_scale, a->scale);
    a->minimum = f32v_choose(k, a->new_minimum, a->minimum);
}

/* The codes of the whole range are the first candidate, whose scale and minimum are not fitted. */
static inline bool affine_first(bool far, struct pack *p, int n, int top, bool absolute, struct affine *a)
{
    bool near = true;
    for (int v = 0; v < VECTORS; v++) {
        affine_begin(AT(p->x, v), AT(p->w, v), n, &a[v]);
        a[v].inverse = f32v_splat((float)top) / (a[v].high - a[v].minimum);
        a[v].scale = a[v].new_scale = f32v_splat(1) / a[v].inverse;
        a[v].new_minimum = a[v].minimum;
        a[v].code_scale = a[v].inverse;
        a[v].code_minimum = a[v].minimum;
        near &= affine_is_near(&a[v]);
    }
    affine_all_sums(far ? FAR : LIMITED, p, n, top, a);
    affine_errors(absolute, p, n, a);
    for (int v = 0; v < VECTORS; v++)
        a[v].best = a[v].error;
    return near;
}

/* Returns false if codes are far, unless `far` says so. */
static __attribute__((noinline)) bool affine_search(const struct gguf_search *s, bool far, struct pack *p, int n,
                                                    int top, struct affine *a)
{
    bool near = affine_first(far, p, n, top, s->absolute, a);
    for (int k = 0; k <= s->last && (near || far); k++) {
        const float range = s->first + s->step * (float)k + (float)top;
        for (int v = 0; v < VECTORS; v++) {
            a[v].inverse = f32v_splat(range) / (a[v].high - a[v].minimum);
            near &= affine_is_near(&a[v]);
        }
        affine_all_sums(far ? FAR : range < (float)top + 0.49f ? WITHIN : LIMITED, p, n, top, a);
        for (int v = 0; v < VECTORS; v++)
            affine_solve(&a[v]);
        affine_errors(s->absolute, p, n, a);
        for (int v = 0; v < VECTORS; v++)
            affine_take(&a[v]);
    }
    return near || far;
}

static inline void find_affine(const struct gguf_search *s, struct pack *p, int n, int top, struct found *f, size_t at)
{
    struct affine a[VECTORS];
    if (!affine_search(s, false, p, n, top, a))
        affine_search(s, true, p, n, top, a);
    for (int v = 0; v < VECTORS; v++) {
        const size_t to = at + (size_t)(v * LANES);
        STORE(f->scale + to, f32v_unless(a[v].flat, a[v].scale));
        STORE(f->minimum + to, -a[v].minimum);
        STORE(f->code_scale + to, f32v_unless(a[v].flat, a[v].code_scale));
        STORE(f->code_minimum + to, f32v_unless(a[v].flat, a[v].code_minimum));
    }
}

/* ---- A scale ----------------------------------------------------------------------------------------------------- */

struct signed_search {
    f32v magnitude, peak, scale, best, code_scale;
};

/* The largest magnitude of a run and the first element that has it. Weighted elements replace the codes. */
DEEP_INLINE void signed_begin(const float *x, const float *w, float *weighted, int n, struct signed_search *s)
{
    s->magnitude = s->peak = f32v_splat(0);
    for (int i = 0; i < n; i++) {
        const f32v e = LOAD(x + ROW * i), m = f32v_magnitude(e);
        s->peak = f32v_choose(f32v_less(s->magnitude, m), e, s->peak);
        s->magnitude = f32v_max(m, s->magnitude);
        STORE(weighted + ROW * i, LOAD(w + ROW * i) * e);
    }
}

/* Sums of `count` candidates: weighted elements times codes, and weighted squares of codes. */
ALWAYS_INLINE void signed_sums(int count, const float *x, const float *w, const float *weighted, int n, int low,
                               const f32v *inverse, f32v *xl, f32v *ll)
{
    _Pragma("GCC unroll 8") for (int c = 0; c < count; c++) xl[c] = ll[c] = f32v_splat(0);
    for (int i = 0; i < n; i++) {
        const f32v e = LOAD(x + ROW * i), weight = LOAD(w + ROW * i), we = LOAD(weighted + ROW * i);
        _Pragma("GCC unroll 8") for (int c = 0; c < count; c++)
        {
            const vec rounded = (vec)(inverse[c] * e + f32v_splat(ROUNDER));
            const f32v l = rounded_number(rounded_limited(rounded, -low, low - 1));
            xl[c] += we * l;
            ll[c] += weight * l * l;
        }
    }
}

/* Codes from -low to low - 1. The first candidate makes the peak the lowest one; the others are near. */
static __attribute__((noinline)) void signed_search(const float *x, const float *w, float *weighted, int n, int low,
                                                    struct signed_search *s)
{
    const f32v zero = f32v_splat(0);
    f32v inverse[CANDIDATES], xl[CANDIDATES], ll[CANDIDATES];
    signed_begin(x, w, weighted, n, s);
    inverse[0] = s->code_scale = f32v_splat(-(float)low) / s->peak;
    signed_sums(1, x, w, weighted, n, low, inverse, xl, ll);
    s->scale = f32v_unless(f32v_equal(ll[0], zero), xl[0] / ll[0]);
    s->best = s->scale * xl[0];
    for (int k = 0; k < 18; k += CANDIDATES) {
        for (int c = 0; c < CANDIDATES; c++)
            inverse[c] = f32v_splat(-((float)low + 0.1f * (float)(k + c - 9 + (k + c >= 9)))) / s->peak;
        signed_sums(CANDIDATES, x, w, weighted, n, low, inverse, xl, ll);
        for (int c = 0; c < CANDIDATES; c++) {
            const f32v_mask better = (f32v_mask)(f32v_less(zero, ll[c]) & f32v_less(s->best * ll[c], xl[c] * xl[c]));
            const f32v scale = xl[c] / ll[c];
            s->scale = f32v_choose(better, scale, s->scale);
            s->best = f32v_choose(better, scale * xl[c], s->best);
            s->code_scale = f32v_choose(better, inverse[c], s->code_scale);
        }
    }
    const f32v_mask none = f32v_less(s->magnitude, f32v_splat(TINY));
    s->scale = f32v_unless(none, s->scale);
    s->code_scale = f32v_choose(none, f32v_splat(NAN), s->code_scale);
}

static inline void find_signed(struct pack *p, int n, int low, struct found *f, size_t at)
{
    for (int v = 0; v < VECTORS; v++) {
        struct signed_search s;
        signed_search(AT(p->x, v), AT(p->w, v), AT(p->code, v), n, low, &s);
        STORE(f->scale + at + (size_t)(v * LANES), s.scale);
        STORE(f->code_scale + at + (size_t)(v * LANES), s.code_scale);
    }
}

/* ---- Codes one by one -------------------------------------------------------------------------------------------- */

struct descent {
    f32v xl, ll; /* sums of weighted elements times codes, and of weighted squares of codes */
};

/* Moves an element to the code that is best for the sums of the others. Returns the lanes of `moving` that change. */
DEEP_INLINE f32v_mask descend(struct descent *s, f32v_mask moving, f32v e, f32v weight, float *code, int low)
{
    const f32v zero = f32v_splat(0), l = LOAD(code), we = weight * e;
    const f32v xl = s->xl - we * l, ll = s->ll - weight * l * l;
    const f32v next = rounded_number(rounded_limited(any_rounded(e * ll / xl), -low, low - 1));
    const f32v new_xl = xl + we * next, new_ll = ll + weight * next * next;
    const f32v_mask better =
        (f32v_mask)(f32v_less(zero, new_ll) & f32v_less(s->xl * s->xl * new_ll, new_xl * new_xl * s->ll));
    const f32v_mask moves = (f32v_mask)(f32v_without(f32v_less(zero, xl), f32v_equal(next, l)) & better & moving);
    STORE(code, f32v_choose(moves, next, l));
    s->xl = f32v_choose(moves, new_xl, s->xl);
    s->ll = f32v_choose(moves, new_ll, s->ll);
    return moves;
}

/* Elements are weighed by their squares. Codes, from -low to low - 1, remain in `code`. */
static __attribute__((noinline)) void descent_search(const float *x, const float *w, float *code, int n, int low,
                                                     struct signed_search *found)
{
    const f32v zero = f32v_splat(0);
    struct descent s = {zero, zero};
    signed_begin(x, w, code, n, found);
    const f32v inverse = f32v_splat(-(float)low) / found->peak;
    const f32v_mask none = f32v_less(found->magnitude, f32v_splat(TINY));
    for (int i = 0; i < n; i++) {
        const f32v e = LOAD(x + ROW * i), weight = LOAD(w + ROW * i);
        const f32v l = rounded_number(rounded_limited(any_rounded(inverse * e), -low, low - 1));
        STORE(code + ROW * i, l);
        s.xl += weight * e * l;
        s.ll += weight * l * l;
    }
    f32v_mask moving = f32v_without(f32v_equal(zero, zero), none);
    for (int round = 0; round < 5 && f32v_any(moving); round++) {
        f32v_mask moved = f32v_less(zero, zero);
        for (int i = 0; i < n; i++)
            moved = (f32v_mask)(moved | descend(&s, moving, LOAD(x + ROW * i), LOAD(w + ROW * i), code + ROW * i, low));
        moving = moved;
    }
    found->scale = f32v_unless(none, f32v_if(f32v_less(zero, s.ll), s.xl / s.ll));
    found->code_scale = f32v_choose(none, f32v_splat(NAN), zero);
}

static inline void find_descent(struct pack *p, int n, int low, struct found *f, size_t at)
{
    for (int v = 0; v < VECTORS; v++) {
        struct signed_search s;
        descent_search(AT(p->x, v), AT(p->w, v), AT(p->code, v), n, low, &s);
        STORE(f->scale + at + (size_t)(v * LANES), s.scale);
        STORE(f->code_scale + at + (size_t)(v * LANES), s.code_scale);
    }
}

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

static __attribute__((noinline)) void affine_errors(bool absolute, const struct pack *p, int v0, int n,
                                                    struct affine *a)
{
    if (absolute)
        affine_error(true, p, v0, n, a);
    else
        affine_error(false, p, v0, n, a);
}

static __attribute__((noinline)) void affine_any_sums(enum limits limits, struct pack *p, int v0, int n, int top,
                                                      struct affine *a)
{
    if (limits == WITHIN)
        affine_sums(WITHIN, p, v0, n, top, a);
    else if (limits == LIMITED)
        affine_sums(LIMITED, p, v0, n, top, a);
    else
        affine_sums(FAR, p, v0, n, top, a);
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

/* The scale of the codes of the next candidate. Returns whether they are near. */
DEEP_INLINE bool affine_aim(float range, struct affine *a)
{
    bool near = true;
    EACH_LANES(v, TOGETHER)
    {
        a[v].inverse = f32v_splat(range) / (a[v].high - a[v].minimum);
        near &= affine_is_near(&a[v]);
    }
    return near;
}

/* The codes of the whole range are the first candidate, whose scale and minimum are not fitted. */
static inline bool affine_first(bool far, bool absolute, struct pack *p, int v0, int n, int top, struct affine *a)
{
    EACH_LANES(v, TOGETHER) affine_begin(AT(p->x, v0 + v), AT(p->w, v0 + v), n, &a[v]);
    const bool near = affine_aim((float)top, a);
    EACH_LANES(v, TOGETHER)
    {
        a[v].scale = a[v].new_scale = f32v_splat(1) / a[v].inverse;
        a[v].new_minimum = a[v].minimum;
        a[v].code_scale = a[v].inverse;
        a[v].code_minimum = a[v].minimum;
    }
    affine_any_sums(far ? FAR : LIMITED, p, v0, n, top, a);
    affine_errors(absolute, p, v0, n, a);
    EACH_LANES(v, TOGETHER) a[v].best = a[v].error;
    return near;
}

/* Returns false if codes are far, unless `far` says so. Groups of vectors go in turns, so that the divisions of one
 * are made beside the sums of the other. */
static __attribute__((noinline)) bool affine_search(const struct gguf_search *s, bool far, struct pack *p, int n,
                                                    int top, struct affine *a)
{
    bool near = true;
    for (int v = 0; v < VECTORS; v += TOGETHER) {
        near &= affine_first(far, s->absolute, p, v, n, top, a + v);
        near &= affine_aim(s->first + (float)top, a + v);
    }
    for (int k = 0; k <= s->last && (near || far); k++) {
        const float range = s->first + s->step * (float)k + (float)top,
                    next = s->first + s->step * (float)(k + 1) + (float)top;
        for (int v = 0; v < VECTORS; v += TOGETHER) {
            affine_any_sums(far ? FAR : range < (float)top + 0.49f ? WITHIN : LIMITED, p, v, n, top, a + v);
            EACH_LANES(u, TOGETHER) affine_solve(a + v + u);
        }
        for (int v = 0; v < VECTORS; v += TOGETHER) {
            affine_errors(s->absolute, p, v, n, a + v);
            EACH_LANES(u, TOGETHER) affine_take(a + v + u);
            near &= affine_aim(next, a + v);
        }
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

enum { CANDIDATES_ALL = 19, FIRST = 9, SETS = 3 };

struct signed_search {
    f32v magnitude, peak, scale, best, code_scale;
    f32v inverse[CANDIDATES_ALL], xl[CANDIDATES_ALL], ll[CANDIDATES_ALL];
};

/* The largest magnitude of a run and the first element that has it. Weighted elements replace the codes. */
DEEP_INLINE void signed_begin(int vectors, const float *x, const float *w, float *weighted, int n,
                              struct signed_search *s)
{
    f32v magnitude[VECTORS], peak[VECTORS];
    EACH_LANES(v, vectors) magnitude[v] = peak[v] = f32v_splat(0);
    for (int i = 0; i < n; i++)
        EACH_LANES(v, vectors)
        {
            const f32v e = LOAD(AT(x, v) + ROW * i), m = f32v_magnitude(e);
            peak[v] = f32v_choose(f32v_less(magnitude[v], m), e, peak[v]);
            magnitude[v] = f32v_max(m, magnitude[v]);
            STORE(AT(weighted, v) + ROW * i, LOAD(AT(w, v) + ROW * i) * e);
        }
    EACH_LANES(v, vectors)
    {
        s[v].magnitude = magnitude[v];
        s[v].peak = peak[v];
    }
}

/* Candidate c of the inverse of a scale makes the peak -(low + 0.1 * (c - 9)), which is limited to the codes from -low
 * to low - 1. Elements are turned to make peaks negative, and limited before they are scaled: a limit becomes its code,
 * less than 0.4 beside it, for all candidates that share the elements. */
struct turned {
    _Alignas(64) float x[SETS][TALLEST * LANES]; /* for candidates up to 3, up to 11, and the others */
};

static inline void turn(const float *x, int n, int low, const struct signed_search *s, struct turned *t)
{
    const u32v sign = ~(u32v)s->peak & 0x80000000;
    const float bound = (float)low;
    const f32v second = f32v_splat((bound - 1) / (bound - 0.15f)) * s->magnitude,
               third = f32v_splat((bound - 1) / (bound + 0.6f)) * s->magnitude,
               bottom = f32v_splat(-bound / (bound + 0.6f)) * s->magnitude;
    for (int i = 0; i < n; i++) {
        const f32v e = (f32v)((u32v)LOAD(x + ROW * i) ^ sign);
        STORE(t->x[0] + LANES * i, e);
        STORE(t->x[1] + LANES * i, f32v_min(e, second));
        STORE(t->x[2] + LANES * i, f32v_max(f32v_min(e, third), bottom));
    }
}

/* Sums of `count` candidates: weighted elements times codes, and weighted squares of codes. */
ALWAYS_INLINE void signed_sums(int count, const float *x, const float *w, const float *weighted, int n, int at,
                               struct signed_search *s)
{
    f32v xl[CANDIDATES], ll[CANDIDATES];
    _Pragma("GCC unroll 8") for (int c = 0; c < count; c++) xl[c] = ll[c] = f32v_splat(0);
    for (int i = 0; i < n; i++) {
        const f32v e = LOAD(x + LANES * i), weight = LOAD(w + ROW * i), we = LOAD(weighted + ROW * i);
        _Pragma("GCC unroll 8") for (int c = 0; c < count; c++)
        {
            const f32v l = rounded_number((vec)(s->inverse[at + c] * e + f32v_splat(ROUNDER)));
            xl[c] += we * l;
            ll[c] += weight * l * l;
        }
    }
    _Pragma("GCC unroll 8") for (int c = 0; c < count; c++)
    {
        s->xl[at + c] = xl[c];
        s->ll[at + c] = ll[c];
    }
}

static __attribute__((noinline)) void signed_all_sums(const float *x, const float *w, const float *weighted, int n,
                                                      int low, struct signed_search *s)
{
    struct turned t;
    turn(x, n, low, s, &t);
    signed_sums(4, t.x[0], w, weighted, n, 0, s);
    for (int c = 4; c < 12; c += CANDIDATES)
        signed_sums(CANDIDATES, t.x[1], w, weighted, n, c, s);
    if (CANDIDATES == 4)
        signed_sums(4, t.x[2], w, weighted, n, 12, s);
    signed_sums(CANDIDATES - 1, t.x[2], w, weighted, n, CANDIDATES_ALL - CANDIDATES + 1, s);
}

DEEP_INLINE void signed_aim(int low, struct signed_search *s)
{
    for (int c = 0; c < CANDIDATES_ALL; c++)
        s->inverse[c] = f32v_splat((float)low + 0.1f * (float)(c - FIRST)) / s->magnitude;
}

DEEP_INLINE void signed_take(int vectors, struct signed_search *s)
{
    const f32v zero = f32v_splat(0);
    f32v best[VECTORS] = {zero}, scale[VECTORS] = {zero}, inverse[VECTORS] = {zero}; /* builds for size ask for it */
    EACH_LANES(v, vectors)
    {
        inverse[v] = s[v].inverse[FIRST];
        scale[v] = f32v_unless(f32v_equal(s[v].ll[FIRST], zero), s[v].xl[FIRST] / s[v].ll[FIRST]);
        best[v] = scale[v] * s[v].xl[FIRST];
    }
    for (int c = 0; c < CANDIDATES_ALL; c += c == FIRST - 1 ? 2 : 1)
        EACH_LANES(v, vectors)
        {
            const f32v xl = s[v].xl[c], ll = s[v].ll[c], new_scale = xl / ll;
            const f32v_mask better = (f32v_mask)(f32v_less(zero, ll) & f32v_less(best[v] * ll, xl * xl));
            scale[v] = f32v_choose(better, new_scale, scale[v]);
            best[v] = f32v_choose(better, new_scale * xl, best[v]);
            inverse[v] = f32v_choose(better, s[v].inverse[c], inverse[v]);
        }
    EACH_LANES(v, vectors)
    {
        const f32v_mask none = f32v_less(s[v].magnitude, f32v_splat(TINY));
        s[v].scale = f32v_unless(none, scale[v]);
        s[v].code_scale =
            f32v_choose(none, f32v_splat(NAN), (f32v)((u32v)inverse[v] ^ (~(u32v)s[v].peak & 0x80000000)));
    }
}

/* Divisions for one vector are made beside the sums of the one before. */
ALWAYS_INLINE void signed_search(int vectors, const float *x, const float *w, float *weighted, int n, int low,
                                 struct signed_search *s)
{
    signed_begin(vectors, x, w, weighted, n, s);
    signed_aim(low, s);
    for (int v = 0; v < vectors; v++) {
        if (v + 1 < vectors)
            signed_aim(low, s + v + 1);
        signed_all_sums(AT(x, v), AT(w, v), AT(weighted, v), n, low, s + v);
    }
    signed_take(vectors, s);
}

static inline void find_signed(struct pack *p, int n, int low, struct found *f, size_t at)
{
    struct signed_search s[VECTORS];
    signed_search(VECTORS, p->x, p->w, p->code, n, low, s);
    for (int v = 0; v < VECTORS; v++) {
        STORE(f->scale + at + (size_t)(v * LANES), s[v].scale);
        STORE(f->code_scale + at + (size_t)(v * LANES), s[v].code_scale);
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
    const f32v_mask others = (f32v_mask)(f32v_without(f32v_less(zero, xl), f32v_equal(next, l)) & moving);
    if (!f32v_any(others))
        return others;
    const f32v new_xl = xl + we * next, new_ll = ll + weight * next * next;
    const f32v_mask better =
        (f32v_mask)(f32v_less(zero, new_ll) & f32v_less(s->xl * s->xl * new_ll, new_xl * new_xl * s->ll));
    const f32v_mask moves = (f32v_mask)(others & better);
    STORE(code, f32v_choose(moves, next, l));
    s->xl = f32v_choose(moves, new_xl, s->xl);
    s->ll = f32v_choose(moves, new_ll, s->ll);
    return moves;
}

/* The nearest codes of peaks that become the lowest one, and their sums. */
DEEP_INLINE void descent_begin(int vectors, const float *x, const float *w, float *code, int n, int low,
                               const struct signed_search *found, struct descent *s)
{
    f32v inverse[VECTORS];
    EACH_LANES(v, vectors)
    {
        s[v] = (struct descent){f32v_splat(0), f32v_splat(0)};
        inverse[v] = f32v_splat(-(float)low) / found[v].peak;
    }
    for (int i = 0; i < n; i++)
        EACH_LANES(v, vectors)
        {
            const f32v e = LOAD(AT(x, v) + ROW * i), weight = LOAD(AT(w, v) + ROW * i);
            const f32v l = rounded_number(rounded_limited(any_rounded(inverse[v] * e), -low, low - 1));
            STORE(AT(code, v) + ROW * i, l);
            s[v].xl += weight * e * l;
            s[v].ll += weight * l * l;
        }
}

/* Elements are weighed by their squares. Codes, from -low to low - 1, remain in `code`. Vectors go in turns, because a
 * move waits for the one before. */
ALWAYS_INLINE void descent_search(int vectors, const float *x, const float *w, float *code, int n, int low,
                                  struct signed_search *found)
{
    const f32v zero = f32v_splat(0);
    struct descent s[VECTORS];
    const f32v_mask none_yet = f32v_less(zero, zero);
    f32v_mask moving[VECTORS] = {none_yet}, moved[VECTORS] = {none_yet}, any = f32v_equal(zero, zero);
    signed_begin(vectors, x, w, code, n, found);
    descent_begin(vectors, x, w, code, n, low, found, s);
    EACH_LANES(v, vectors) moving[v] = f32v_without(any, f32v_less(found[v].magnitude, f32v_splat(TINY)));
    for (int round = 0; round < 5 && f32v_any(any); round++) {
        EACH_LANES(v, vectors) moved[v] = none_yet;
        for (int i = 0; i < n; i++)
            EACH_LANES(v, vectors)
            {
                const f32v e = LOAD(AT(x, v) + ROW * i), weight = LOAD(AT(w, v) + ROW * i);
                moved[v] = (f32v_mask)(moved[v] | descend(&s[v], moving[v], e, weight, AT(code, v) + ROW * i, low));
            }
        any = none_yet;
        EACH_LANES(v, vectors)
        {
            moving[v] = moved[v];
            any = (f32v_mask)(any | moved[v]);
        }
    }
    EACH_LANES(v, vectors)
    {
        const f32v_mask none = f32v_less(found[v].magnitude, f32v_splat(TINY));
        found[v].scale = f32v_unless(none, f32v_if(f32v_less(zero, s[v].ll), s[v].xl / s[v].ll));
        found[v].code_scale = f32v_choose(none, f32v_splat(NAN), zero);
    }
}

static inline void find_descent(struct pack *p, int n, int low, struct found *f, size_t at)
{
    struct signed_search s[VECTORS];
    descent_search(VECTORS, p->x, p->w, p->code, n, low, s);
    for (int v = 0; v < VECTORS; v++) {
        STORE(f->scale + at + (size_t)(v * LANES), s[v].scale);
        STORE(f->code_scale + at + (size_t)(v * LANES), s[v].code_scale);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Searches for the scale, or scale and minimum, of the least error sum h * (x - y)^2 of a run. y is the nearest of the
 * numbers number * scale - minimum. Lanes are runs. Included by superblock.inl.h.
 *
 * Let r(s) be the root of the error at scale s, and q the numbers that the run has at s. At a larger scale t the same
 * numbers cost at most r(s) + (t - s) * |q|, where |q| * s is at most |x| + r(s). A scale with an error below `best` is
 * thus at most t * (|x| + b) / (|x| + r(t)), b the root of `best`: all between are left out. The minimum has such a
 * bound, too: r changes by at most the root of sum h times the change. Nothing but rounding of sums in float separates
 * the result from that of all candidates. */

/* The numbers that a run is rounded to. */
enum run_numbers { RUN_INTEGERS, RUN_CODEBOOK, RUN_E2M1, RUN_SIGNS };

/* Runs in lanes, with their numbers. The units of elements and weights are powers of 2 for each block. */
struct runs {
    _Alignas(64) float x[ROW * GGUF_MOST_ELEMENTS];
    float h[ROW * GGUF_MOST_ELEMENTS];
    enum run_numbers numbers;
    int n, low, high; /* of integers */
    float most;       /* the largest magnitude of a number */
    struct codebook book;
};

/* Scales that are stored: floats without the low bits `dropped`, from `least` to `top`, of which those below `normal`
 * are multiples of `least`; with `multiples` those of `least`. Each lane has a unit of them. */
struct lattice {
    uint32_t dropped;
    float normal, least, top;
    bool multiples;
};

/* The least error of each lane up to now, and the scale and minimum that have it. */
struct lane_best {
    float error[ROW], scale[ROW], minimum[ROW];
};

#define ROUNDING 0x1p-16f /* no error is wrong by more, relative to it */

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

DEEP_INLINE f32v rounded(f32v v) { return (v + f32v_splat(ROUNDER)) - f32v_splat(ROUNDER); }

/* Numbers are from 0 to 2^22. */
DEEP_INLINE f32v floored(f32v v)
{
    const f32v r = rounded(v);
    return r - f32v_if(f32v_less(v, r), f32v_splat(1));
}

/* Magnitudes of e2m1, doubled: those from 4 on are 2 apart, from 8 on 4. */
DEEP_INLINE f32v e2m1_number(f32v v)
{
    const f32v limited = f32v_min(v, f32v_splat(12));
    const f32v_mask first = f32v_less(limited, f32v_splat(4)), second = f32v_less(limited, f32v_splat(8));
    const f32v step = f32v_choose(first, f32v_splat(1), f32v_choose(second, f32v_splat(2), f32v_splat(4)));
    const f32v inverse = f32v_choose(first, f32v_splat(1), f32v_choose(second, f32v_splat(0.5f), f32v_splat(0.25f)));
    return rounded(limited * inverse) * step;
}

/* The number nearest to v; of E2M1 and SIGNS magnitudes to magnitudes. */
DEEP_INLINE f32v run_number(enum run_numbers numbers, const struct runs *r, f32v v)
{
    if (numbers == RUN_CODEBOOK)
        return codebook_number(&r->book, v);
    if (numbers == RUN_E2M1)
        return e2m1_number(v);
    if (numbers == RUN_SIGNS)
        return f32v_splat(1);
    return rounded(f32v_min(f32v_max(v, f32v_splat((float)r->low)), f32v_splat((float)r->high)));
}

DEEP_INLINE f32v inverse_of(f32v scale)
{
    const f32v_mask none = f32v_equal(scale, f32v_splat(0));
    return f32v_unless(none, f32v_splat(1) / f32v_choose(none, f32v_splat(1), scale));
}

/* The error of the runs of vector v. */
ALWAYS_INLINE f32v error_of(enum run_numbers numbers, const struct runs *r, int v, f32v scale, f32v minimum)
{
    const float *const x = r->x + LANES * v, *const h = r->h + LANES * v;
    const f32v inverse = inverse_of(scale);
    f32v sum[2] = {f32v_splat(0), f32v_splat(0)};
    for (int i = 0; i < r->n; i += 2)
        _Pragma("GCC unroll 2") for (int k = 0; k < 2; k++)
        {
            const f32v given = LOAD(x + ROW * (i + k)) + minimum;
            const f32v e = numbers == RUN_E2M1 || numbers == RUN_SIGNS ? f32v_magnitude(given) : given;
            const f32v d = e - scale * run_number(numbers, r, e * inverse);
            sum[k] += LOAD(h + ROW * (i + k)) * (d * d);
        }
    return sum[0] + sum[1];
}

static __attribute__((noinline)) f32v run_error(const struct runs *r, int v, f32v scale, f32v minimum)
{
    switch (r->numbers) {
    case RUN_CODEBOOK:
        return error_of(RUN_CODEBOOK, r, v, scale, minimum);
    case RUN_E2M1:
        return error_of(RUN_E2M1, r, v, scale, minimum);
    case RUN_SIGNS:
        return error_of(RUN_SIGNS, r, v, scale, minimum);
    default:
        return error_of(RUN_INTEGERS, r, v, scale, minimum);
    }
}

/* Takes what is better in the lanes of `which`. */
DEEP_INLINE void take_better(struct lane_best *best, int v, f32v_mask which, f32v error, f32v scale, f32v minimum)
{
    float *const e = best->error + LANES * v, *const s = best->scale + LANES * v, *const m = best->minimum + LANES * v;
    const f32v_mask better = (f32v_mask)(which & f32v_less(error, LOAD(e)));
    STORE(e, f32v_choose(better, error, LOAD(e)));
    STORE(s, f32v_choose(better, scale, LOAD(s)));
    STORE(m, f32v_choose(better, minimum, LOAD(m)));
}

/* Sums of a run that its best scale and minimum do not change. */
struct run_sums {
    float h[ROW], hx[ROW], norm[ROW];      /* norm: the root of sum h * x * x */
    float low[ROW], high[ROW], sides[ROW]; /* the range, and what elements at its ends cost at least, see below */
};

static void sum_runs(const struct runs *r, struct run_sums *s)
{
    EACH_LANES(v, F32X16_PARTS)
    {
        const float *const x = r->x + LANES * v, *const w = r->h + LANES * v;
        f32v h = f32v_splat(0), hx = h, hxx = h, low = LOAD(x), high = low, of_low = LOAD(w), of_high = of_low;
        for (int i = 0; i < r->n; i++) {
            const f32v e = LOAD(x + ROW * i), weight = LOAD(w + ROW * i);
            h += weight;
            hx += weight * e;
            hxx += weight * (e * e);
            of_low = f32v_choose(f32v_less(e, low), weight, of_low);
            of_high = f32v_choose(f32v_less(high, e), weight, of_high);
            low = f32v_min(e, low);
            high = f32v_max(e, high);
        }
        STORE(s->h + LANES * v, h);
        STORE(s->hx + LANES * v, hx);
        STORE(s->norm + LANES * v, f32v_sqrt(hxx));
        STORE(s->low + LANES * v, low);
        STORE(s->high + LANES * v, high);
        STORE(s->sides + LANES * v, of_low * of_high / (of_low + of_high));
    }
}

/* ---- One scale --------------------------------------------------------------------------------------------------- */

/* The largest scale of a lattice that is not above t. */
DEEP_INLINE f32v lattice_below(const struct lattice *l, f32v unit, f32v t)
{
    if (l->multiples)
        return floored(t / unit) * unit;
    const f32v normal = f32v_splat(l->normal) * unit, raise = f32v_if(f32v_less(t, normal), normal);
    return (f32v)((u32v)(t + raise) & ~l->dropped) - raise;
}

/* No scale below has an error below `best`, because it clips one element too much. */
DEEP_INLINE f32v least_scale(const struct runs *r, int v, f32v best)
{
    const f32v b = best * f32v_splat(1 + ROUNDING);
    f32v least = f32v_splat(0);
    for (int i = 0; i < r->n; i++) {
        const f32v e = f32v_magnitude(LOAD(r->x + ROW * i + LANES * v)), h = LOAD(r->h + ROW * i + LANES * v);
        const f32v_mask counts = f32v_less(f32v_splat(0), h);
        least = f32v_max(f32v_if(counts, e - f32v_sqrt(b / f32v_choose(counts, h, f32v_splat(1)))), least);
    }
    return least * f32v_splat((1 - ROUNDING) / r->most);
}

/* Tries the scales of a lattice from the largest down, times `sign`, which is a unit as well. */
ALWAYS_INLINE void march(enum run_numbers numbers, const struct runs *r, const struct run_sums *sums,
                         const struct lattice *l, const float *units, float sign, struct lane_best *best, int v)
{
    const f32v one = f32v_splat(1), zero = f32v_splat(0), norm = LOAD(sums->norm + LANES * v);
    const f32v signs = f32v_choose(f32v_signs(LOAD(units + LANES * v)), f32v_splat(-sign), f32v_splat(sign));
    const f32v unit = f32v_magnitude(LOAD(units + LANES * v));
    const f32v magnitude = f32v_max(LOAD(sums->high + LANES * v), zero - LOAD(sums->low + LANES * v));
    const f32v least = f32v_max(f32v_max(f32v_splat(l->least * 0.75f) * unit, f32v_splat(0x1p-100f)),
                                least_scale(r, v, LOAD(best->error + LANES * v)));
    const f32v_mask open = (f32v_mask)(f32v_less(zero, LOAD(best->error + LANES * v)) & f32v_less(zero, unit));
    f32v t = lattice_below(l, f32v_choose(open, unit, one), f32v_min(magnitude + magnitude, f32v_splat(l->top) * unit));
    f32v_mask active = (f32v_mask)(open & f32v_less(least, t));
    while (f32v_any(active)) {
        const f32v scale = f32v_choose(active, t, one), error = error_of(numbers, r, v, signs * scale, zero);
        take_better(best, v, active, error, signs * scale, zero);
        const f32v b = f32v_sqrt(LOAD(best->error + LANES * v));
        const f32v root = f32v_max(f32v_sqrt(error) * f32v_splat(1 - ROUNDING), b);
        const f32v next = f32v_choose(active, t * (norm + b) / (norm + root), one);
        t = lattice_below(l, f32v_choose(active, unit, one), f32v_min(next, t * f32v_splat(1 - 0x1p-12f)));
        active = (f32v_mask)(active & f32v_less(least, t));
    }
}

static __attribute__((noinline)) void search_scale(const struct runs *r, const struct run_sums *sums,
                                                   const struct lattice *l, const float *unit, float sign,
                                                   struct lane_best *best)
{
    for (int v = 0; v < F32X16_PARTS; v++)
        switch (r->numbers) {
        case RUN_CODEBOOK:
            march(RUN_CODEBOOK, r, sums, l, unit, sign, best, v);
            break;
        case RUN_E2M1:
            march(RUN_E2M1, r, sums, l, unit, sign, best, v);
            break;
        case RUN_SIGNS:
            march(RUN_SIGNS, r, sums, l, unit, sign, best, v);
            break;
        default:
            march(RUN_INTEGERS, r, sums, l, unit, sign, best, v);
        }
}

/* ---- Scale and minimum ------------------------------------------------------------------------------------------- */

/* Two elements cost at least sides * (what their distance is beyond the range of the numbers)^2. */
DEEP_INLINE f32v least_clipped(f32v span, f32v sides, f32v range)
{
    const f32v beyond = f32v_max(span - range, f32v_splat(0));
    return sides * (beyond * beyond) * f32v_splat(1 - ROUNDING);
}

/* Tries all pairs of integers from `most` down for the units of scale and minimum. Units of 0 have the integer 0. */
static __attribute__((noinline)) void search_pairs(const struct runs *r, const struct run_sums *sums, float most,
                                                   const float *scale_unit, const float *minimum_unit,
                                                   struct lane_best *best)
{
    const f32v one = f32v_splat(1), zero = f32v_splat(0), top = f32v_splat(most);
    for (int v = 0; v < F32X16_PARTS; v++) {
        const f32v unit = LOAD(scale_unit + LANES * v), of_minimum = LOAD(minimum_unit + LANES * v);
        const f32v_mask has_minimum = f32v_less(zero, of_minimum);
        const f32v first = f32v_if(has_minimum, top), sides = LOAD(sums->sides + LANES * v);
        const f32v span = LOAD(sums->high + LANES * v) - LOAD(sums->low + LANES * v);
        const f32v step = f32v_choose(has_minimum, of_minimum * f32v_sqrt(LOAD(sums->h + LANES * v)), one);
        f32v j = f32v_if(f32v_less(zero, unit), top), m = first;
        f32v_mask active = f32v_less(zero, LOAD(best->error + LANES * v));
        while (f32v_any(active)) {
            const f32v scale = j * unit, minimum = m * of_minimum;
            const f32v error = error_of(RUN_INTEGERS, r, v, scale, minimum);
            take_better(best, v, active, error, scale, minimum);
            const f32v b = f32v_sqrt(LOAD(best->error + LANES * v));
            const f32v ahead = f32v_sqrt(error) * f32v_splat(1 - ROUNDING) - b;
            m = m - f32v_max(floored(f32v_min(f32v_max(ahead, zero) / step, f32v_splat(64))), one);
            const f32v_mask ends = f32v_less(m, zero);
            j = j - f32v_if(ends, one);
            m = f32v_choose(ends, first, m);
            const f32v clipped = least_clipped(span, sides, f32v_splat((float)r->high) * (j * unit));
            const f32v_mask hopeless = f32v_less(LOAD(best->error + LANES * v), clipped);
            active = f32v_without(f32v_without(active, f32v_less(j, zero)), hopeless);
        }
    }
}

/* Tries the integers beside those of the best pair; without minima those beside that of the scale. */
static __attribute__((noinline)) void search_near(const struct runs *r, float least, float most, bool minima,
                                                  const float *scale_unit, const float *minimum_unit,
                                                  const int32_t *scale_code, const int32_t *minimum_code,
                                                  struct lane_best *best)
{
    const f32v low = f32v_splat(least), high = f32v_splat(most);
    for (int v = 0; v < F32X16_PARTS; v++) {
        const f32v unit = LOAD(scale_unit + LANES * v), of_minimum = LOAD(minimum_unit + LANES * v);
        const f32v j = number_of(LOAD_CODE(scale_code + LANES * v)), m = number_of(LOAD_CODE(minimum_code + LANES * v));
        const f32v_mask active = f32v_less(f32v_splat(0), LOAD(best->error + LANES * v));
        for (int k = 0; k < 9; k++) {
            const f32v to = j + f32v_splat((float)(minima ? k / 3 - 1 : k - 4));
            const f32v to_minimum = m + f32v_splat((float)(minima ? k % 3 - 1 : 0));
            const f32v scale = f32v_min(f32v_max(to, low), high) * unit;
            const f32v minimum = f32v_min(f32v_max(to_minimum, f32v_splat(0)), high) * of_minimum;
            if (k != 4 && f32v_any(active))
                take_better(best, v, active, run_error(r, v, scale, minimum), scale, minimum);
        }
    }
}

/* ---- Least squares ----------------------------------------------------------------------------------------------- */

/* Sums of the numbers q that runs have: h * q * q, h * q and h * x * q. */
struct number_sums {
    float qq[ROW], q[ROW], xq[ROW];
};

static __attribute__((noinline)) void sum_numbers(const struct runs *r, const float *scale, const float *minimum,
                                                  struct number_sums *s)
{
    EACH_LANES(v, F32X16_PARTS)
    {
        const f32v inverse = inverse_of(LOAD(scale + LANES * v)), of_minimum = LOAD(minimum + LANES * v);
        f32v qq = f32v_splat(0), hq = qq, xq = qq;
        for (int i = 0; i < r->n; i++) {
            const f32v e = LOAD(r->x + ROW * i + LANES * v), t = (e + of_minimum) * inverse;
            const f32v q = r->numbers == RUN_CODEBOOK ? run_number(RUN_CODEBOOK, r, t) : run_number(RUN_INTEGERS, r, t);
            const f32v wq = LOAD(r->h + ROW * i + LANES * v) * q;
            hq += wq;
            qq += wq * q;
            xq += wq * e;
        }
        STORE(s->qq + LANES * v, qq);
        STORE(s->q + LANES * v, hq);
        STORE(s->xq + LANES * v, xq);
    }
}

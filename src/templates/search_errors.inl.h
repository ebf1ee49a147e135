/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors of candidates for range search. Included by src/ISA/search.c after simd.h and tuning.h of that folder.
 *
 * Accumulators: 16 float lanes on every instruction set. One qparam: element i goes to lane i % 16, in order; the lanes
 *   are added in one tree (f32x16_sum_4). A batch: each lane is a qparam, and sums of 32 elements are added in order.
 *   Fused multiply-add is used where it is written, on every instruction set alike, so results are the same bits.
 * Error: the difference (q - shift) * scale - x is rounded once. Rounding to integers adds and subtracts 1.5 * 2^23.
 *   Rounding to a float format is Veltkamp splitting of max(x, min normal), exact for numbers of the format; ties go
 *   either way.
 * Overflow: |x| < 0.5 and 0 is representable, so errors stay below 1 and sums below n. Squares and cubes that are not
 *   negligible are normal. The table takes an |e| below 2^-32 as 0: a 2^-14th of the error of rounding to 16 bits.
 * Tails: the last 16 elements may include padding, whose error is 0. If a shift is not itself representable (float
 *   formats, or a zero point beyond the integers), errors are always weighted, and the weight of padding is 0.
 * In flight: SEARCH_UNROLLED or SEARCH_TABLE_UNROLLED candidates, or the iterations that the processor overlaps;
 *   SEARCH_MAX_LINES prefetched lines.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). */
#include <float.h>
#include <math.h>

#include "kernels/kernel_search.h"
#include "number/number.h"
#include "templates/inline.h"

/* The numbers that candidates quantize to. Every function with such a parameter is inlined with a constant. */
enum target { INTEGERS, INTEGERS_SHIFTED, FLOATS, FLOATS_SHIFTED };

struct constants {
    f32x16 quant_min,
        quant_max; /* integers: with 1.5 * 2^23 added, so that their bits are in order; floats: quant_max only */
    f32x16 middle; /* 1.5 * 2^23 */
    f32x16 floor, split;
    f32x16 polynomial[5];
    struct f32x16_table table;
    float exponent, prescale;
};

DEEP_INLINE struct constants constants_of(enum target target, enum norm_kind kind, const struct quantizer *quantizer,
                                          const struct error_norm *norm)
{
    struct constants k;
    if (target == INTEGERS || target == INTEGERS_SHIFTED) {
        k.middle = f32x16_splat(0x1.8p23f);
        k.quant_min = f32x16_splat(0x1.8p23f + (float)quantizer->quant_min);
        k.quant_max = f32x16_splat(0x1.8p23f + (float)quantizer->quant_max);
    } else {
        k.quant_max = f32x16_splat((float)quantizer->quant_max);
        k.floor = f32x16_splat(quantizer->min_normal);
        k.split = f32x16_splat(float_of_bits(quantizer->shifter + 0x3f800000) + 1); /* 2^(23 - digits) + 1 */
    }
    if (kind == QOBS_NORM_TABLE) {
        for (int i = 0; i < 5; i++)
            k.polynomial[i] = f32x16_splat(norm->polynomial[i]);
        k.table = f32x16_table(norm->low, norm->high);
    }
    k.exponent = norm->value;
    k.prescale = norm->prescale;
    return k;
}

/* Rounds y >= 0 to a float format. */
DEEP_INLINE f32x16 round_floats(const struct constants *k, f32x16 y)
{
    y = f32x16_min_bits(y, k->quant_max);
    const f32x16 spread = f32x16_mul(f32x16_max_bits(y, k->floor), k->split);
    return f32x16_sub(spread, f32x16_sub(spread, y));
}

/* x - (q - shift) * scale. INTEGERS and FLOATS have no shift, and x is a magnitude; `limit` limits the magnitudes of
 * INTEGERS. x and scale are in the unit of the norm, inverse in its inverse. */
DEEP_INLINE f32x16 difference(enum target target, const struct constants *k, f32x16 x, f32x16 limit, f32x16 scale,
                              f32x16 inverse, f32x16 shift)
{
    f32x16 q;
    if (target == INTEGERS) {
        q = f32x16_min_bits(f32x16_fma(x, inverse, k->middle), limit);
        q = f32x16_sub(q, k->middle);
    } else if (target == INTEGERS_SHIFTED) {
        q = f32x16_fma(x, inverse, shift);
        q = f32x16_min_bits(f32x16_max_bits(q, k->quant_min), k->quant_max);
        q = f32x16_sub(q, shift);
    } else if (target == FLOATS) {
        q = round_floats(k, f32x16_mul(x, inverse));
    } else {
        const f32x16 y = f32x16_fma(x, inverse, shift);
        q = f32x16_sub(f32x16_copy_sign(round_floats(k, f32x16_abs(y)), y), shift);
    }
    return f32x16_fnma(q, scale, x);
}

/* Converts elements and scales to the unit that the norm takes, a power of two. Magnitudes below it lose bits, but they
 * are far below the table, and so is their error. */
DEEP_INLINE f32x16 to_unit(enum norm_kind kind, f32x16 a)
{
    return kind == QOBS_NORM_TABLE ? f32x16_mul(a, f32x16_splat(QOBS_NORM_UNIT)) : a;
}

/* Converts an inverse to the inverse unit, so that products with elements stay the same bits. It stays finite, because
 * an element may be 0. */
DEEP_INLINE f32x16 inverse_to_unit(enum norm_kind kind, f32x16 a)
{
    return kind == QOBS_NORM_TABLE
               ? f32x16_min_bits(f32x16_mul(a, f32x16_splat(1 / QOBS_NORM_UNIT)), f32x16_splat(FLT_MAX))
               : a;
}

enum { UNROLLED = SEARCH_UNROLLED, TABLE_UNROLLED = SEARCH_TABLE_UNROLLED, LINE = 64 };

/* The candidates in flight: at most UNROLLED. */
DEEP_INLINE int unrolled(enum norm_kind kind) { return kind == QOBS_NORM_TABLE ? TABLE_UNROLLED : UNROLLED; }

/* |e|^norm = a * b, each step for all vectors, so that none waits for the one before. */
DEEP_INLINE void abs_pow(enum norm_kind kind, const struct constants *k, const f32x16 e[UNROLLED], f32x16 a[UNROLLED],
                         f32x16 b[UNROLLED])
{
    const int n = unrolled(kind);
    f32x16 m[UNROLLED];
    for (int j = 0; j < n; j++) {
        a[j] = e[j];
        m[j] = kind == QOBS_NORM_TABLE ? f32x16_minus_mantissa(e[j]) : e[j];
        b[j] = kind == QOBS_NORM_2 ? e[j] : kind == QOBS_NORM_TABLE ? f32x16_look_up(k->table, e[j]) : f32x16_abs(e[j]);
    }
    for (int j = 0; j < n && kind == QOBS_NORM_3; j++)
        a[j] = f32x16_mul(e[j], e[j]);
    for (int j = 0; j < n && kind == QOBS_NORM_TABLE; j++)
        a[j] = f32x16_add(m[j], k->polynomial[4]);
    for (int i = 3; i >= 0 && kind == QOBS_NORM_TABLE; i--)
        for (int j = 0; j < n; j++)
            a[j] = f32x16_fma(a[j], m[j], k->polynomial[i]);
#ifdef QOBS_SLEEF
    for (int j = 0; j < n && kind == QOBS_NORM_POW; j++)
        b[j] = f32x16_pow(f32x16_mul(b[j], f32x16_splat(k->prescale)), k->exponent);
#endif
}

/* sum + a * b * weight; norms 1 and POW have no a. */
DEEP_INLINE f32x16 add_error(enum norm_kind kind, bool weighted, f32x16 sum, f32x16 a, f32x16 b, f32x16 weight)
{
    if (kind == QOBS_NORM_1 || kind == QOBS_NORM_POW)
        return weighted ? f32x16_fma(b, weight, sum) : f32x16_add(sum, b);
    return f32x16_fma(weighted ? f32x16_mul(a, weight) : a, b, sum);
}

/* Some candidates and their partial sums. */
struct unrolled {
    f32x16 scale[UNROLLED], inverse[UNROLLED], shift[UNROLLED], sum[UNROLLED];
};

/* Adds the errors of a vector of elements; limit and weight are unused in some cases. */
DEEP_INLINE void add_errors(enum target target, enum norm_kind kind, bool weighted, const struct constants *k, f32x16 x,
                            f32x16 limit, f32x16 weight, struct unrolled *c)
{
    f32x16 e[UNROLLED], a[UNROLLED], b[UNROLLED];
    for (int j = 0; j < unrolled(kind); j++)
        e[j] = difference(target, k, x, limit, c->scale[j], c->inverse[j], c->shift[j]);
    abs_pow(kind, k, e, a, b);
    for (int j = 0; j < unrolled(kind); j++)
        c->sum[j] = add_error(kind, weighted, c->sum[j], a[j], b[j], weight);
}

/* The arguments of a kernel. */
struct arguments {
    const struct quantizer *quantizer;
    const struct error_norm *norm;
    const float *x, *weight;
    size_t row, n;
    const struct search_candidates *candidates;
    size_t count;
    struct prefetch_ahead prefetch;
    float *sum;
};

/* Memory to prefetch, some lines in each step of the work. */
struct prefetching {
    const unsigned char *from, *end;
    size_t bytes; /* a step */
};

/* Spreads the lines evenly, so that misses do not delay the loads of the work. With too few steps nothing is
 * prefetched, because the hardware prefetcher needs lines in order. */
DEEP_INLINE struct prefetching prefetching_of(size_t steps, struct prefetch_ahead prefetch)
{
    const size_t lines = ((size_t)(prefetch.end - prefetch.from) + LINE - 1) / LINE;
    const bool can = lines > 0 && lines <= steps * SEARCH_MAX_LINES;
    return (struct prefetching){prefetch.from, can ? prefetch.end : prefetch.from,
                                can ? (lines + steps - 1) / steps * LINE : 0};
}

DEEP_INLINE void prefetch_some(struct prefetching *f)
{
    const unsigned char *const end = (size_t)(f->end - f->from) > f->bytes ? f->from + f->bytes : f->end;
    for (const unsigned char *line = f->from; line < end; line += LINE)
        __builtin_prefetch(line);
    f->from = end;
}

/* Lanes are elements. INTEGERS: a magnitude has one limit, by the sign of x, which is found once for all candidates. */
DEEP_INLINE void by_elements(enum target target, enum norm_kind kind, bool weighted, const struct arguments *a)
{
    const struct constants k = constants_of(target, kind, a->quantizer, a->norm);
    const float *const x = a->x, *const weight = a->weight;
    const size_t n = a->n;
    struct prefetching prefetch = prefetching_of(a->count / (size_t)unrolled(kind), a->prefetch);
    _Alignas(64) float limited[2 * QOBS_SEARCH_MOST]; /* a vector of magnitudes, a vector of limits, and so on */
    if (target == INTEGERS) {
        const f32x16 below = f32x16_sub(k.middle, f32x16_sub(k.quant_min, k.middle));
        for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES) {
            const f32x16 v = f32x16_load(x + i);
            f32x16_store(limited + 2 * i, to_unit(kind, f32x16_abs(v)));
            f32x16_store(limited + 2 * i + QOBS_SEARCH_LANES, f32x16_by_sign(v, below, k.quant_max));
        }
    }
    for (size_t c = 0; c < a->count; c += 4) {
        f32x16 total[4];
        for (size_t first = 0; first < 4; first += (size_t)unrolled(kind)) {
            struct unrolled some;
            prefetch_some(&prefetch);
            for (int j = 0; j < unrolled(kind); j++) {
                const size_t at = (c + first + (size_t)j) * a->candidates->step;
                some.scale[j] = to_unit(kind, f32x16_splat(a->candidates->scale[at]));
                some.inverse[j] = inverse_to_unit(kind, f32x16_splat(a->candidates->inverse[at]));
                some.shift[j] = f32x16_splat(a->candidates->shift[at]);
                some.sum[j] = f32x16_splat(0);
            }
            for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES) {
                const f32x16 given =
                    target == INTEGERS ? f32x16_load(limited + 2 * i) : to_unit(kind, f32x16_load(x + i));
                const f32x16 limit = target == INTEGERS ? f32x16_load(limited + 2 * i + QOBS_SEARCH_LANES) : given;
                add_errors(target, kind, weighted, &k, target == FLOATS ? f32x16_abs(given) : given, limit,
                           weighted ? f32x16_load(weight + i) : given, &some);
            }
            for (int j = 0; j < unrolled(kind); j++)
                total[first + (size_t)j] = some.sum[j];
        }
        f32x16_sum_4(total, a->sum + c);
    }
}

/* Lanes are qparams: there is no horizontal sum, and a vector has one element of each qparam. */
DEEP_INLINE void by_qparams(enum target target, enum norm_kind kind, bool weighted, const struct arguments *a)
{
    enum { L = QOBS_SEARCH_LANES, BETWEEN_TOTALS = 32 };
    const struct constants k = constants_of(target, kind, a->quantizer, a->norm);
    const size_t n = a->n, each = L * (1 + (target == INTEGERS) +
                                       weighted); /* floats of an element: magnitude or value, limit, weight */
    struct prefetching prefetch =
        prefetching_of(a->count / (size_t)unrolled(kind) * ((n + BETWEEN_TOTALS - 1) / BETWEEN_TOTALS), a->prefetch);
    _Alignas(64) float transposed[3 * L * QOBS_SEARCH_FEW], tile[L * L];
    const f32x16 below = target == INTEGERS ? f32x16_sub(k.middle, f32x16_sub(k.quant_min, k.middle)) : f32x16_splat(0);
    for (size_t first = 0; first < n; first += L) {
        float *const to = transposed + first * each;
        f32x16_transpose(a->x + first, a->row, tile);
        for (size_t i = 0; i < L; i++) {
            const f32x16 v = f32x16_load(tile + i * L);
            f32x16_store(to + i * each, to_unit(kind, target == INTEGERS || target == FLOATS ? f32x16_abs(v) : v));
            if (target == INTEGERS)
                f32x16_store(to + i * each + L, f32x16_by_sign(v, below, k.quant_max));
        }
        if (weighted) {
            f32x16_transpose(a->weight + first, a->row, tile);
            for (size_t i = 0; i < L; i++)
                f32x16_store(to + i * each + each - L, f32x16_load(tile + i * L));
        }
    }
    for (size_t c = 0; c < a->count; c += (size_t)unrolled(kind)) {
        struct unrolled some;
        f32x16 total[UNROLLED];
        for (int j = 0; j < unrolled(kind); j++) {
            const size_t at = (c + (size_t)j) * L;
            some.scale[j] = to_unit(kind, f32x16_load(a->candidates->scale + at));
            some.inverse[j] = inverse_to_unit(kind, f32x16_load(a->candidates->inverse + at));
            some.shift[j] = f32x16_load(a->candidates->shift + at);
            total[j] = f32x16_splat(0);
        }
        for (size_t first = 0; first < n; first += BETWEEN_TOTALS) {
            const float *x = transposed + first * each, *const end =
                                                            transposed +
                                                            (n - first < BETWEEN_TOTALS ? n : first + BETWEEN_TOTALS) *
                                                                each;
            prefetch_some(&prefetch);
            for (int j = 0; j < unrolled(kind); j++)
                some.sum[j] = f32x16_splat(0);
            for (; x < end; x += each) {
                const f32x16 v = f32x16_load(x);
                add_errors(target, kind, weighted, &k, v, target == INTEGERS ? f32x16_load(x + L) : v,
                           weighted ? f32x16_load(x + each - L) : v, &some);
            }
            for (int j = 0; j < unrolled(kind); j++)
                total[j] = f32x16_add(total[j], some.sum[j]);
        }
        for (int j = 0; j < unrolled(kind); j++)
            f32x16_store(a->sum + (c + (size_t)j) * L, total[j]);
    }
}

/* ---- One function for each combination --------------------------------------------------------------------------- */

typedef void errors_fn(const struct arguments *a);
enum { PLAIN, WEIGHTED };

#define FUNCTION(way, target, weighted, kind)                                                                          \
    static void way##_##target##_##weighted##_##kind(const struct arguments *a) { way(target, kind, weighted, a); }
#define EACH_NORM(way, target, weighted)                                                                               \
    FUNCTION(way, target, weighted, QOBS_NORM_1)                                                                       \
    FUNCTION(way, target, weighted, QOBS_NORM_2)                                                                       \
    FUNCTION(way, target, weighted, QOBS_NORM_3)                                                                       \
    FUNCTION(way, target, weighted, QOBS_NORM_TABLE)                                                                   \
    FUNCTION(way, target, weighted, QOBS_NORM_POW)
#define EACH_TARGET(way)                                                                                               \
    EACH_NORM(way, INTEGERS, PLAIN)                                                                                    \
    EACH_NORM(way, INTEGERS, WEIGHTED)                                                                                 \
    EACH_NORM(way, INTEGERS_SHIFTED, PLAIN)                                                                            \
    EACH_NORM(way, INTEGERS_SHIFTED, WEIGHTED)                                                                         \
    EACH_NORM(way, FLOATS, PLAIN)                                                                                      \
    EACH_NORM(way, FLOATS, WEIGHTED)                                                                                   \
    EACH_NORM(way, FLOATS_SHIFTED, WEIGHTED)
#define NORMS(way, target, weighted)                                                                                   \
    {way##_##target##_##weighted##_QOBS_NORM_1, way##_##target##_##weighted##_QOBS_NORM_2,                             \
     way##_##target##_##weighted##_QOBS_NORM_3, way##_##target##_##weighted##_QOBS_NORM_TABLE,                         \
     way##_##target##_##weighted##_QOBS_NORM_POW}
#define TARGETS(way)                                                                                                   \
    {                                                                                                                  \
        [INTEGERS] = {NORMS(way, INTEGERS, PLAIN), NORMS(way, INTEGERS, WEIGHTED)},                                    \
        [INTEGERS_SHIFTED] = {NORMS(way, INTEGERS_SHIFTED, PLAIN), NORMS(way, INTEGERS_SHIFTED, WEIGHTED)},            \
        [FLOATS] = {NORMS(way, FLOATS, PLAIN), NORMS(way, FLOATS, WEIGHTED)}, [FLOATS_SHIFTED] = {                     \
            [WEIGHTED] = NORMS(way, FLOATS_SHIFTED, WEIGHTED)                                                          \
        }                                                                                                              \
    }

EACH_TARGET(by_elements)
EACH_TARGET(by_qparams)

static enum target target_of(const struct quantizer *quantizer, bool with_shift)
{
    if ((double)quantizer->min_normal >= quantizer->quant_max)
        return with_shift ? INTEGERS_SHIFTED : INTEGERS;
    return with_shift ? FLOATS_SHIFTED : FLOATS;
}

QOBS_SEARCH_ERRORS(ENTRY(qobs_search_errors))
{
    CLEARS_UPPER_HALVES
    static errors_fn *const functions[4][2][QOBS_NORM_POW + 1] = TARGETS(by_elements);
    const struct arguments a = {quantizer, norm, x, weight, 0, n, candidates, count, prefetch, sum};
    functions[target_of(quantizer, with_shift)][weight != NULL][norm->kind](&a);
}

QOBS_SEARCH_BATCH(ENTRY(qobs_search_batch))
{
    CLEARS_UPPER_HALVES
    static errors_fn *const functions[4][2][QOBS_NORM_POW + 1] = TARGETS(by_qparams);
    const struct arguments a = {quantizer, norm, x, weight, row, n, candidates, count, prefetch, sum};
    functions[target_of(quantizer, with_shift)][weight != NULL][norm->kind](&a);
}

/* ---- Steps that improve ------------------------------------------------------------------------------------------ */

QOBS_SEARCH_IMPROVED(ENTRY(qobs_search_improved))
{
    CLEARS_UPPER_HALVES
    f32x16 so_far = f32x16_load(bound), at = f32x16_splat(-1);
    _Alignas(64) float steps[QOBS_SEARCH_LANES];
    for (size_t first = 0; first < n; first += 64) {
        uint64_t some = 0;
        for (size_t c = first; c < n && c < first + 64; c++)
            some |= (uint64_t)f32x16_improve(f32x16_load(sum + c * QOBS_SEARCH_LANES), (float)c, &so_far, &at)
                    << (c - first);
        improved[first / 64] |= some;
    }
    f32x16_store(best, so_far);
    f32x16_store(steps, at);
    for (int i = 0; i < QOBS_SEARCH_LANES; i++)
        step[i] = (int32_t)steps[i];
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors of candidates for range search. Included by src/<isa>/search.c after that instruction set's lanes.h.
 *
 * Accumulators: 16 float lanes, whatever the instruction set's vectors; element i goes to lane i % 16, in order, and the lanes are
 *   added up in one tree (lanes_fold). With candidates in the lanes there is nothing to add up, each lane takes the elements in
 *   order. Multiply-add where it says so, on every instruction set alike: the same bits everywhere.
 * Error: the difference (q - shift) * scale - x is rounded once. Rounding to integers adds and takes away 1.5 * 2^23; to a float
 *   format it is Veltkamp's splitting of max(x, the least normal number), exact for what the format has, ties either way.
 * Overflow: |x| < 0.5, 0 is among the numbers quantized to, so errors stay below 1 and sums below n. Squares and cubes of what is not
 *   negligible beside them are normal. In the table an |e| below 2^-32 is 0: it is a 2^-14th of what rounding to 16 bits leaves.
 * Tails: the last 16 elements may be padding, whose error is 0; but not where a shift is none of the numbers quantized to (of a float
 *   format, or a zero point outside of the integers), so there errors are always weighted, and the padding's weight is 0.
 * In flight: LANES_ABREAST candidates, or the iterations the processor overlaps.
 * Caller's duty: round to nearest, no flushing of subnormals (src/fpenv.h). */
#include <math.h>

#include "kernels.h"
#include "number.h"
#include "sanitized.h"

#ifdef SANITIZED
#define ALWAYS_INLINE static inline /* with the checks of a sanitizer in every step a compiler would be busy for minutes */
#else
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#endif

/* What a loop is made for; every function with such a parameter is inlined with a constant one. */
enum target { INTEGERS, INTEGERS_SHIFTED, FLOATS, FLOATS_SHIFTED };

struct constants {
    lanes least, greatest; /* of integers: with 1.5 * 2^23 added, as bits in order; of floats the greatest alone */
    lanes middle;          /* 1.5 * 2^23 */
    lanes floor, split;
    lanes polynomial[5];
    struct lanes_table table;
    float exponent, boost;
};

ALWAYS_INLINE struct constants constants_of(enum target target, enum qobs_norm_kind kind, const struct qobs_quantizer *quantizer,
                                            const struct qobs_error_norm *norm)
{
    struct constants k;
    if (target == INTEGERS || target == INTEGERS_SHIFTED) {
        k.middle = lanes_splat(0x1.8p23f);
        k.least = lanes_splat(0x1.8p23f + (float)quantizer->least);
        k.greatest = lanes_splat(0x1.8p23f + (float)quantizer->greatest);
    } else {
        k.greatest = lanes_splat((float)quantizer->greatest);
        k.floor = lanes_splat(quantizer->floor);
        k.split = lanes_splat(float_of_bits(quantizer->lift + 0x3f800000) + 1); /* 2^(23 - digits) + 1 */
    }
    if (kind == QOBS_NORM_TABLE) {
        for (int i = 0; i < 5; i++)
            k.polynomial[i] = lanes_splat(norm->polynomial[i]);
        k.table = lanes_table(norm->low, norm->high);
    }
    k.exponent = norm->value;
    k.boost = norm->boost;
    return k;
}

/* The nearest number of a float format, of y >= 0. */
ALWAYS_INLINE lanes round_floats(const struct constants *k, lanes y)
{
    y = lanes_min_bits(y, k->greatest);
    const lanes spread = lanes_mul(lanes_max_bits(y, k->floor), k->split);
    return lanes_sub(spread, lanes_sub(spread, y));
}

/* x - (q - shift) * scale; INTEGERS and FLOATS, which have no shift: of magnitudes x, limited to `limit` where that is of integers.
 * in_unit: x, in the unit that scale and the difference are in. */
ALWAYS_INLINE lanes difference(enum target target, const struct constants *k, lanes x, lanes limit, lanes in_unit, lanes scale,
                               lanes inverse, lanes shift)
{
    lanes q;
    if (target == INTEGERS) {
        q = lanes_min_bits(lanes_fma(x, inverse, k->middle), limit);
        q = lanes_sub(q, k->middle);
    } else if (target == INTEGERS_SHIFTED) {
        q = lanes_fma(x, inverse, shift);
        q = lanes_min_bits(lanes_max_bits(q, k->least), k->greatest);
        q = lanes_sub(q, shift);
    } else if (target == FLOATS) {
        q = round_floats(k, lanes_mul(x, inverse));
    } else {
        const lanes y = lanes_fma(x, inverse, shift);
        q = lanes_sub(lanes_copy_sign(round_floats(k, lanes_abs(y)), y), shift);
    }
    return lanes_fnma(q, scale, in_unit);
}

/* In the unit of what the norm is of. */
ALWAYS_INLINE lanes to_unit(enum qobs_norm_kind kind, lanes a)
{
    return kind == QOBS_NORM_TABLE ? lanes_mul(a, lanes_splat(QOBS_NORM_UNIT)) : a;
}

enum { ABREAST = LANES_ABREAST };

/* |e|^norm = a * b, step by step for all of them: none has to wait for the one before. */
ALWAYS_INLINE void raise(enum qobs_norm_kind kind, const struct constants *k, const lanes e[ABREAST], lanes a[ABREAST],
                         lanes b[ABREAST])
{
    lanes m[ABREAST];
    for (int j = 0; j < ABREAST; j++)
        b[j] = kind == QOBS_NORM_2 ? e[j] : kind == QOBS_NORM_TABLE ? lanes_look_up(k->table, e[j]) : lanes_abs(e[j]);
    for (int j = 0; j < ABREAST && kind == QOBS_NORM_2; j++)
        a[j] = e[j];
    for (int j = 0; j < ABREAST && kind == QOBS_NORM_3; j++)
        a[j] = lanes_mul(e[j], e[j]);
    for (int j = 0; j < ABREAST && kind == QOBS_NORM_TABLE; j++) {
        m[j] = lanes_minus_mantissa(e[j]);
        a[j] = lanes_add(m[j], k->polynomial[4]);
    }
    for (int i = 3; i >= 0 && kind == QOBS_NORM_TABLE; i--)
        for (int j = 0; j < ABREAST; j++)
            a[j] = lanes_fma(a[j], m[j], k->polynomial[i]);
#ifdef QOBS_SLEEF
    for (int j = 0; j < ABREAST && kind == QOBS_NORM_POW; j++)
        b[j] = lanes_pow(lanes_mul(b[j], lanes_splat(k->boost)), k->exponent);
#endif
}

/* sum + a * b * weight, where there is an a. */
ALWAYS_INLINE lanes add_error(enum qobs_norm_kind kind, bool weighted, lanes sum, lanes a, lanes b, lanes weight)
{
    if (kind == QOBS_NORM_1 || kind == QOBS_NORM_POW)
        return weighted ? lanes_fma(b, weight, sum) : lanes_add(sum, b);
    return lanes_fma(weighted ? lanes_mul(a, weight) : a, b, sum);
}

/* The arguments of a kernel. */
struct arguments {
    const struct qobs_quantizer *quantizer;
    const struct qobs_error_norm *norm;
    const float *x, *weight;
    size_t n;
    const struct qobs_search_candidates *candidates;
    size_t count;
    float *sum;
};

/* Elements in the lanes. Of integers without a shift the magnitude has one limit, by the sign of x, found once for all candidates. */
ALWAYS_INLINE void by_elements(enum target target, enum qobs_norm_kind kind, bool weighted, const struct arguments *a)
{
    const struct constants k = constants_of(target, kind, a->quantizer, a->norm);
    const float *const x = a->x, *const weight = a->weight;
    const size_t n = a->n;
    _Alignas(64) float limited[2 * QOBS_SEARCH_MOST]; /* magnitudes and limits in turns, lanes by lanes */
    if (target == INTEGERS) {
        const lanes below = lanes_sub(k.middle, lanes_sub(k.least, k.middle));
        for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES) {
            const lanes v = lanes_load(x + i);
            lanes_store(limited + 2 * i, lanes_abs(v));
            lanes_store(limited + 2 * i + QOBS_SEARCH_LANES, lanes_by_sign(v, below, k.greatest));
        }
    }
    for (size_t c = 0; c < a->count; c += 4) {
        lanes total[4];
        for (size_t first = 0; first < 4; first += ABREAST) {
            lanes scale[ABREAST], inverse[ABREAST], shift[ABREAST], s[ABREAST];
            for (int j = 0; j < ABREAST; j++) {
                const size_t at = c + first + (size_t)j;
                scale[j] = to_unit(kind, lanes_splat(a->candidates->scale[at]));
                inverse[j] = lanes_splat(a->candidates->inverse[at]);
                shift[j] = lanes_splat(a->candidates->shift[at]);
                s[j] = lanes_splat(0);
            }
            for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES) {
                lanes v = lanes_load(target == INTEGERS ? limited + 2 * i : x + i), w = v, limit = v, e[ABREAST], p[ABREAST], q[ABREAST];
                if (target == FLOATS)
                    v = lanes_abs(v);
                if (target == INTEGERS)
                    limit = lanes_load(limited + 2 * i + QOBS_SEARCH_LANES);
                const lanes in_unit = to_unit(kind, v);
                if (weighted)
                    w = lanes_load(weight + i);
                for (int j = 0; j < ABREAST; j++)
                    e[j] = difference(target, &k, v, limit, in_unit, scale[j], inverse[j], shift[j]);
                raise(kind, &k, e, p, q);
                for (int j = 0; j < ABREAST; j++)
                    s[j] = add_error(kind, weighted, s[j], p[j], q[j], w);
            }
            for (int j = 0; j < ABREAST; j++)
                total[first + (size_t)j] = s[j];
        }
        lanes_fold(total, a->sum + c);
    }
}

/* Candidates in the lanes, without weights. */
ALWAYS_INLINE void by_candidates(enum target target, enum qobs_norm_kind kind, const struct arguments *a)
{
    const struct constants k = constants_of(target, kind, a->quantizer, a->norm);
    float x[QOBS_SEARCH_FEW], in_unit[QOBS_SEARCH_FEW];
    const size_t n = a->n;
    for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES) {
        const lanes given = lanes_load(a->x + i), v = target == FLOATS ? lanes_abs(given) : given;
        lanes_store(x + i, v);
        lanes_store(in_unit + i, to_unit(kind, v));
    }
    for (size_t c = 0; c < a->count; c += QOBS_SEARCH_LANES) {
        const lanes scale = to_unit(kind, lanes_load(a->candidates->scale + c)), inverse = lanes_load(a->candidates->inverse + c),
                    shift = lanes_load(a->candidates->shift + c);
        lanes s = lanes_splat(0);
        for (size_t i = 0; i < n; i += ABREAST) {
            lanes e[ABREAST], p[ABREAST], q[ABREAST];
            for (int j = 0; j < ABREAST; j++) /* past the end there is padding */
                e[j] = difference(target, &k, lanes_splat(x[i + (size_t)j]), k.greatest, lanes_splat(in_unit[i + (size_t)j]), scale,
                                  inverse, shift);
            raise(kind, &k, e, p, q);
            for (int j = 0; j < ABREAST; j++)
                s = add_error(kind, false, s, p[j], q[j], s);
        }
        lanes_store(a->sum + c, s);
    }
}

/* ---- One function for each combination -------------------------------------------------------------------------------- */

typedef void errors_fn(const struct arguments *a);

#define FUNCTION(way, target, kind)                                                                                   \
    static void way##_##target##_##kind(const struct arguments *a) { way(target, kind, a); }
#define EACH_NORM(way, target)                                                                                        \
    FUNCTION(way, target, QOBS_NORM_1)                                                                                \
    FUNCTION(way, target, QOBS_NORM_2)                                                                                \
    FUNCTION(way, target, QOBS_NORM_3)                                                                                \
    FUNCTION(way, target, QOBS_NORM_TABLE)                                                                            \
    FUNCTION(way, target, QOBS_NORM_POW)
#define FUNCTIONS(way, target)                                                                                        \
    {                                                                                                                 \
        way##_##target##_QOBS_NORM_1, way##_##target##_QOBS_NORM_2, way##_##target##_QOBS_NORM_3,                     \
            way##_##target##_QOBS_NORM_TABLE, way##_##target##_QOBS_NORM_POW                                          \
    }

ALWAYS_INLINE void elements(enum target target, enum qobs_norm_kind kind, const struct arguments *a)
{
    by_elements(target, kind, false, a);
}

ALWAYS_INLINE void weighted(enum target target, enum qobs_norm_kind kind, const struct arguments *a)
{
    by_elements(target, kind, true, a);
}

EACH_NORM(elements, INTEGERS)
EACH_NORM(elements, INTEGERS_SHIFTED)
EACH_NORM(elements, FLOATS)
EACH_NORM(weighted, INTEGERS)
EACH_NORM(weighted, INTEGERS_SHIFTED)
EACH_NORM(weighted, FLOATS)
EACH_NORM(weighted, FLOATS_SHIFTED)
EACH_NORM(by_candidates, INTEGERS_SHIFTED)
EACH_NORM(by_candidates, FLOATS)

QOBS_SEARCH_ERRORS(ENTRY(qobs_search_errors))
{
    enum { ELEMENTS, WEIGHTED, CANDIDATES };
    static errors_fn *const functions[4][3][QOBS_NORM_POW + 1] = {
        [INTEGERS] = {FUNCTIONS(elements, INTEGERS), FUNCTIONS(weighted, INTEGERS), FUNCTIONS(by_candidates, INTEGERS_SHIFTED)},
        [INTEGERS_SHIFTED] = {FUNCTIONS(elements, INTEGERS_SHIFTED), FUNCTIONS(weighted, INTEGERS_SHIFTED),
                              FUNCTIONS(by_candidates, INTEGERS_SHIFTED)},
        [FLOATS] = {FUNCTIONS(elements, FLOATS), FUNCTIONS(weighted, FLOATS), FUNCTIONS(by_candidates, FLOATS)},
        [FLOATS_SHIFTED] = {[WEIGHTED] = FUNCTIONS(weighted, FLOATS_SHIFTED)},
    };
    const struct arguments a = {quantizer, norm, x, weight, n, candidates, count, sum};
    const enum target target = (double)quantizer->floor >= quantizer->greatest ? with_shift ? INTEGERS_SHIFTED : INTEGERS
                               : with_shift                                    ? FLOATS_SHIFTED
                                                                               : FLOATS;
    functions[target][weight ? WEIGHTED : by_candidate ? CANDIDATES : ELEMENTS][norm->kind](&a);
}

/* ---- Steps that improve ----------------------------------------------------------------------------------------------- */

/* The first of the least sums, if that is less than `least`; else -1. */
static int32_t first_least(const float *sum, size_t n, float least)
{
    const size_t whole = n / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES;
    lanes so_far = lanes_splat(INFINITY);
    for (size_t c = 0; c < whole; c += QOBS_SEARCH_LANES)
        so_far = lanes_least(lanes_load(sum + c), so_far);
    if (whole < n)
        so_far = lanes_least(lanes_first(lanes_load(sum + whole), n - whole), so_far);
    const float best = lanes_least_of(so_far);
    if (!(best < least))
        return -1;
    for (size_t c = 0;; c += 64) {
        uint64_t equal = 0;
        for (size_t i = 0; i < 64 && c + i < n; i += QOBS_SEARCH_LANES)
            equal |= (uint64_t)lanes_equal(lanes_load(sum + c + i), lanes_splat(best)) << i;
        if (n - c < 64)
            equal &= (UINT64_C(1) << (n - c)) - 1;
        if (equal)
            return (int32_t)c + __builtin_ctzll(equal);
    }
}

/* Are the bits of all steps up to that one set? */
static bool all_improved(const uint64_t *improved, int32_t step)
{
    uint64_t missing = ~improved[step / 64] << (63 - step % 64);
    for (int32_t i = 0; i < step / 64; i++)
        missing |= ~improved[i];
    return missing == 0;
}

/* After a few hundred groups there is hardly a step left at which none improved; then only the best one is looked for. */
QOBS_SEARCH_IMPROVED(ENTRY(qobs_search_improved))
{
    int32_t last = first_least(sum, n, least);
    lanes before = lanes_splat(least);
    if (last < 0 || all_improved(improved, last))
        return last;
    for (size_t c = 0; c < n; c += QOBS_SEARCH_LANES) {
        const lanes sums = lanes_load(sum + c);
        const uint32_t mask = lanes_improved(n - c < QOBS_SEARCH_LANES ? lanes_first(sums, n - c) : sums, &before);
        improved[c / 64] |= (uint64_t)mask << c % 64;
        if (mask)
            last = (int32_t)c + 31 - __builtin_clz(mask);
    }
    return last;
}

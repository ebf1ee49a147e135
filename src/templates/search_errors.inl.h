/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors of candidates for range search. Included by src/<isa>/search.c after that instruction set's lanes.h.
 *
 * Accumulators: 16 float lanes, whatever the instruction set's vectors. Of one qparam element i goes to lane i % 16, in order, and the
 *   lanes are added up in one tree (lanes_fold). Of a batch each lane is a qparam, and the sums of 32 elements after the other are added
 *   in order. Multiply-add where it says so, on every instruction set alike: the same bits everywhere.
 * Error: the difference (q - shift) * scale - x is rounded once. Rounding to integers adds and takes away 1.5 * 2^23; to a float
 *   format it is Veltkamp's splitting of max(x, the least normal number), exact for what the format has, ties either way.
 * Overflow: |x| < 0.5, 0 is among the numbers quantized to, so errors stay below 1 and sums below n. Squares and cubes of what is not
 *   negligible beside them are normal. In the table an |e| below 2^-32 is 0: it is a 2^-14th of what rounding to 16 bits leaves.
 * Tails: the last 16 elements may be padding, whose error is 0; but not where a shift is none of the numbers quantized to (of a float
 *   format, or a zero point outside of the integers), so there errors are always weighted, and the padding's weight is 0.
 * In flight: LANES_ABREAST candidates, or the iterations the processor overlaps; MOST_LINES of what is fetched ahead.
 * Caller's duty: round to nearest, no flushing of subnormals (src/fpenv.h). */
#include <math.h>

#include "kernels/kernel_search.h"
#include "number/number.h"
#include "base/sanitized.h"

#ifdef SANITIZED
#define ALWAYS_INLINE static inline /* with the checks of a sanitizer in every step a compiler would be busy for minutes */
#else
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#endif

/* What a loop is made for; every function with such a parameter is inlined with a constant one. */
enum target { INTEGERS, INTEGERS_SHIFTED, FLOATS, FLOATS_SHIFTED };

struct constants {
    lanes quant_min, quant_max; /* of integers: with 1.5 * 2^23 added, as bits in order; of floats the greatest alone */
    lanes middle;          /* 1.5 * 2^23 */
    lanes floor, split;
    lanes polynomial[5];
    struct lanes_table table;
    float exponent, prescale;
};

ALWAYS_INLINE struct constants constants_of(enum target target, enum qobs_norm_kind kind, const struct qobs_quantizer *quantizer,
                                            const struct qobs_error_norm *norm)
{
    struct constants k;
    if (target == INTEGERS || target == INTEGERS_SHIFTED) {
        k.middle = lanes_splat(0x1.8p23f);
        k.quant_min = lanes_splat(0x1.8p23f + (float)quantizer->quant_min);
        k.quant_max = lanes_splat(0x1.8p23f + (float)quantizer->quant_max);
    } else {
        k.quant_max = lanes_splat((float)quantizer->quant_max);
        k.floor = lanes_splat(quantizer->min_normal);
        k.split = lanes_splat(float_of_bits(quantizer->shifter + 0x3f800000) + 1); /* 2^(23 - digits) + 1 */
    }
    if (kind == QOBS_NORM_TABLE) {
        for (int i = 0; i < 5; i++)
            k.polynomial[i] = lanes_splat(norm->polynomial[i]);
        k.table = lanes_table(norm->low, norm->high);
    }
    k.exponent = norm->value;
    k.prescale = norm->prescale;
    return k;
}

/* The nearest number of a float format, of y >= 0. */
ALWAYS_INLINE lanes round_floats(const struct constants *k, lanes y)
{
    y = lanes_min_bits(y, k->quant_max);
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
        q = lanes_min_bits(lanes_max_bits(q, k->quant_min), k->quant_max);
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

enum { ABREAST = LANES_ABREAST, LINE = 64, MOST_LINES = 16 };

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
        b[j] = lanes_pow(lanes_mul(b[j], lanes_splat(k->prescale)), k->exponent);
#endif
}

/* sum + a * b * weight, where there is an a. */
ALWAYS_INLINE lanes add_error(enum qobs_norm_kind kind, bool weighted, lanes sum, lanes a, lanes b, lanes weight)
{
    if (kind == QOBS_NORM_1 || kind == QOBS_NORM_POW)
        return weighted ? lanes_fma(b, weight, sum) : lanes_add(sum, b);
    return lanes_fma(weighted ? lanes_mul(a, weight) : a, b, sum);
}

/* Some candidates, and what there is so far of their sums. */
struct abreast {
    lanes scale[ABREAST], inverse[ABREAST], shift[ABREAST], sum[ABREAST];
};

/* A vector of elements with its limit and weights, where these play a part. */
ALWAYS_INLINE void add_errors(enum target target, enum qobs_norm_kind kind, bool weighted, const struct constants *k, lanes x, lanes limit,
                              lanes weight, struct abreast *c)
{
    const lanes in_unit = to_unit(kind, x);
    lanes e[ABREAST], a[ABREAST], b[ABREAST];
    for (int j = 0; j < ABREAST; j++)
        e[j] = difference(target, k, x, limit, in_unit, c->scale[j], c->inverse[j], c->shift[j]);
    raise(kind, k, e, a, b);
    for (int j = 0; j < ABREAST; j++)
        c->sum[j] = add_error(kind, weighted, c->sum[j], a[j], b[j], weight);
}

/* The arguments of a kernel. */
struct arguments {
    const struct qobs_quantizer *quantizer;
    const struct qobs_error_norm *norm;
    const float *x, *weight;
    size_t row, n;
    const struct qobs_search_candidates *candidates;
    size_t count;
    struct qobs_prefetch prefetch;
    float *sum;
};

/* What is fetched ahead, some lines in each of the steps that the work has. */
struct fetching {
    const unsigned char *from, *end;
    size_t bytes; /* a step */
};

/* Evenly: as many misses at a time as do not hold up the loads of the work itself. Where there are not steps enough, nothing: what the
 * hardware fetches on its own has to come in order. */
ALWAYS_INLINE struct fetching fetching_in(size_t steps, struct qobs_prefetch prefetch)
{
    const size_t lines = ((size_t)(prefetch.end - prefetch.from) + LINE - 1) / LINE;
    const bool can = lines > 0 && lines <= steps * MOST_LINES;
    return (struct fetching){prefetch.from, can ? prefetch.end : prefetch.from, can ? (lines + steps - 1) / steps * LINE : 0};
}

ALWAYS_INLINE void fetch(struct fetching *f)
{
    const unsigned char *const end = (size_t)(f->end - f->from) > f->bytes ? f->from + f->bytes : f->end;
    for (const unsigned char *line = f->from; line < end; line += LINE)
        __builtin_prefetch(line);
    f->from = end;
}

/* Elements in the lanes. Of integers without a shift the magnitude has one limit, by the sign of x, found once for all candidates. */
ALWAYS_INLINE void by_elements(enum target target, enum qobs_norm_kind kind, bool weighted, const struct arguments *a)
{
    const struct constants k = constants_of(target, kind, a->quantizer, a->norm);
    const float *const x = a->x, *const weight = a->weight;
    const size_t n = a->n;
    struct fetching prefetch = fetching_in(a->count / ABREAST, a->prefetch);
    _Alignas(64) float limited[2 * QOBS_SEARCH_MOST]; /* magnitudes and limits in turns, lanes by lanes */
    if (target == INTEGERS) {
        const lanes below = lanes_sub(k.middle, lanes_sub(k.quant_min, k.middle));
        for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES) {
            const lanes v = lanes_load(x + i);
            lanes_store(limited + 2 * i, lanes_abs(v));
            lanes_store(limited + 2 * i + QOBS_SEARCH_LANES, lanes_by_sign(v, below, k.quant_max));
        }
    }
    for (size_t c = 0; c < a->count; c += 4) {
        lanes total[4];
        for (size_t first = 0; first < 4; first += ABREAST) {
            struct abreast some;
            fetch(&prefetch);
            for (int j = 0; j < ABREAST; j++) {
                const size_t at = (c + first + (size_t)j) * a->candidates->step;
                some.scale[j] = to_unit(kind, lanes_splat(a->candidates->scale[at]));
                some.inverse[j] = lanes_splat(a->candidates->inverse[at]);
                some.shift[j] = lanes_splat(a->candidates->shift[at]);
                some.sum[j] = lanes_splat(0);
            }
            for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES) {
                const lanes given = lanes_load(target == INTEGERS ? limited + 2 * i : x + i);
                const lanes limit = target == INTEGERS ? lanes_load(limited + 2 * i + QOBS_SEARCH_LANES) : given;
                add_errors(target, kind, weighted, &k, target == FLOATS ? lanes_abs(given) : given, limit,
                           weighted ? lanes_load(weight + i) : given, &some);
            }
            for (int j = 0; j < ABREAST; j++)
                total[first + (size_t)j] = some.sum[j];
        }
        lanes_fold(total, a->sum + c);
    }
}

/* Qparams in the lanes: nothing is to be added up across them, and each vector of elements is of one place in all of them. */
ALWAYS_INLINE void by_qparams(enum target target, enum qobs_norm_kind kind, bool weighted, const struct arguments *a)
{
    enum { L = QOBS_SEARCH_LANES, BETWEEN_TOTALS = 32 };
    const struct constants k = constants_of(target, kind, a->quantizer, a->norm);
    const size_t n = a->n, each = L * (1 + (target == INTEGERS) + weighted); /* an element, its limit, its weight */
    struct fetching prefetch = fetching_in(a->count / ABREAST * ((n + BETWEEN_TOTALS - 1) / BETWEEN_TOTALS), a->prefetch);
    _Alignas(64) float turned[3 * L * QOBS_SEARCH_FEW], tile[L * L];
    const lanes below = target == INTEGERS ? lanes_sub(k.middle, lanes_sub(k.quant_min, k.middle)) : lanes_splat(0);
    for (size_t first = 0; first < n; first += L) {
        float *const to = turned + first * each;
        lanes_turn(a->x + first, a->row, tile);
        for (size_t i = 0; i < L; i++) {
            const lanes v = lanes_load(tile + i * L);
            lanes_store(to + i * each, target == INTEGERS || target == FLOATS ? lanes_abs(v) : v);
            if (target == INTEGERS)
                lanes_store(to + i * each + L, lanes_by_sign(v, below, k.quant_max));
        }
        if (weighted) {
            lanes_turn(a->weight + first, a->row, tile);
            for (size_t i = 0; i < L; i++)
                lanes_store(to + i * each + each - L, lanes_load(tile + i * L));
        }
    }
    for (size_t c = 0; c < a->count; c += ABREAST) {
        struct abreast some;
        lanes total[ABREAST];
        for (int j = 0; j < ABREAST; j++) {
            const size_t at = (c + (size_t)j) * L;
            some.scale[j] = to_unit(kind, lanes_load(a->candidates->scale + at));
            some.inverse[j] = lanes_load(a->candidates->inverse + at);
            some.shift[j] = lanes_load(a->candidates->shift + at);
            total[j] = lanes_splat(0);
        }
        for (size_t first = 0; first < n; first += BETWEEN_TOTALS) {
            const float *x = turned + first * each, *const end = turned + (n - first < BETWEEN_TOTALS ? n : first + BETWEEN_TOTALS) * each;
            fetch(&prefetch);
            for (int j = 0; j < ABREAST; j++)
                some.sum[j] = lanes_splat(0);
            for (; x < end; x += each) {
                const lanes v = lanes_load(x);
                add_errors(target, kind, weighted, &k, v, target == INTEGERS ? lanes_load(x + L) : v,
                           weighted ? lanes_load(x + each - L) : v, &some);
            }
            for (int j = 0; j < ABREAST; j++)
                total[j] = lanes_add(total[j], some.sum[j]);
        }
        for (int j = 0; j < ABREAST; j++)
            lanes_store(a->sum + (c + (size_t)j) * L, total[j]);
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

ALWAYS_INLINE void weighted_elements(enum target target, enum qobs_norm_kind kind, const struct arguments *a)
{
    by_elements(target, kind, true, a);
}

ALWAYS_INLINE void qparams(enum target target, enum qobs_norm_kind kind, const struct arguments *a)
{
    by_qparams(target, kind, false, a);
}

ALWAYS_INLINE void weighted_qparams(enum target target, enum qobs_norm_kind kind, const struct arguments *a)
{
    by_qparams(target, kind, true, a);
}

EACH_NORM(elements, INTEGERS)
EACH_NORM(elements, INTEGERS_SHIFTED)
EACH_NORM(elements, FLOATS)
EACH_NORM(weighted_elements, INTEGERS)
EACH_NORM(weighted_elements, INTEGERS_SHIFTED)
EACH_NORM(weighted_elements, FLOATS)
EACH_NORM(weighted_elements, FLOATS_SHIFTED)
EACH_NORM(qparams, INTEGERS)
EACH_NORM(qparams, INTEGERS_SHIFTED)
EACH_NORM(qparams, FLOATS)
EACH_NORM(weighted_qparams, INTEGERS)
EACH_NORM(weighted_qparams, INTEGERS_SHIFTED)
EACH_NORM(weighted_qparams, FLOATS)
EACH_NORM(weighted_qparams, FLOATS_SHIFTED)

static enum target target_of(const struct qobs_quantizer *quantizer, bool with_shift)
{
    if ((double)quantizer->min_normal >= quantizer->quant_max)
        return with_shift ? INTEGERS_SHIFTED : INTEGERS;
    return with_shift ? FLOATS_SHIFTED : FLOATS;
}

QOBS_SEARCH_ERRORS(ENTRY(qobs_search_errors))
{
    static errors_fn *const functions[4][2][QOBS_NORM_POW + 1] = {
        [INTEGERS] = {FUNCTIONS(elements, INTEGERS), FUNCTIONS(weighted_elements, INTEGERS)},
        [INTEGERS_SHIFTED] = {FUNCTIONS(elements, INTEGERS_SHIFTED), FUNCTIONS(weighted_elements, INTEGERS_SHIFTED)},
        [FLOATS] = {FUNCTIONS(elements, FLOATS), FUNCTIONS(weighted_elements, FLOATS)},
        [FLOATS_SHIFTED] = {[true] = FUNCTIONS(weighted_elements, FLOATS_SHIFTED)},
    };
    const struct arguments a = {quantizer, norm, x, weight, 0, n, candidates, count, prefetch, sum};
    functions[target_of(quantizer, with_shift)][weight != NULL][norm->kind](&a);
}

QOBS_SEARCH_BATCH(ENTRY(qobs_search_batch))
{
    static errors_fn *const functions[4][2][QOBS_NORM_POW + 1] = {
        [INTEGERS] = {FUNCTIONS(qparams, INTEGERS), FUNCTIONS(weighted_qparams, INTEGERS)},
        [INTEGERS_SHIFTED] = {FUNCTIONS(qparams, INTEGERS_SHIFTED), FUNCTIONS(weighted_qparams, INTEGERS_SHIFTED)},
        [FLOATS] = {FUNCTIONS(qparams, FLOATS), FUNCTIONS(weighted_qparams, FLOATS)},
        [FLOATS_SHIFTED] = {[true] = FUNCTIONS(weighted_qparams, FLOATS_SHIFTED)},
    };
    const struct arguments a = {quantizer, norm, x, weight, row, n, candidates, count, prefetch, sum};
    functions[target_of(quantizer, with_shift)][weight != NULL][norm->kind](&a);
}

/* ---- Steps that improve ----------------------------------------------------------------------------------------------- */

QOBS_SEARCH_IMPROVED(ENTRY(qobs_search_improved))
{
    lanes so_far = lanes_load(bound), at = lanes_splat(-1);
    _Alignas(64) float steps[QOBS_SEARCH_LANES];
    for (size_t first = 0; first < n; first += 64) {
        uint64_t some = 0;
        for (size_t c = first; c < n && c < first + 64; c++)
            some |= (uint64_t)lanes_improve(lanes_load(sum + c * QOBS_SEARCH_LANES), (float)c, &so_far, &at) << (c - first);
        improved[first / 64] |= some;
    }
    lanes_store(best, so_far);
    lanes_store(steps, at);
    for (int i = 0; i < QOBS_SEARCH_LANES; i++)
        step[i] = (int32_t)steps[i];
}

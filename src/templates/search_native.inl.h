/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors of candidates in upstream's own arithmetic for BF16 and F16, plain C for every instruction set; included by
 * src/ISA/search.c with its ENTRY. Its flags decide how wide the compiler makes the loops.
 *
 * Accumulators: 16 lanes of double, one for each residue of the element's index, folded as a tree at the end. Powers
 * are numbers of the dtype, so that the sum is exact to 2^-45 and its one rounding to the dtype is upstream's.
 * Overflow: a product beyond the dtype is infinite, and so is its power; the candidate then improves nothing.
 * Tails: elements are padded with zeros to a multiple of 16, whose errors are 0 or have the weight 0.
 * In flight: 16 elements; then the powers of up to 256, one by one. Their loads hit L1: errors span few exponents.
 * Caller's duty: round to nearest, no flushing of subnormals; x and scales are numbers of the dtype. */
#include <float.h>

#include "kernels/kernel_search.h"
#include "number/grid.h"
#include "number/number.h"
#include "templates/inline.h"

struct native_how {
    bool bf16, integers, shifted, weighted, rounded, apart, inverse, to_rows; /* weighted: not apart */
};

enum { CHUNK = 256 }; /* elements */

/* The results: sums to add to, one for each candidate; or, with to_rows, rows of powers (QOBS_SEARCH_NATIVE_ROWS).
 * power: a buffer of CHUNK for powers in float, aligned to 64 bytes. */
struct native_results {
    double *sum;
    float *row;
    size_t stride;
    float *power;
};

/* Rounds to the dtype. BF16 stays in 32 bits: a NaN of arithmetic is quiet, so that the addition does not carry out of
 * its mantissa. */
ALWAYS_INLINE float round_half(bool bf16, float v)
{
    const uint32_t bits = bits_of_float(v);
    return bf16 ? float_of_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000) : float_of_f16(f16_of_float(v));
}

/* The bits of |v|, rounded to the dtype. */
ALWAYS_INLINE uint16_t half_bits(bool bf16, float v)
{
    const uint32_t bits = bits_of_float(v) & INT32_MAX;
    return (uint16_t)(bf16 ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : f16_of_float(fabsf(v)));
}

/* From the fine table. Below 2^-126 the power is that of t. */
ALWAYS_INLINE float fine_power(const struct native_norm *norm, float e)
{
    const uint32_t upper = bits_of_float(e) >> 16;
    const float t = float_of_bits(upper << 16), d = e >= 0x1p-126f && e <= FLT_MAX ? (e - t) / t : 0;
    const float *const c = norm->series;
    return norm->fine[upper] * (1 + d * (c[0] + d * (c[1] + d * (c[2] + d * c[3]))));
}

/* Keeps a sum out of vectors. */
#if defined(__AVX512F__)
#define KEEP_SCALAR(sum) __asm__("" : "+v"(sum))
#elif defined(__x86_64__)
#define KEEP_SCALAR(sum) __asm__("" : "+x"(sum))
#else
#define KEEP_SCALAR(sum) ((void)(sum))
#endif

ALWAYS_INLINE double add_power(double sum, double power, const float *weight, size_t i)
{
    sum += weight ? (double)((float)power * weight[i]) : power;
    KEEP_SCALAR(sum);
    return sum;
}

#define EACH_LANE(DO)                                                                                                  \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)

/* Adds powers from the table. Compilers make a vector of 16 loads, which takes longer than 16 scalar additions; their
 * vector gathers take longer still on CPUs with the mitigation of gather data sampling. */
ALWAYS_INLINE void add_powers(const double *table, const uint16_t *index, const float *weight, size_t n, double *lane)
{
#define BEGIN(j) double sum_##j = lane[j];
#define ADD(j) sum_##j = add_power(sum_##j, table[index[i + (j)]], weight, i + (j));
#define END(j) lane[j] = sum_##j;
    EACH_LANE(BEGIN)
    for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES) {
        EACH_LANE(ADD)
    }
    EACH_LANE(END)
#undef BEGIN
#undef ADD
#undef END
}
#undef EACH_LANE
#undef KEEP_SCALAR

/* Adds powers that are not rounded to the dtype. */
ALWAYS_INLINE void add_floats(const float *power, size_t n, double *lane)
{
    enum { PARTS = QOBS_SEARCH_LANES / 4 };
    f64x4 sum[PARTS];
    memcpy(sum, lane, sizeof sum);
    for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES)
        for (size_t part = 0; part < PARTS; part++)
            sum[part] += __builtin_convertvector(((const f32x4 *)(const void *)(power + i))[part], f64x4);
    memcpy(lane, sum, sizeof sum);
}

/* Stores powers from the table, `stride` floats apart. */
ALWAYS_INLINE void store_powers(const double *table, const uint16_t *index, size_t n, float *column, size_t stride)
{
    for (size_t i = 0; i < n; i++)
        column[i * stride] = (float)table[index[i]];
}

/* A quotient of BF16 numbers is no midpoint of two BF16 numbers, and at least 2^-17 of it away from one: its
 * significand is a fraction of 8-bit integers. So a product with the inverse, wrong by less than 2^-22, is rounded to
 * the same number, and so is its Veltkamp splitting, whose ties may go either way. The limits keep the inverse normal
 * and the splitting finite; what underflows rounds to 0 in every grid. `most`: the largest |x|. */
ALWAYS_INLINE bool inverse_is_exact(struct native_how how, float scale, float most)
{
    return how.bf16 && scale >= 0x1p-96f && scale <= 0x1p96f && most * (1 / scale) <= 0x1p100f;
}

#define BF16_SPLIT 0x1.0001p16f

/* A candidate. inverse and split are for how.inverse: 1 / scale, and that times BF16_SPLIT. */
struct native_candidate {
    float scale, zero_point, inverse, split;
};

/* The place of x among the quantized numbers, not limited to them. */
ALWAYS_INLINE float native_quotient(struct native_how how, float x, struct native_candidate c)
{
    float v;
    if (how.inverse) {
        const float spread = x * c.split;
        v = spread - (spread - x * c.inverse);
    } else {
        v = round_half(how.bf16, x / c.scale);
    }
    return how.shifted ? round_half(how.bf16, v + c.zero_point) : v;
}

/* The number that v, a quantized number, stands for. */
ALWAYS_INLINE float native_level(struct native_how how, float v, float scale, float zero_point)
{
    if (how.shifted)
        v = round_half(how.bf16, v - zero_point);
    return round_half(how.bf16, v * scale);
}

ALWAYS_INLINE float native_error(struct native_how how, struct grid_float grid, float quant_min, float quant_max,
                                 float x, struct native_candidate c)
{
    float v = native_quotient(how, x, c);
    v = v < quant_min ? quant_min : v;
    v = v > quant_max ? quant_max : v;
    v = how.integers ? grid_round_integer_float(v) : grid_round_float(grid, v);
    return native_level(how, v, c.scale, c.zero_point) - x;
}

/* ---- Sums and rows ----------------------------------------------------------------------------------------------- */

/* gcc makes vectors of 256 bits of a loop over lanes only if it stays a loop, and shorter code for 512 bits if not. */
#ifdef __AVX512F__
#define AS_VECTORS
#else
#define AS_VECTORS KEEP_LOOP
#endif

/* The lanes 8 apart are added first, then those 4, 2 and 1 apart. Constant lengths: compilers make much of a loop whose
 * length halves. */
ALWAYS_INLINE double fold_lanes(const double *lane)
{
    double eight[8], four[4];
    for (int j = 0; j < 8; j++)
        eight[j] = lane[j] + lane[j + 8];
    for (int j = 0; j < 4; j++)
        four[j] = eight[j] + eight[j + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* Errors that are not rounded to the dtype, to the power norm->exponent, times their weights. */
ALWAYS_INLINE void products_of(struct native_how how, const struct native_norm *norm, const float *error,
                               const float *weight, float *power)
{
    const f32x16 e = f32x16_abs(f32x16_load(error));
    f32x16 p = e;
    for (int k = 1; k < norm->exponent; k++)
        p = f32x16_mul(p, e);
    f32x16_store(power, p);
    if (how.weighted) {
        AS_VECTORS
        for (int j = 0; j < QOBS_SEARCH_LANES; j++)
            power[j] *= weight[j];
    }
}

/* The same in place, also by the fine table. A call, which loops over errors share: the table takes most of the time,
 * and so do the quotients of F16. */
static __attribute__((noinline)) void powers_apart(const struct native_norm *norm, const float *weight, size_t n,
                                                   float *error)
{
    for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES) {
        _Alignas(64) float power[QOBS_SEARCH_LANES];
        if (norm->fine) {
            f32x16_store(power, f32x16_abs(f32x16_load(error + i)));
            for (int j = 0; j < QOBS_SEARCH_LANES; j++)
                power[j] = fine_power(norm, power[j]);
        } else {
            products_of((struct native_how){0}, norm, error + i, NULL, power);
        }
        for (int j = 0; weight && j < QOBS_SEARCH_LANES; j++)
            power[j] *= weight[i + (size_t)j];
        memcpy(error + i, power, sizeof power);
    }
}

/* The sum of the errors of candidate `at`, which are rounded to the dtype, and so are their powers; with to_rows the
 * row, and 0. */
ALWAYS_INLINE double rounded_errors(struct native_how how, const struct quantizer *quantizer,
                                    const struct native_norm *norm, const float *x, const float *weight, size_t n,
                                    struct native_candidate c, struct native_results results, size_t at)
{
    const struct grid_float grid = {quantizer->min_normal, quantizer->shifter};
    const float quant_min = (float)quantizer->quant_min, quant_max = (float)quantizer->quant_max;
    double lane[QOBS_SEARCH_LANES] = {0};
    for (size_t first = 0; first < n; first += CHUNK) {
        const size_t count = n - first < CHUNK ? n - first : CHUNK;
        uint16_t index[CHUNK];
        for (size_t i = 0; i < count; i += QOBS_SEARCH_LANES) {
            float error[QOBS_SEARCH_LANES];
            AS_VECTORS
            for (int j = 0; j < QOBS_SEARCH_LANES; j++)
                error[j] = native_error(how, grid, quant_min, quant_max, x[first + i + (size_t)j], c);
            AS_VECTORS
            for (int j = 0; j < QOBS_SEARCH_LANES; j++)
                index[i + (size_t)j] = half_bits(how.bf16, error[j]);
        }
        if (how.to_rows)
            store_powers(norm->table, index, count, results.row + first * results.stride + at, results.stride);
        else
            add_powers(norm->table, index, how.weighted ? weight + first : NULL, count, lane);
    }
    return how.to_rows ? 0 : fold_lanes(lane);
}

/* The same in float. */
ALWAYS_INLINE double float_errors(struct native_how how, const struct quantizer *quantizer,
                                  const struct native_norm *norm, const float *x, const float *weight, size_t n,
                                  struct native_candidate c, float *power)
{
    const struct grid_float grid = {quantizer->min_normal, quantizer->shifter};
    const float quant_min = (float)quantizer->quant_min, quant_max = (float)quantizer->quant_max;
    double lane[QOBS_SEARCH_LANES] = {0};
    for (size_t first = 0; first < n; first += CHUNK) {
        const size_t count = n - first < CHUNK ? n - first : CHUNK;
        for (size_t i = 0; i < count; i += QOBS_SEARCH_LANES) {
            _Alignas(64) float error[QOBS_SEARCH_LANES];
            AS_VECTORS
            for (int j = 0; j < QOBS_SEARCH_LANES; j++)
                error[j] = native_error(how, grid, quant_min, quant_max, x[first + i + (size_t)j], c);
            if (how.apart)
                memcpy(power + i, error, sizeof error);
            else
                products_of(how, norm, error, how.weighted ? weight + first + i : NULL, power + i);
        }
        if (how.apart)
            powers_apart(norm, weight ? weight + first : NULL, count, power);
        add_floats(power, count, lane);
    }
    return fold_lanes(lane);
}

/* The largest magnitude of n elements and the padding. NaN may be ignored: its error is NaN anyway. */
DEEP_INLINE float largest_magnitude(const float *x, size_t n)
{
    _Alignas(64) float lane[QOBS_SEARCH_LANES];
    f32x16 so_far = f32x16_splat(0);
    for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES)
        so_far = f32x16_max_bits(so_far, f32x16_abs(f32x16_load(x + i)));
    f32x16_store(lane, so_far);
    for (int half = QOBS_SEARCH_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] = lane[j + half] > lane[j] ? lane[j + half] : lane[j];
    return lane[0];
}

ALWAYS_INLINE struct native_candidate candidate_at(struct native_how how, const struct search_candidates *candidates,
                                                   size_t c)
{
    const float scale = candidates->scale[c * candidates->step], shift = candidates->shift[c * candidates->step];
    return (struct native_candidate){scale, how.integers ? shift - 0x1.8p23f : shift, 1 / scale,
                                     1 / scale * BF16_SPLIT};
}

ALWAYS_INLINE void native_candidates(struct native_how how, const struct quantizer *quantizer,
                                     const struct native_norm *norm, const float *x, const float *weight, size_t n,
                                     const struct search_candidates *candidates, size_t count,
                                     struct native_results results)
{
    struct native_how by_inverse = how;
    struct native_candidate before = {.scale = NAN}; /* powers of two are the scales of many candidates each */
    const float most = largest_magnitude(x, n);
    double sum = 0;
    by_inverse.inverse = true;
    for (size_t i = 0; i < count; i++) {
        const struct native_candidate c = candidate_at(how, candidates, i);
        const bool exact = inverse_is_exact(how, c.scale, most);
        const bool same = !how.to_rows && c.scale == before.scale && c.zero_point == before.zero_point;
        if (!same && how.rounded && exact)
            sum = rounded_errors(by_inverse, quantizer, norm, x, weight, n, c, results, i);
        else if (!same && how.rounded)
            sum = rounded_errors(how, quantizer, norm, x, weight, n, c, results, i);
        else if (!same && exact)
            sum = float_errors(by_inverse, quantizer, norm, x, weight, n, c, results.power);
        else if (!same)
            sum = float_errors(how, quantizer, norm, x, weight, n, c, results.power);
        if (!how.to_rows)
            results.sum[i] += sum;
        before = c;
    }
}

/* Each combination is a loop of its own. gcc allocates registers badly in functions of more than 100 loops
 * (--param ira-max-loops-num), so there are two of them. */
#define EACH_SHIFT(CALL, ...)                                                                                          \
    do {                                                                                                               \
        if (with_shift)                                                                                                \
            CALL(__VA_ARGS__, true);                                                                                   \
        else                                                                                                           \
            CALL(__VA_ARGS__, false);                                                                                  \
    } while (0)
#define EACH_WEIGHT(CALL, bf16, integers)                                                                              \
    do {                                                                                                               \
        if (weight)                                                                                                    \
            EACH_SHIFT(CALL, bf16, integers, true);                                                                    \
        else                                                                                                           \
            EACH_SHIFT(CALL, bf16, integers, false);                                                                   \
    } while (0)
#define EACH_GRID(EACH, CALL)                                                                                          \
    do {                                                                                                               \
        const bool integers = (double)quantizer->min_normal >= quantizer->quant_max;                                   \
        if (is_bf16 && integers)                                                                                       \
            EACH(CALL, true, true);                                                                                    \
        else if (is_bf16)                                                                                              \
            EACH(CALL, true, false);                                                                                   \
        else if (integers)                                                                                             \
            EACH(CALL, false, true);                                                                                   \
        else                                                                                                           \
            EACH(CALL, false, false);                                                                                  \
    } while (0)

#define NATIVE_SUMS(bf16, integers, weighted, rounded, apart, shifted)                                                 \
    native_candidates((struct native_how){bf16, integers, shifted, weighted, rounded, apart, false, false}, quantizer, \
                      norm, x, weight, n, candidates, count, results)
#define ROUNDED(bf16, integers, weighted, shifted) NATIVE_SUMS(bf16, integers, weighted, true, false, shifted)
#define PRODUCTS(bf16, integers, weighted, shifted) NATIVE_SUMS(bf16, integers, weighted, false, false, shifted)
#define APART(bf16, integers, shifted) NATIVE_SUMS(bf16, integers, false, false, true, shifted)

static __attribute__((noinline)) QOBS_SEARCH_NATIVE(search_rounded)
{
    const struct native_results results = {.sum = sum};
    EACH_GRID(EACH_WEIGHT, ROUNDED);
}

static __attribute__((noinline)) QOBS_SEARCH_NATIVE(search_in_float)
{
    _Alignas(64) float power[CHUNK];
    const struct native_results results = {.sum = sum, .power = power};
    if (norm->fine || !is_bf16)
        EACH_GRID(EACH_SHIFT, APART);
    else
        EACH_GRID(EACH_WEIGHT, PRODUCTS);
}

QOBS_SEARCH_NATIVE(ENTRY(qobs_search_native))
{
    CLEARS_UPPER_HALVES
    if (norm->table)
        search_rounded(quantizer, norm, is_bf16, with_shift, x, weight, n, candidates, count, sum);
    else
        search_in_float(quantizer, norm, is_bf16, with_shift, x, weight, n, candidates, count, sum);
}

QOBS_SEARCH_NATIVE_ROWS(ENTRY(qobs_search_native_rows))
{
    CLEARS_UPPER_HALVES
    native_candidates((struct native_how){.bf16 = true, .integers = true, .rounded = true, .to_rows = true}, quantizer,
                      norm, x, NULL, n, candidates, count, (struct native_results){.row = row, .stride = stride});
}

#undef EACH_SHIFT
#undef EACH_WEIGHT
#undef EACH_GRID
#undef NATIVE_SUMS
#undef ROUNDED
#undef PRODUCTS
#undef APART

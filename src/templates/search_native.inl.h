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
    bool bf16, integers, shifted, weighted, rounded, fine, levels, inverse;
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

/* |e|^norm for errors that are not rounded to the dtype: a product, or from the fine table. */
ALWAYS_INLINE float power_of(struct native_how how, const struct native_norm *norm, float error)
{
    const float e = fabsf(error);
    if (how.fine)
        return fine_power(norm, e);
    return norm->exponent == 1 ? e : norm->exponent == 2 ? e * e : e * e * e;
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
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)                                                                    \
    DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)

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

/* A quotient of BF16 numbers is no midpoint of two BF16 numbers, and at least 2^-17 of it away from one: its
 * significand is a fraction of 8-bit integers. So a product with the inverse, wrong by less than 2^-22, is rounded to
 * the same number. The limits keep the inverse normal; what underflows rounds to 0 in every grid. */
ALWAYS_INLINE bool inverse_is_exact(struct native_how how, float scale)
{
    return how.bf16 && scale >= 0x1p-96f && scale <= 0x1p96f;
}

/* The place of x among the quantized numbers, not limited to them. `inverse`: 1 / scale if how.inverse. */
ALWAYS_INLINE float native_quotient(struct native_how how, float x, float scale, float inverse, float zero_point)
{
    const float v = round_half(how.bf16, how.inverse ? x * inverse : x / scale);
    return how.shifted ? round_half(how.bf16, v + zero_point) : v;
}

/* The number that v, a quantized number, stands for. */
ALWAYS_INLINE float native_level(struct native_how how, float v, float scale, float zero_point)
{
    if (how.shifted)
        v = round_half(how.bf16, v - zero_point);
    return round_half(how.bf16, v * scale);
}

ALWAYS_INLINE float native_error(struct native_how how, struct grid_float grid, float quant_min, float quant_max,
                                 float x, float scale, float inverse, float zero_point)
{
    float v = native_quotient(how, x, scale, inverse, zero_point);
    v = v < quant_min ? quant_min : v;
    v = v > quant_max ? quant_max : v;
    v = how.integers ? grid_round_integer_float(v) : grid_round_float(grid, v);
    return native_level(how, v, scale, zero_point) - x;
}

/* Levels of integers in a vector: entry k % 16 is that of k. The range has at most 16 integers. */
#ifdef F32X16_PERMUTES
ALWAYS_INLINE bool has_levels(struct native_how how, float quant_min, float quant_max)
{
    return how.integers && how.rounded && quant_max - quant_min < QOBS_SEARCH_LANES;
}

ALWAYS_INLINE void quantized_numbers(float quant_min, float *number)
{
    const int first = (int)quant_min;
    for (int j = 0; j < QOBS_SEARCH_LANES; j++)
        number[j] = (float)(first + ((j - first) & (QOBS_SEARCH_LANES - 1)));
}

ALWAYS_INLINE f32x16 native_levels(struct native_how how, const float *number, float scale, float zero_point)
{
    _Alignas(64) float level[QOBS_SEARCH_LANES];
    for (int j = 0; j < QOBS_SEARCH_LANES; j++)
        level[j] = how.shifted ? round_half(how.bf16, number[j] - zero_point) : number[j];
    f32x16_store(level, f32x16_mul(f32x16_load(level), f32x16_splat(scale)));
    for (int j = 0; j < QOBS_SEARCH_LANES; j++)
        level[j] = round_half(how.bf16, level[j]);
    return f32x16_load(level);
}

/* native_error of 16 elements. The low bits of a float that adds 1.5 * 2^23 are those of the nearest integer. */
ALWAYS_INLINE void errors_of_levels(struct native_how how, f32x16 level, float quant_min, float quant_max,
                                    const float *x, float scale, float inverse, float zero_point, float *error)
{
    _Alignas(64) float v[QOBS_SEARCH_LANES];
    for (int j = 0; j < QOBS_SEARCH_LANES; j++)
        v[j] = native_quotient(how, x[j], scale, inverse, zero_point);
    const f32x16 limited = f32x16_limit(f32x16_load(v), f32x16_splat(quant_min), f32x16_splat(quant_max));
    f32x16_store(v, f32x16_permute(level, f32x16_add(limited, f32x16_splat(0x1.8p23f))));
    for (int j = 0; j < QOBS_SEARCH_LANES; j++)
        error[j] = v[j] - x[j];
}
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

ALWAYS_INLINE double native_sum(struct native_how how, const struct quantizer *quantizer,
                                const struct native_norm *norm, const float *x, const float *weight, size_t n,
                                const float *number, float scale, float inverse, float zero_point)
{
    const struct grid_float grid = {quantizer->min_normal, quantizer->shifter};
    (void)number; /* for levels */
    const float quant_min = (float)quantizer->quant_min, quant_max = (float)quantizer->quant_max;
    double lane[QOBS_SEARCH_LANES] = {0};
    enum { CHUNK = 256 };
#ifdef F32X16_PERMUTES
    const f32x16 level = how.levels ? native_levels(how, number, scale, zero_point) : f32x16_splat(0);
#endif
    for (size_t first = 0; first < n; first += CHUNK) {
        const size_t count = n - first < CHUNK ? n - first : CHUNK;
        uint16_t index[CHUNK];
        for (size_t i = 0; i < count; i += QOBS_SEARCH_LANES) {
            float error[QOBS_SEARCH_LANES];
#ifdef F32X16_PERMUTES
            if (how.levels)
                errors_of_levels(how, level, quant_min, quant_max, x + first + i, scale, inverse, zero_point, error);
            else
#endif
                for (int j = 0; j < QOBS_SEARCH_LANES; j++)
                    error[j] = native_error(how, grid, quant_min, quant_max, x[first + i + (size_t)j], scale, inverse,
                                            zero_point);
            if (how.rounded)
                for (int j = 0; j < QOBS_SEARCH_LANES; j++)
                    index[i + (size_t)j] = half_bits(how.bf16, error[j]);
            else
                for (int j = 0; j < QOBS_SEARCH_LANES; j++) {
                    const float power = power_of(how, norm, error[j]);
                    lane[j] += (double)(how.weighted ? power * weight[first + i + (size_t)j] : power);
                }
        }
        if (how.rounded)
            add_powers(norm->table, index, how.weighted ? weight + first : NULL, count, lane);
    }
    return fold_lanes(lane);
}

ALWAYS_INLINE void native_sums(struct native_how how, const struct quantizer *quantizer, const struct native_norm *norm,
                               const float *x, const float *weight, size_t n,
                               const struct search_candidates *candidates, size_t count, double *sum)
{
    struct native_how by_inverse = how;
    _Alignas(64) float number[QOBS_SEARCH_LANES] = {0};
    by_inverse.inverse = true;
#ifdef F32X16_PERMUTES
    if (how.levels)
        quantized_numbers((float)quantizer->quant_min, number);
#endif
    for (size_t c = 0; c < count; c++) {
        const float shift = candidates->shift[c * candidates->step], scale = candidates->scale[c * candidates->step],
                    zero_point = how.integers ? shift - 0x1.8p23f : shift;
        if (inverse_is_exact(how, scale))
            sum[c] += native_sum(by_inverse, quantizer, norm, x, weight, n, number, scale, 1 / scale, zero_point);
        else
            sum[c] += native_sum(how, quantizer, norm, x, weight, n, number, scale, 0, zero_point);
    }
}

ALWAYS_INLINE void with_levels(struct native_how how, const struct quantizer *quantizer, const struct native_norm *norm,
                               const float *x, const float *weight, size_t n,
                               const struct search_candidates *candidates, size_t count, double *sum)
{
#ifdef F32X16_PERMUTES
    if (has_levels(how, (float)quantizer->quant_min, (float)quantizer->quant_max)) {
        how.levels = true;
        native_sums(how, quantizer, norm, x, weight, n, candidates, count, sum);
        return;
    }
#endif
    native_sums(how, quantizer, norm, x, weight, n, candidates, count, sum);
}

/* Every combination is a loop of its own. */
#define EACH_FLAG(CALL, ...)                                                                                           \
    do {                                                                                                               \
        if (with_shift)                                                                                                \
            CALL(__VA_ARGS__, true);                                                                                   \
        else                                                                                                           \
            CALL(__VA_ARGS__, false);                                                                                  \
    } while (0)
#define NATIVE_SUMS(bf16, integers, weighted, rounded, fine, shifted)                                                  \
    with_levels((struct native_how){bf16, integers, shifted, weighted, rounded, fine, false, false}, quantizer, norm,  \
                x, weight, n, candidates, count, sum)
#define NATIVE_ROUNDED(bf16, integers, weighted)                                                                       \
    do {                                                                                                               \
        if (norm->table)                                                                                               \
            EACH_FLAG(NATIVE_SUMS, bf16, integers, weighted, true, false);                                             \
        else if (norm->fine)                                                                                           \
            EACH_FLAG(NATIVE_SUMS, bf16, integers, weighted, false, true);                                             \
        else                                                                                                           \
            EACH_FLAG(NATIVE_SUMS, bf16, integers, weighted, false, false);                                            \
    } while (0)
#define NATIVE_WEIGHTED(bf16, integers)                                                                                \
    do {                                                                                                               \
        if (weight)                                                                                                    \
            NATIVE_ROUNDED(bf16, integers, true);                                                                      \
        else                                                                                                           \
            NATIVE_ROUNDED(bf16, integers, false);                                                                     \
    } while (0)

QOBS_SEARCH_NATIVE(ENTRY(qobs_search_native))
{
    const bool integers = (double)quantizer->min_normal >= quantizer->quant_max;
    if (is_bf16 && integers)
        NATIVE_WEIGHTED(true, true);
    else if (is_bf16)
        NATIVE_WEIGHTED(true, false);
    else if (integers)
        NATIVE_WEIGHTED(false, true);
    else
        NATIVE_WEIGHTED(false, false);
}

#undef EACH_FLAG
#undef NATIVE_SUMS
#undef NATIVE_ROUNDED
#undef NATIVE_WEIGHTED

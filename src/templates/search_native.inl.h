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
    bool bf16, integers, shifted, weighted, rounded, fine;
};

/* Rounds to the dtype. BF16 stays in 32 bits: a NaN of arithmetic is quiet, so that the addition does not carry out of
 * its mantissa. */
ALWAYS_INLINE float round_half(bool bf16, float v)
{
    const uint32_t bits = bits_of_float(v);
    return bf16 ? float_of_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000) : float_of_f16(f16_of_float(v));
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

/* Adds powers from the table. Compilers make a vector of 16 loads, which takes twice as long as 16 scalar additions;
 * their vector gathers take longer still on CPUs with the mitigation of gather data sampling. */
ALWAYS_INLINE void add_powers(const double *table, const uint16_t *index, const float *weight, size_t n, double *lane)
{
    double sum[QOBS_SEARCH_LANES];
    for (int j = 0; j < QOBS_SEARCH_LANES; j++)
        sum[j] = lane[j];
    for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES)
        for (int j = 0; j < QOBS_SEARCH_LANES; j++) {
            const double power = table[index[i + (size_t)j]];
            sum[j] += weight ? (double)((float)power * weight[i + (size_t)j]) : power;
        }
    for (int j = 0; j < QOBS_SEARCH_LANES; j++)
        lane[j] = sum[j];
}

/* A quotient of BF16 numbers is no midpoint of two BF16 numbers, and at least 2^-17 of it away from one: its
 * significand is a fraction of 8-bit integers. So a product with the inverse, wrong by less than 2^-22, is rounded to
 * the same number. The limits keep the inverse normal; what underflows rounds to 0 in every grid. */
ALWAYS_INLINE bool inverse_is_exact(struct native_how how, float scale)
{
    return how.bf16 && scale >= 0x1p-96f && scale <= 0x1p96f;
}

/* `inverse`: 0, or 1 / scale if inverse_is_exact. */
ALWAYS_INLINE float native_error(struct native_how how, struct grid_float grid, float quant_min, float quant_max,
                                 float x, float scale, float inverse, float zero_point)
{
    float v = round_half(how.bf16, inverse != 0 ? x * inverse : x / scale);
    if (how.shifted)
        v = round_half(how.bf16, v + zero_point);
    v = v < quant_min ? quant_min : v;
    v = v > quant_max ? quant_max : v;
    v = how.integers ? grid_round_integer_float(v) : grid_round_float(grid, v);
    if (how.shifted)
        v = round_half(how.bf16, v - zero_point);
    const float error = round_half(how.bf16, v * scale) - x;
    return how.rounded ? round_half(how.bf16, error) : error;
}

ALWAYS_INLINE double native_sum(struct native_how how, const struct quantizer *quantizer,
                                const struct native_norm *norm, const float *x, const float *weight, size_t n,
                                float scale, float inverse, float zero_point)
{
    const struct grid_float grid = {quantizer->min_normal, quantizer->shifter};
    const float quant_min = (float)quantizer->quant_min, quant_max = (float)quantizer->quant_max;
    double lane[QOBS_SEARCH_LANES] = {0};
    enum { CHUNK = 256 };
    for (size_t first = 0; first < n; first += CHUNK) {
        const size_t count = n - first < CHUNK ? n - first : CHUNK;
        uint16_t index[CHUNK];
        for (size_t i = 0; i < count; i += QOBS_SEARCH_LANES) {
            float error[QOBS_SEARCH_LANES];
            for (int j = 0; j < QOBS_SEARCH_LANES; j++)
                error[j] = native_error(how, grid, quant_min, quant_max, x[first + i + (size_t)j], scale, inverse,
                                        zero_point);
            if (how.rounded)
                for (int j = 0; j < QOBS_SEARCH_LANES; j++) {
                    const float e = fabsf(error[j]);
                    index[i + (size_t)j] = (uint16_t)(how.bf16 ? bits_of_float(e) >> 16 : f16_of_float(e));
                }
            else
                for (int j = 0; j < QOBS_SEARCH_LANES; j++) {
                    const float power = power_of(how, norm, error[j]);
                    lane[j] += (double)(how.weighted ? power * weight[first + i + (size_t)j] : power);
                }
        }
        if (how.rounded)
            add_powers(norm->table, index, how.weighted ? weight + first : NULL, count, lane);
    }
    for (int half = QOBS_SEARCH_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

ALWAYS_INLINE void native_sums(struct native_how how, const struct quantizer *quantizer, const struct native_norm *norm,
                               const float *x, const float *weight, size_t n,
                               const struct search_candidates *candidates, size_t count, double *sum)
{
    for (size_t c = 0; c < count; c++) {
        const float shift = candidates->shift[c * candidates->step], scale = candidates->scale[c * candidates->step],
                    zero_point = how.integers ? shift - 0x1.8p23f : shift;
        if (inverse_is_exact(how, scale))
            sum[c] += native_sum(how, quantizer, norm, x, weight, n, scale, 1 / scale, zero_point);
        else
            sum[c] += native_sum(how, quantizer, norm, x, weight, n, scale, 0, zero_point);
    }
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
    native_sums((struct native_how){bf16, integers, shifted, weighted, rounded, fine}, quantizer, norm, x, weight, n,  \
                candidates, count, sum)
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

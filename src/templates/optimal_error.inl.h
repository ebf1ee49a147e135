/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors of optimal scales for every instruction set; included by src/ISA/optimal.c with its ENTRY. Doubles are vectors
 * of four, an extension of both compilers: an instruction set without them gets several instructions.
 *
 * Accumulators: eight doubles. q - zero_point has 9 bits and the scale 24, so their product is exact.
 * Overflow: |w / scale| may be infinite and is limited before it is rounded.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h); a scale other than 0. */
#include "kernels/kernel_optimal.h"
#include "number/grid.h"
#include "templates/fixed_vectors.h"
#include "templates/inline.h"

enum { LANES = 8 };

/* Four of eight lanes of aligned arrays: part 0 or 1. */
#define WIDE(p, part) __builtin_convertvector(((const f32x4 *)(const void *)(p))[part], f64x4)
#define FOUR(p, part) (((const f64x4 *)(const void *)(p))[part])
#ifndef GREATER
#define GREATER(x, y) ((f64x4)(((i64x4)(x) & ((x) > (y))) | ((i64x4)(y) & ((x) <= (y)))))
#endif
#define POSITIVE(x) GREATER(x, (f64x4){0})
#define LESSER(x, y) ((f64x4)(((i64x4)(x) & ((x) < (y))) | ((i64x4)(y) & ((x) >= (y)))))
#define MAGNITUDE(x) ((f64x4)((i64x4)(x) & INT64_MAX))

/* Lanes 0 to 3 and 4 to 7. */
#define SUM_OF(sum)                                                                                                    \
    ((((sum)[0][0] + (sum)[0][1]) + ((sum)[0][2] + (sum)[0][3])) +                                                     \
     (((sum)[1][0] + (sum)[1][1]) + ((sum)[1][2] + (sum)[1][3])))

/* Quantized numbers of a chunk less the zero point. Numbers of e2m1 are 0.5, 1 or 2 apart: one digit after the first.
 */
ALWAYS_INLINE void quantize(bool e2m1, const struct optimal_number *number, const float *w, size_t n, float scale,
                            float zero_point, float *q)
{
    const float quant_min = number->quant_min, quant_max = number->quant_max;
    const struct grid_float grid = grid_float_make(1, 1);
    if (e2m1) {
        NO_DEPENDENCE
        for (size_t i = 0; i < n; i++) {
            const uint32_t x = bits_of_float(w[i] / scale), sign = x & 0x80000000;
            const int32_t a = (int32_t)(x & 0x7fffffff), most = 0x40c00000; /* 6 */
            q[i] = grid_round_float(grid, float_of_bits((uint32_t)(a < most ? a : most) | sign));
        }
        return;
    }
    NO_DEPENDENCE
    for (size_t i = 0; i < n; i++) {
        const float y = w[i] / scale + zero_point, low = y < quant_min ? quant_min : y;
        q[i] = grid_round_integer_float(low > quant_max ? quant_max : low) - zero_point;
    }
}

ALWAYS_INLINE double error_sum(bool e2m1, const struct optimal_number *number, const float *w, const double *h,
                               size_t n, float scale, float zero_point)
{
    enum { CHUNK = 128 };
    const double wide = (double)scale;
    f64x4 sum[2] = {{0}};
    for (size_t from = 0; from < n; from += CHUNK) {
        const size_t left = (n - from + QOBS_OPTIMAL_LANES - 1) / QOBS_OPTIMAL_LANES * QOBS_OPTIMAL_LANES;
        const size_t length = left < CHUNK ? left : CHUNK;
        _Alignas(64) float q[CHUNK];
        quantize(e2m1, number, w + from, length, scale, zero_point, q);
        for (size_t i = 0; i < length; i += LANES)
            for (int part = 0; part < 2; part++) {
                const f64x4 e = WIDE(q + i, part) * wide - WIDE(w + from + i, part);
                sum[part] += FOUR(h + from + i, part) * e * e;
            }
    }
    return SUM_OF(sum);
}

QOBS_OPTIMAL_ERROR(ENTRY(qobs_optimal_error))
{
    CLEARS_UPPER_HALVES
#ifdef OPTIMAL_ERROR_OF_FEW
    OPTIMAL_ERROR_OF_FEW(n, number, w, h, n, scale, zero_point)
#endif
    return number->e2m1 ? error_sum(true, number, w, h, n, scale, 0)
                        : error_sum(false, number, w, h, n, scale, zero_point);
}

/* Minimum and maximum of lanes, for instruction sets whose file does not define them. */
#ifndef LEAST_OF
#define LEAST_OF(a, b) (((a) & ((a) < (b))) | ((b) & ((a) >= (b))))
#define MOST_OF(a, b) (((a) & ((a) > (b))) | ((b) & ((a) <= (b))))
#endif

QOBS_OPTIMAL_NEARLY(ENTRY(qobs_optimal_nearly))
{
    CLEARS_UPPER_HALVES
    f32x8 s, inverse, sum[2] = {{0}};
    memcpy(&s, scale, sizeof s);
    inverse = 1 / s;
    const i32x8 zero = {0}, six = zero + 0x40c00000, one = zero + 0x3f800000, exponent = zero + 0x7f800000;
    for (size_t i = 0; i < n; i += 2)
        for (size_t l = 0; l < 2; l++) {
            const i32x8 x = (i32x8)(w[i + l] * inverse), limited = LEAST_OF(x, six), power = limited & exponent;
            const f32x8 rounder = (f32x8)(MOST_OF(power, one) + (22 << 23));
            const f32x8 e = ((f32x8)limited + rounder - rounder) * s - w[i + l];
            sum[l] += h[i + l] * (e * e);
        }
    const f32x8 total = sum[0] + sum[1];
    memcpy(error, &total, sizeof total);
}

ALWAYS_INLINE float largest_of(const i32x8 *bits)
{
    i32x4 half[2];
    memcpy(half, bits, sizeof half);
    const i32x4 first = half[0] > half[1], four = (half[0] & first) | (half[1] & ~first);
    const int32_t even = four[0] > four[2] ? four[0] : four[2], odd = four[1] > four[3] ? four[1] : four[3];
    return float_of_bits((uint32_t)(even > odd ? even : odd));
}

QOBS_OPTIMAL_MOMENTS(ENTRY(qobs_optimal_moments))
{
    CLEARS_UPPER_HALVES
    f64x4 energy[2] = {{0}}, magnitude[2] = {{0}}, weight[2] = {{0}};
    i32x8 up = {0}, down = {0};
    for (size_t i = 0; i < n; i += LANES) {
        /* as integers: a negative float is below 0, and after a change of its sign a positive one is */
        const i32x8 x = *(const i32x8 *)(const void *)(w + i), minus = x ^ INT32_MIN;
        up = MOST_OF(x, up);
        down = MOST_OF(minus, down);
        for (int part = 0; part < 2; part++) {
            const f64x4 x = WIDE(w + i, part), g = FOUR(h + i, part);
            energy[part] += g * (x * x);
            magnitude[part] += g * MAGNITUDE(x);
            weight[part] += g;
        }
    }
    *moments = (struct optimal_moments){.lo = -largest_of(&down),
                                        .hi = largest_of(&up),
                                        .energy = SUM_OF(energy),
                                        .magnitude = SUM_OF(magnitude),
                                        .weight = SUM_OF(weight)};
}

QOBS_OPTIMAL_BEYOND(ENTRY(qobs_optimal_beyond))
{
    CLEARS_UPPER_HALVES
    f64x4 square[2] = {{0}}, linear[2] = {{0}};
    const double high = (double)above, low = -(double)below;
    for (size_t i = 0; i < n; i += LANES)
        for (int part = 0; part < 2; part++) {
            const f64x4 x = WIDE(w + i, part), over = x - high, under = low - x;
            const f64x4 clipped = POSITIVE(GREATER(over, under));
            const f64x4 weighted = FOUR(h + i, part) * clipped;
            square[part] += weighted * clipped;
            linear[part] += weighted;
        }
    beyond[0] = SUM_OF(square);
    beyond[1] = SUM_OF(linear);
}

QOBS_OPTIMAL_EXCESS(ENTRY(qobs_optimal_excess))
{
    CLEARS_UPPER_HALVES
    const double inverse = 1 / scale, rounder = 0x1.8p52;
    for (size_t c = 0; c < caps; c += 4) {
        const double lower = lowest + (double)c;
        const f64x4 cap = {lower, lower + 1, lower + 2, lower + 3};
        f64x4 sum = {0};
        for (size_t i = 0; i < n; i++) {
            const double x = (double)w[i], y = x * inverse, limited = y < highest ? y : highest;
            if (y < lower)
                break;
            const double one = limited + rounder - rounder, free = x - one * scale, square = free * free;
            const f64x4 q = {one, one, one, one}, p = LESSER(q, cap), clipped = x - p * scale;
            sum += h[i] * (clipped * clipped - square);
        }
        for (size_t l = 0; l < 4; l++)
            excess[c + l] = sum[l];
    }
}

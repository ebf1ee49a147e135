/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantizing to codes, slowly: every operation in double with one rounding, the code by search among all numbers. */
#ifndef QOBS_TEST_CODES_H
#define QOBS_TEST_CODES_H

#include "kernels/kernel_quantize.h"
#include "quantize.h"

/* The numbers of a code and the arithmetic. */
struct code_way {
    enum code_kind kind;
    int bits; /* of integers */
    bool in_float;
};

static inline struct quantizer quantizer_of_codes(const struct code_way *way)
{
    struct quantizer q;
    if (way->kind == QOBS_CODE_INTEGER)
        qobs_quantizer_for_integers(&q, -(1 << (way->bits - 1)), (1 << (way->bits - 1)) - 1, false);
    else
        qobs_quantizer_for_format(&q, qobs_format_find(way->kind == QOBS_CODE_E4M3   ? "fp8_e4m3"
                                                       : way->kind == QOBS_CODE_E2M3 ? "fp6_e2m3"
                                                                                     : "fp4"));
    q.in_float = way->in_float;
    return q;
}

static inline double most_of_codes(const struct code_way *way)
{
    return way->kind == QOBS_CODE_E4M3   ? 448
           : way->kind == QOBS_CODE_E2M3 ? 7.5
           : way->kind == QOBS_CODE_E2M1 ? 6
                                         : (1 << (way->bits - 1)) - 1;
}

/* A positive number of the format with `mantissa` bits of mantissa and exponents from `least` on. */
static inline double number_of_code(int code, int mantissa, int least)
{
    const int exponent = code >> mantissa, digits = code & ((1 << mantissa) - 1);
    return exponent == 0 ? ldexp(digits, least - mantissa)
                         : ldexp(digits + (1 << mantissa), exponent - 1 + least - mantissa);
}

/* The nearest of `count` positive numbers; the even code of two. */
static inline int nearest_code(double x, int count, int mantissa, int least)
{
    int low = 0, high = count - 1;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        *(number_of_code(middle, mantissa, least) <= x ? &low : &high) = middle;
    }
    const double below = x - number_of_code(low, mantissa, least), above = number_of_code(high, mantissa, least) - x;
    return below < above || (below == above && low % 2 == 0) ? low : high;
}

/* x / scale + zero point, clamped. */
static inline double slow_scaled(const struct code_way *way, qobs_dtype x_dtype, double x, double scale,
                                 const double *zero_point)
{
    const qobs_dtype dtype = way->in_float && x_dtype != QOBS_F64 ? QOBS_F32 : x_dtype;
    const double most = most_of_codes(way), least = way->kind == QOBS_CODE_INTEGER ? -most - 1 : -most;
    double y = round_dtype(dtype, x / scale);
    if (zero_point)
        y = round_dtype(dtype, y + round_dtype(x_dtype, *zero_point));
    return y < least ? least : y > most ? most : y;
}

static inline unsigned char slow_code(const struct code_way *way, qobs_dtype dtype, double x, double scale,
                                      const double *zero_point)
{
    const double y = slow_scaled(way, dtype, x, scale, zero_point);
    switch (way->kind) {
    case QOBS_CODE_INTEGER:
        return isnan(y) ? 0 : (unsigned char)(int)nearbyint(y);
    case QOBS_CODE_E4M3:
        return isnan(y) ? 0x7f
                        : (unsigned char)(nearest_code(fabs((double)(float)y), 127, 3, -6) | (signbit(y) ? 0x80 : 0));
    case QOBS_CODE_E2M3:
        return isnan(y) ? 0x20
                        : (unsigned char)(nearest_code(fabs((double)(float)y), 32, 3, 0) | (signbit(y) ? 0x20 : 0));
    default:
        return isnan(y) ? 0 : (unsigned char)(nearest_code(fabs(y), 8, 1, 0) | (y < 0 ? 8 : 0));
    }
}

/* The number that a code stands for. */
static inline double slow_number(enum code_kind kind, unsigned char code)
{
    if (kind == QOBS_CODE_INTEGER)
        return (int8_t)code;
    if (kind == QOBS_CODE_E4M3)
        return (code & 0x7f) == 0x7f ? (double)NAN : copysign(number_of_code(code & 0x7f, 3, -6), code & 0x80 ? -1 : 1);
    if (kind == QOBS_CODE_E2M3)
        return copysign(number_of_code(code & 0x1f, 3, 0), code & 0x20 ? -1 : 1);
    return copysign(number_of_code(code & 7, 1, 0), code & 8 ? -1 : 1);
}

static inline double slow_dequantize(const struct code_way *way, qobs_dtype dtype, unsigned char code, double scale,
                                     const double *zero_point)
{
    const qobs_dtype back = way->in_float ? QOBS_F32 : dtype;
    double v = slow_number(way->kind, code);
    if (zero_point)
        v = round_dtype(back, v - round_dtype(back, *zero_point));
    return round_dtype(dtype, round_dtype(back, v * scale));
}

/* The sums of a kernel call, in the order of kernel_quantize.h. */
struct slow_sums {
    qobs_dtype dtype; /* of the lanes: F32 or F64 */
    double lane[2][16], sum[2];
    int vectors;
};

static inline void slow_sums_flush(struct slow_sums *s)
{
    for (int k = 0; k < 2; k++) {
        for (int apart = 8; apart > 0; apart /= 2)
            for (int j = 0; j < apart; j++)
                s->lane[k][j] = round_dtype(s->dtype, s->lane[k][j] + s->lane[k][j + apart]);
        s->sum[k] += s->lane[k][0];
    }
    memset(s->lane, 0, sizeof s->lane);
    s->vectors = 0;
}

/* Element j of a run of `length`. */
static inline void slow_sums_add(struct slow_sums *s, size_t j, size_t length, double error, double x)
{
    const double added[] = {round_dtype(s->dtype, error), x};
    for (int k = 0; k < 2; k++)
        s->lane[k][j % 16] = round_dtype(s->dtype, s->lane[k][j % 16] + round_dtype(s->dtype, added[k] * added[k]));
    if ((j % 16 == 15 || j + 1 == length) && ++s->vectors == QOBS_CODE_SUM_VECTORS)
        slow_sums_flush(s);
}

#endif

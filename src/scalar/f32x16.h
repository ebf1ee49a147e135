/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 16 floats as one vector for templates/search_errors.inl.h, as an array. */
#pragma once

#include <math.h>

#include "kernels/kernel_search.h"
#include "number/number.h"
#include "templates/inline.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

typedef struct {
    float f[16];
} f32x16;

#define F32X16_EACH(expression)                                                                                        \
    f32x16 r;                                                                                                          \
    for (int i = 0; i < 16; i++)                                                                                       \
        r.f[i] = expression;                                                                                           \
    return r

DEEP_INLINE f32x16 f32x16_load(const float *p) { F32X16_EACH(p[i]); }

DEEP_INLINE void f32x16_store(float *p, f32x16 a)
{
    for (int i = 0; i < 16; i++)
        p[i] = a.f[i];
}

DEEP_INLINE f32x16 f32x16_splat(float a) { F32X16_EACH(a); }
DEEP_INLINE f32x16 f32x16_add(f32x16 a, f32x16 b) { F32X16_EACH(a.f[i] + b.f[i]); }
DEEP_INLINE f32x16 f32x16_sub(f32x16 a, f32x16 b) { F32X16_EACH(a.f[i] - b.f[i]); }
DEEP_INLINE f32x16 f32x16_mul(f32x16 a, f32x16 b) { F32X16_EACH(a.f[i] * b.f[i]); }
DEEP_INLINE f32x16 f32x16_div(f32x16 a, f32x16 b) { F32X16_EACH(a.f[i] / b.f[i]); }

/* The largest power of 2 that is not above a, which is positive and normal; less than 2^-126 becomes 0. */
DEEP_INLINE f32x16 f32x16_power_of_2(f32x16 a) { F32X16_EACH(float_of_bits(bits_of_float(a.f[i]) & 0x7f800000)); }

/* True if a <= b in a lane. */
DEEP_INLINE bool f32x16_any_at_most(f32x16 a, f32x16 b)
{
    int any = 0;
    for (int i = 0; i < 16; i++)
        any |= a.f[i] <= b.f[i];
    return any != 0;
}
DEEP_INLINE f32x16 f32x16_fma(f32x16 a, f32x16 b, f32x16 c)
{
    F32X16_EACH(fmaf(a.f[i], b.f[i], c.f[i]));
} /* a * b + c */
DEEP_INLINE f32x16 f32x16_fnma(f32x16 a, f32x16 b, f32x16 c)
{
    F32X16_EACH(fmaf(-a.f[i], b.f[i], c.f[i]));
} /* c - a * b */
DEEP_INLINE f32x16 f32x16_abs(f32x16 a) { F32X16_EACH(fabsf(a.f[i])); }

/* `negative` in lanes in which x has a sign, `other` in the rest. */
DEEP_INLINE f32x16 f32x16_by_sign(f32x16 x, f32x16 negative, f32x16 other)
{
    F32X16_EACH(bits_of_float(x.f[i]) >> 31 ? negative.f[i] : other.f[i]);
}

/* The sign of `sign` on the magnitude of a. */
DEEP_INLINE f32x16 f32x16_copy_sign(f32x16 a, f32x16 sign) { F32X16_EACH(copysignf(a.f[i], sign.f[i])); }

/* Minimum and maximum of bits as signed integers. That is the order of floats if neither is negative, or if one of them
 * is and the other is not. */
DEEP_INLINE f32x16 f32x16_min_bits(f32x16 a, f32x16 b)
{
    F32X16_EACH((int32_t)bits_of_float(a.f[i]) < (int32_t)bits_of_float(b.f[i]) ? a.f[i] : b.f[i]);
}

DEEP_INLINE f32x16 f32x16_max_bits(f32x16 a, f32x16 b)
{
    F32X16_EACH((int32_t)bits_of_float(a.f[i]) > (int32_t)bits_of_float(b.f[i]) ? a.f[i] : b.f[i]);
}

/* Minus the mantissa, a number from 1 up to below 2, if the biased exponent is below 128. */
DEEP_INLINE f32x16 f32x16_minus_mantissa(f32x16 a) { F32X16_EACH(float_of_bits(bits_of_float(a.f[i]) | 0xbf800000)); }

struct f32x16_table {
    const float *low, *high;
};

DEEP_INLINE struct f32x16_table f32x16_table(const float low[8], const float high[8])
{
    return (struct f32x16_table){low, high};
}

/* low[exponent % 8] * high[exponent / 8] for a biased exponent below 64; the sign does not matter. */
DEEP_INLINE f32x16 f32x16_look_up(struct f32x16_table t, f32x16 a)
{
    F32X16_EACH(t.low[bits_of_float(a.f[i]) >> 23 & 7] * t.high[bits_of_float(a.f[i]) >> 26 & 7]);
}

#ifdef QOBS_SLEEF
DEEP_INLINE f32x16 f32x16_pow(f32x16 a, float exponent) { F32X16_EACH(Sleef_cinz_powf1_u10purec(a.f[i], exponent)); }
#endif

/* Horizontal sums of four vectors: lanes 8 apart are added first, then lanes 4, 2 and 1 apart. */
DEEP_INLINE void f32x16_sum_4(const f32x16 a[4], float sum[4])
{
    for (int i = 0; i < 4; i++) {
        f32x16 s = a[i];
        for (int apart = 8; apart > 0; apart /= 2)
            for (int j = 0; j < apart; j++)
                s.f[j] += s.f[j + apart];
        sum[i] = s.f[0];
    }
}

/* Transposes 16 rows of 16 floats that start `row` floats apart. */
DEEP_INLINE void f32x16_transpose(const float *x, size_t row, float *out)
{
    for (size_t i = 0; i < 16; i++)
        for (size_t column = 0; column < 16; column++)
            out[column * 16 + i] = x[i * row + column];
}

/* In lanes in which a is below *best, *best becomes a and *at becomes `step`; returns whether there is such a lane.
 * NaN is not below. */
DEEP_INLINE bool f32x16_improve(f32x16 a, float step, f32x16 *best, f32x16 *at)
{
    bool any = false;
    for (int i = 0; i < 16; i++) {
        const bool less = a.f[i] < best->f[i];
        best->f[i] = less ? a.f[i] : best->f[i];
        at->f[i] = less ? step : at->f[i];
        any |= less;
    }
    return any;
}

#undef F32X16_EACH

/* 8 floats. */
typedef struct {
    float f[8];
} f32x8;

#define F32X8_EACH(expression)                                                                                         \
    f32x8 r;                                                                                                           \
    for (int i = 0; i < 8; i++)                                                                                        \
        r.f[i] = expression;                                                                                           \
    return r

DEEP_INLINE f32x8 f32x8_load(const float *p) { F32X8_EACH(p[i]); }

DEEP_INLINE void f32x8_store(float *p, f32x8 a)
{
    for (int i = 0; i < 8; i++)
        p[i] = a.f[i];
}

DEEP_INLINE f32x8 f32x8_splat(float a) { F32X8_EACH(a); }
DEEP_INLINE f32x8 f32x8_add(f32x8 a, f32x8 b) { F32X8_EACH(a.f[i] + b.f[i]); }

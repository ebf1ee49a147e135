/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 16 floats as one vector for templates/search_errors.inl.h, in four registers. Everything is static, as in vec.h. */
#pragma once

#if !defined(__ARM_NEON) || !defined(__aarch64__)
#error "this file needs aarch64 with Advanced SIMD"
#endif

#include <arm_neon.h>
#include <math.h>

#include "kernels/kernel_search.h"
#include "neon/transpose.h"
#include "templates/inline.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

typedef struct {
    float32x4_t q[4];
} f32x16;

#define F32X16_EACH(expression)                                                                                        \
    f32x16 r;                                                                                                          \
    for (int i = 0; i < 4; i++)                                                                                        \
        r.q[i] = expression;                                                                                           \
    return r

DEEP_INLINE f32x16 f32x16_load(const float *p) { F32X16_EACH(vld1q_f32(p + 4 * i)); }

DEEP_INLINE void f32x16_store(float *p, f32x16 a)
{
    for (int i = 0; i < 4; i++)
        vst1q_f32(p + 4 * i, a.q[i]);
}

DEEP_INLINE f32x16 f32x16_splat(float a) { F32X16_EACH(vdupq_n_f32(a)); }
DEEP_INLINE f32x16 f32x16_add(f32x16 a, f32x16 b) { F32X16_EACH(vaddq_f32(a.q[i], b.q[i])); }
DEEP_INLINE f32x16 f32x16_sub(f32x16 a, f32x16 b) { F32X16_EACH(vsubq_f32(a.q[i], b.q[i])); }
DEEP_INLINE f32x16 f32x16_mul(f32x16 a, f32x16 b) { F32X16_EACH(vmulq_f32(a.q[i], b.q[i])); }
DEEP_INLINE f32x16 f32x16_fma(f32x16 a, f32x16 b, f32x16 c)
{
    F32X16_EACH(vfmaq_f32(c.q[i], a.q[i], b.q[i]));
} /* a * b + c */
DEEP_INLINE f32x16 f32x16_fnma(f32x16 a, f32x16 b, f32x16 c)
{
    F32X16_EACH(vfmsq_f32(c.q[i], a.q[i], b.q[i]));
} /* c - a * b */
DEEP_INLINE f32x16 f32x16_div(f32x16 a, f32x16 b) { F32X16_EACH(vdivq_f32(a.q[i], b.q[i])); }
DEEP_INLINE f32x16 f32x16_abs(f32x16 a) { F32X16_EACH(vabsq_f32(a.q[i])); }

/* The largest power of 2 that is not above a, which is positive and normal; less than 2^-126 becomes 0. */
DEEP_INLINE f32x16 f32x16_power_of_2(f32x16 a)
{
    const uint32x4_t exponent = vdupq_n_u32(0x7f800000);
    F32X16_EACH(vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a.q[i]), exponent)));
}

/* True if a <= b in a lane. */
DEEP_INLINE bool f32x16_any_at_most(f32x16 a, f32x16 b)
{
    uint32x4_t any = vcleq_f32(a.q[0], b.q[0]);
    for (int i = 1; i < 4; i++)
        any = vorrq_u32(any, vcleq_f32(a.q[i], b.q[i]));
    return vmaxvq_u32(any) != 0;
}

/* `negative` in lanes in which x has a sign, `other` in the rest. */
DEEP_INLINE f32x16 f32x16_by_sign(f32x16 x, f32x16 negative, f32x16 other)
{
    F32X16_EACH(vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(x.q[i])), negative.q[i], other.q[i]));
}

/* The sign of `sign` on the magnitude of a. */
DEEP_INLINE f32x16 f32x16_copy_sign(f32x16 a, f32x16 sign)
{
    F32X16_EACH(vbslq_f32(vdupq_n_u32(0x80000000), sign.q[i], a.q[i]));
}

/* Minimum and maximum of bits as signed integers: right for floats of which none is negative, and for limits of
 * floats of any sign. */
DEEP_INLINE f32x16 f32x16_min_bits(f32x16 a, f32x16 b)
{
    F32X16_EACH(vreinterpretq_f32_s32(vminq_s32(vreinterpretq_s32_f32(a.q[i]), vreinterpretq_s32_f32(b.q[i]))));
}

DEEP_INLINE f32x16 f32x16_max_bits(f32x16 a, f32x16 b)
{
    F32X16_EACH(vreinterpretq_f32_s32(vmaxq_s32(vreinterpretq_s32_f32(a.q[i]), vreinterpretq_s32_f32(b.q[i]))));
}

/* Minus the mantissa, a number from 1 up to below 2, if the biased exponent is below 128. */
DEEP_INLINE f32x16 f32x16_minus_mantissa(f32x16 a)
{
    F32X16_EACH(vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(a.q[i]), vdupq_n_u32(0xbf800000))));
}

struct f32x16_table {
    uint8x16x2_t low, high;
};

DEEP_INLINE struct f32x16_table f32x16_table(const float low[8], const float high[8])
{
    return (struct f32x16_table){{{vreinterpretq_u8_f32(vld1q_f32(low)), vreinterpretq_u8_f32(vld1q_f32(low + 4))}},
                                 {{vreinterpretq_u8_f32(vld1q_f32(high)), vreinterpretq_u8_f32(vld1q_f32(high + 4))}}};
}

/* The four bytes of the float at an index. */
DEEP_INLINE uint8x16_t bytes_of_index(uint32x4_t index)
{
    return vreinterpretq_u8_u32(vmlaq_n_u32(vdupq_n_u32(0x03020100), index, 0x04040404));
}

/* low[exponent % 8] * high[exponent / 8] for a biased exponent below 64; the sign does not matter. */
DEEP_INLINE float32x4_t quarter_look_up(struct f32x16_table t, float32x4_t a)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(a);
    const uint32x4_t low = vandq_u32(vshrq_n_u32(bits, 23), vdupq_n_u32(7)),
                     high = vandq_u32(vshrq_n_u32(bits, 26), vdupq_n_u32(7));
    return vmulq_f32(vreinterpretq_f32_u8(vqtbl2q_u8(t.low, bytes_of_index(low))),
                     vreinterpretq_f32_u8(vqtbl2q_u8(t.high, bytes_of_index(high))));
}

DEEP_INLINE f32x16 f32x16_look_up(struct f32x16_table t, f32x16 a) { F32X16_EACH(quarter_look_up(t, a.q[i])); }

#ifdef QOBS_SLEEF
DEEP_INLINE f32x16 f32x16_pow(f32x16 a, float exponent)
{
    F32X16_EACH(Sleef_cinz_powf4_u10advsimdnofma(a.q[i], vdupq_n_f32(exponent)));
}
#endif

/* Horizontal sums of four vectors: lanes 8 apart are added first, then lanes 4, 2 and 1 apart. */
DEEP_INLINE void f32x16_sum_4(const f32x16 a[4], float sum[4])
{
    float32x2_t two[4];
    for (int i = 0; i < 4; i++) {
        const float32x4_t four = vaddq_f32(vaddq_f32(a[i].q[0], a[i].q[2]), vaddq_f32(a[i].q[1], a[i].q[3]));
        two[i] = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    }
    for (int i = 0; i < 4; i++)
        sum[i] = vget_lane_f32(two[i], 0) + vget_lane_f32(two[i], 1);
}

/* Transposes 16 rows of 16 floats that start `row` floats apart. */
DEEP_INLINE void f32x16_transpose(const float *x, size_t row, float *out)
{
    for (size_t from = 0; from < 16; from += 4)
        for (size_t column = 0; column < 16; column += 4) {
            vec r[4];
            for (size_t i = 0; i < 4; i++)
                r[i] = vreinterpretq_u8_f32(vld1q_f32(x + (from + i) * row + column));
            vec_transpose32(r);
            for (size_t i = 0; i < 4; i++)
                vst1q_f32(out + (column + i) * 16 + from, vreinterpretq_f32_u8(r[i]));
        }
}

/* In lanes in which a is below *best, *best becomes a and *at becomes `step`; returns whether there is such a lane.
 * NaN is not below. */
DEEP_INLINE bool f32x16_improve(f32x16 a, float step, f32x16 *best, f32x16 *at)
{
    uint32x4_t any = vdupq_n_u32(0);
    for (int i = 0; i < 4; i++) {
        const uint32x4_t less = vcltq_f32(a.q[i], best->q[i]);
        best->q[i] = vbslq_f32(less, a.q[i], best->q[i]);
        at->q[i] = vbslq_f32(less, vdupq_n_f32(step), at->q[i]);
        any = vorrq_u32(any, less);
    }
    return vmaxvq_u32(any) != 0;
}

#undef F32X16_EACH

/* 8 floats. */
typedef struct {
    float32x4_t l, h;
} f32x8;

DEEP_INLINE f32x8 f32x8_load(const float *p) { return (f32x8){vld1q_f32(p), vld1q_f32(p + 4)}; }

DEEP_INLINE void f32x8_store(float *p, f32x8 a)
{
    vst1q_f32(p, a.l);
    vst1q_f32(p + 4, a.h);
}

DEEP_INLINE f32x8 f32x8_splat(float a) { return (f32x8){vdupq_n_f32(a), vdupq_n_f32(a)}; }
DEEP_INLINE f32x8 f32x8_add(f32x8 a, f32x8 b) { return (f32x8){vaddq_f32(a.l, b.l), vaddq_f32(a.h, b.h)}; }

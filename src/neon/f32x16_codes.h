/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Operations on 16 floats that templates/codes_lanes.inl.h needs beyond f32x16.h: elements, bits and codes. Everything
 * is static, as in vec.h. */
#pragma once

#include "neon/f32x16.h"

#define INTEGERS_(a) vreinterpretq_u32_f32(a)
#define FLOATS_(a) vreinterpretq_f32_u32(a)

#define F32X16_EACH(expression)                                                                                        \
    f32x16 r;                                                                                                          \
    for (int i = 0; i < 4; i++)                                                                                        \
        r.q[i] = expression;                                                                                           \
    return r

/* A constant of a loop. */
DEEP_INLINE f32x16 f32x16_constant(float a) { return f32x16_splat(a); }

/* Elements at any address, as floats. */
DEEP_INLINE f32x16 f32x16_load_f32(const void *p)
{
    F32X16_EACH(vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p + 16 * i)));
}
DEEP_INLINE uint16x4_t quarter_load(const void *p, int i)
{
    return vreinterpret_u16_u8(vld1_u8((const uint8_t *)p + 8 * i));
}
DEEP_INLINE f32x16 f32x16_load_bf16(const void *p) { F32X16_EACH(FLOATS_(vshll_n_u16(quarter_load(p, i), 16))); }
DEEP_INLINE f32x16 f32x16_load_f16(const void *p)
{
    F32X16_EACH(vcvt_f32_f16(vreinterpret_f16_u16(quarter_load(p, i))));
}

/* The numbers of 16 codes of e2m1, made as BF16: a table has their low bytes, another one their high bytes. */
DEEP_INLINE f32x16 f32x16_load_e2m1(const unsigned char *codes)
{
    static const uint8_t low[] = {0, 0, 128, 192, 0, 64, 128, 192, 0, 0, 128, 192, 0, 64, 128, 192};
    static const uint8_t high[] = {0, 63, 63, 63, 64, 64, 64, 64, 128, 191, 191, 191, 192, 192, 192, 192};
    const uint8x16_t at = vld1q_u8(codes), l = vqtbl1q_u8(vld1q_u8(low), at), h = vqtbl1q_u8(vld1q_u8(high), at);
    const uint8x16_t first = vzip1q_u8(l, h), last = vzip2q_u8(l, h);
    const uint8x8_t quarter[] = {vget_low_u8(first), vget_high_u8(first), vget_low_u8(last), vget_high_u8(last)};
    F32X16_EACH(FLOATS_(vshll_n_u16(vreinterpret_u16_u8(quarter[i]), 16)));
}

/* a, or the limit if a is below or above it. NaN stays. */
DEEP_INLINE f32x16 f32x16_raise(f32x16 a, f32x16 limit)
{
    F32X16_EACH(vbslq_f32(vcgtq_f32(limit.q[i], a.q[i]), limit.q[i], a.q[i]));
}
DEEP_INLINE f32x16 f32x16_lower(f32x16 a, f32x16 limit)
{
    F32X16_EACH(vbslq_f32(vcltq_f32(limit.q[i], a.q[i]), limit.q[i], a.q[i]));
}

/* Rounds to the dtype. A NaN must be quiet and its low 16 bits 0. */
DEEP_INLINE float32x4_t quarter_round_bf16(float32x4_t a)
{
    const uint32x4_t bits = INTEGERS_(a), even = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(bits, vdupq_n_u32(0x7fff));
    return FLOATS_(vandq_u32(vaddq_u32(up, even), vdupq_n_u32(0xffff0000)));
}
DEEP_INLINE f32x16 f32x16_round_bf16(f32x16 a) { F32X16_EACH(quarter_round_bf16(a.q[i])); }
DEEP_INLINE f32x16 f32x16_round_f16(f32x16 a) { F32X16_EACH(vcvt_f32_f16(vcvt_f16_f32(a.q[i]))); }

DEEP_INLINE f32x16 f32x16_and(f32x16 a, f32x16 b)
{
    F32X16_EACH(FLOATS_(vandq_u32(INTEGERS_(a.q[i]), INTEGERS_(b.q[i]))));
}
DEEP_INLINE f32x16 f32x16_or(f32x16 a, f32x16 b)
{
    F32X16_EACH(FLOATS_(vorrq_u32(INTEGERS_(a.q[i]), INTEGERS_(b.q[i]))));
}

/* Sums and shifts of bits as integers. */
DEEP_INLINE f32x16 f32x16_add_bits(f32x16 a, f32x16 b)
{
    F32X16_EACH(FLOATS_(vaddq_u32(INTEGERS_(a.q[i]), INTEGERS_(b.q[i]))));
}
DEEP_INLINE f32x16 f32x16_sub_bits(f32x16 a, f32x16 b)
{
    F32X16_EACH(FLOATS_(vsubq_u32(INTEGERS_(a.q[i]), INTEGERS_(b.q[i]))));
}
DEEP_INLINE f32x16 f32x16_shift_right_20(f32x16 a) { F32X16_EACH(FLOATS_(vshrq_n_u32(INTEGERS_(a.q[i]), 20))); }
DEEP_INLINE f32x16 f32x16_shift_right_22(f32x16 a) { F32X16_EACH(FLOATS_(vshrq_n_u32(INTEGERS_(a.q[i]), 22))); }
DEEP_INLINE f32x16 f32x16_shift_right_24(f32x16 a) { F32X16_EACH(FLOATS_(vshrq_n_u32(INTEGERS_(a.q[i]), 24))); }

/* a in lanes in which v is a number, `other` in those in which it is NaN. */
DEEP_INLINE f32x16 f32x16_if_number(f32x16 v, f32x16 a, f32x16 other)
{
    F32X16_EACH(vbslq_f32(vceqq_f32(v.q[i], v.q[i]), a.q[i], other.q[i]));
}

/* The bits of b in lanes in which v is below 0, none in the others. */
DEEP_INLINE f32x16 f32x16_if_negative(f32x16 v, f32x16 b)
{
    F32X16_EACH(FLOATS_(vandq_u32(vcltzq_f32(v.q[i]), INTEGERS_(b.q[i]))));
}

/* The low byte of each lane. */
DEEP_INLINE void f32x16_store_bytes(unsigned char *to, f32x16 a)
{
    const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_f32(a.q[0]), vreinterpretq_u16_f32(a.q[1]));
    const uint16x8_t high = vuzp1q_u16(vreinterpretq_u16_f32(a.q[2]), vreinterpretq_u16_f32(a.q[3]));
    vst1q_u8(to, vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high)));
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

#define CODE_THRESHOLDS
typedef int16_t i16x16 __attribute__((vector_size(32)));

DEEP_INLINE i16x16 i16x16_min(i16x16 a, i16x16 b)
{
    const i16x16 less = a < b;
    return (a & less) | (b & ~less);
}

/* a - b, or 0 if that is below 0; neither is below 0. */
DEEP_INLINE i16x16 i16x16_excess(i16x16 a, i16x16 b) { return (a - b) & (a > b); }

#undef INTEGERS_
#undef FLOATS_
#undef F32X16_EACH

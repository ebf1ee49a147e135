/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What templates/codes_lanes.inl.h needs of 16 floats beyond f32x16.h: elements, bits and codes. */
#pragma once

#include "number/element.h"
#include "scalar/f32x16.h"

#define F32X16_EACH(expression)                                                                                        \
    f32x16 r;                                                                                                          \
    for (int i = 0; i < 16; i++)                                                                                       \
        r.f[i] = expression;                                                                                           \
    return r

/* A constant of a loop. */
DEEP_INLINE f32x16 f32x16_constant(float a) { return f32x16_splat(a); }

/* Elements at any address, as floats. */
DEEP_INLINE f32x16 f32x16_load_f32(const void *p) { F32X16_EACH(((const element_f32 *)p)[i]); }
DEEP_INLINE f32x16 f32x16_load_bf16(const void *p) { F32X16_EACH(float_of_bf16(((const element_bf16 *)p)[i])); }
DEEP_INLINE f32x16 f32x16_load_f16(const void *p) { F32X16_EACH(float_of_f16(((const element_f16 *)p)[i])); }

DEEP_INLINE f32x16 f32x16_div(f32x16 a, f32x16 b) { F32X16_EACH(a.f[i] / b.f[i]); }

/* a, or the limit if a is below or above it. NaN stays. */
DEEP_INLINE f32x16 f32x16_raise(f32x16 a, f32x16 limit) { F32X16_EACH(limit.f[i] > a.f[i] ? limit.f[i] : a.f[i]); }
DEEP_INLINE f32x16 f32x16_lower(f32x16 a, f32x16 limit) { F32X16_EACH(limit.f[i] < a.f[i] ? limit.f[i] : a.f[i]); }

DEEP_INLINE uint32_t half_bits_even(uint32_t bits) { return (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000; }

/* Rounds to the dtype. A NaN must be quiet and its low 16 bits 0. */
DEEP_INLINE f32x16 f32x16_round_bf16(f32x16 a) { F32X16_EACH(float_of_bits(half_bits_even(bits_of_float(a.f[i])))); }
DEEP_INLINE f32x16 f32x16_round_f16(f32x16 a) { F32X16_EACH(float_of_f16(f16_of_float(a.f[i]))); }

DEEP_INLINE f32x16 f32x16_and(f32x16 a, f32x16 b)
{
    F32X16_EACH(float_of_bits(bits_of_float(a.f[i]) & bits_of_float(b.f[i])));
}
DEEP_INLINE f32x16 f32x16_or(f32x16 a, f32x16 b)
{
    F32X16_EACH(float_of_bits(bits_of_float(a.f[i]) | bits_of_float(b.f[i])));
}

/* Sums and shifts of bits as integers. */
DEEP_INLINE f32x16 f32x16_add_bits(f32x16 a, f32x16 b)
{
    F32X16_EACH(float_of_bits(bits_of_float(a.f[i]) + bits_of_float(b.f[i])));
}
DEEP_INLINE f32x16 f32x16_sub_bits(f32x16 a, f32x16 b)
{
    F32X16_EACH(float_of_bits(bits_of_float(a.f[i]) - bits_of_float(b.f[i])));
}
DEEP_INLINE f32x16 f32x16_shift_right_20(f32x16 a) { F32X16_EACH(float_of_bits(bits_of_float(a.f[i]) >> 20)); }
DEEP_INLINE f32x16 f32x16_shift_right_22(f32x16 a) { F32X16_EACH(float_of_bits(bits_of_float(a.f[i]) >> 22)); }
DEEP_INLINE f32x16 f32x16_shift_right_24(f32x16 a) { F32X16_EACH(float_of_bits(bits_of_float(a.f[i]) >> 24)); }

/* Masks instead of conditions, so that loops become vectors. */
DEEP_INLINE uint32_t choose_bits(uint32_t mask, uint32_t a, uint32_t b) { return (a & mask) | (b & ~mask); }

/* a in lanes in which v is a number, `other` in those in which it is NaN. */
DEEP_INLINE f32x16 f32x16_if_number(f32x16 v, f32x16 a, f32x16 other)
{
    F32X16_EACH(float_of_bits(choose_bits(-(uint32_t)((bits_of_float(v.f[i]) & 0x7fffffff) <= 0x7f800000),
                                          bits_of_float(a.f[i]), bits_of_float(other.f[i]))));
}

/* The bits of b in lanes in which v is below 0, none in the others. */
DEEP_INLINE f32x16 f32x16_if_negative(f32x16 v, f32x16 b)
{
    F32X16_EACH(float_of_bits(bits_of_float(b.f[i]) & -(uint32_t)(v.f[i] < 0)));
}

/* The low byte of each lane. */
DEEP_INLINE void f32x16_store_bytes(unsigned char *to, f32x16 a)
{
    for (int i = 0; i < 16; i++)
        to[i] = (unsigned char)bits_of_float(a.f[i]);
}

#undef F32X16_EACH

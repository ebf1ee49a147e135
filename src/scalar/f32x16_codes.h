/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 16 floats as one vector for templates/codes_lanes.inl.h. The compiler makes the vectors that the machine has, or
 * single operations. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "number/number.h"
#include "templates/inline.h"

/* Nothing is passed in registers of vectors: all functions are inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

typedef float f32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));

DEEP_INLINE f32x16 f32x16_splat(float a) { return (f32x16){a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a}; }

/* A constant of a loop. */
DEEP_INLINE f32x16 f32x16_constant(float a) { return f32x16_splat(a); }

/* Elements at any address, as floats. */
DEEP_INLINE f32x16 f32x16_load_f32(const void *p)
{
    f32x16 v;
    memcpy(&v, p, sizeof v);
    return v;
}
DEEP_INLINE u32x16 load_halves(const void *p)
{
    u16x16 halves;
    memcpy(&halves, p, sizeof halves);
    return __builtin_convertvector(halves, u32x16);
}
DEEP_INLINE f32x16 f32x16_load_bf16(const void *p) { return (f32x16)(load_halves(p) << 16); }

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
enum { EVEN_IS_LOW = 0 };
#else
enum { EVEN_IS_LOW = 1 };
#endif

/* 32 elements: those at even places and those at odd ones. */
DEEP_INLINE void f32x16_load_bf16_pairs(const void *p, f32x16 *even, f32x16 *odd)
{
    u32x16 pairs;
    memcpy(&pairs, p, sizeof pairs);
    *(EVEN_IS_LOW ? even : odd) = (f32x16)(pairs << 16);
    *(EVEN_IS_LOW ? odd : even) = (f32x16)(pairs & 0xffff0000);
}

/* As float_of_f16. */
DEEP_INLINE f32x16 f32x16_of_f16(u32x16 halves)
{
    const u32x16 magnitude = (halves & 0x7fff) << 13, large = (u32x16)(magnitude >= 0x0f800000);
    const f32x16 number = (f32x16)magnitude * 0x1p112f;
    return (f32x16)((u32x16)number | (large & 0x38000000) | (halves & 0x8000) << 16);
}
DEEP_INLINE f32x16 f32x16_load_f16(const void *p) { return f32x16_of_f16(load_halves(p)); }

DEEP_INLINE f32x16 f32x16_add(f32x16 a, f32x16 b) { return a + b; }
DEEP_INLINE f32x16 f32x16_sub(f32x16 a, f32x16 b) { return a - b; }
DEEP_INLINE f32x16 f32x16_mul(f32x16 a, f32x16 b) { return a * b; }
DEEP_INLINE f32x16 f32x16_div(f32x16 a, f32x16 b) { return a / b; }

/* a in lanes with bits in the mask, b in the others. */
DEEP_INLINE f32x16 choose_lanes(u32x16 mask, f32x16 a, f32x16 b)
{
    return (f32x16)(((u32x16)a & mask) | ((u32x16)b & ~mask));
}

/* a, or the limit if a is below or above it. NaN stays. */
DEEP_INLINE f32x16 f32x16_raise(f32x16 a, f32x16 limit) { return choose_lanes((u32x16)(limit > a), limit, a); }
DEEP_INLINE f32x16 f32x16_lower(f32x16 a, f32x16 limit) { return choose_lanes((u32x16)(limit < a), limit, a); }

/* Rounds to the dtype. A NaN must be quiet and its low 16 bits 0. */
DEEP_INLINE f32x16 f32x16_round_bf16(f32x16 a)
{
    const u32x16 bits = (u32x16)a;
    return (f32x16)((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}
DEEP_INLINE f32x16 f32x16_round_f16(f32x16 a)
{
    f32x16 r = {0};
    for (int i = 0; i < 16; i++)
        r[i] = float_of_f16(f16_of_float(a[i]));
    return r;
}

DEEP_INLINE f32x16 f32x16_and(f32x16 a, f32x16 b) { return (f32x16)((u32x16)a & (u32x16)b); }
DEEP_INLINE f32x16 f32x16_or(f32x16 a, f32x16 b) { return (f32x16)((u32x16)a | (u32x16)b); }

/* The sign of `sign` on the magnitude of a. */
DEEP_INLINE f32x16 f32x16_copy_sign(f32x16 a, f32x16 sign)
{
    return (f32x16)(((u32x16)a & 0x7fffffff) | ((u32x16)sign & 0x80000000));
}

/* The larger bits as signed integers. */
DEEP_INLINE f32x16 f32x16_max_bits(f32x16 a, f32x16 b) { return choose_lanes((u32x16)((i32x16)a > (i32x16)b), a, b); }

/* Sums and shifts of bits as integers. */
DEEP_INLINE f32x16 f32x16_add_bits(f32x16 a, f32x16 b) { return (f32x16)((u32x16)a + (u32x16)b); }
DEEP_INLINE f32x16 f32x16_sub_bits(f32x16 a, f32x16 b) { return (f32x16)((u32x16)a - (u32x16)b); }
DEEP_INLINE f32x16 f32x16_shift_right_20(f32x16 a) { return (f32x16)((u32x16)a >> 20); }
DEEP_INLINE f32x16 f32x16_shift_right_22(f32x16 a) { return (f32x16)((u32x16)a >> 22); }
DEEP_INLINE f32x16 f32x16_shift_right_24(f32x16 a) { return (f32x16)((u32x16)a >> 24); }
DEEP_INLINE f32x16 f32x16_shift_right_26(f32x16 a) { return (f32x16)((u32x16)a >> 26); }

/* a in lanes in which v is a number, `other` in those in which it is NaN. */
DEEP_INLINE f32x16 f32x16_if_number(f32x16 v, f32x16 a, f32x16 other)
{
    return choose_lanes((u32x16)(((u32x16)v & 0x7fffffff) <= 0x7f800000), a, other);
}

/* The bits of b in lanes in which v is below 0, none in the others. */
DEEP_INLINE f32x16 f32x16_if_negative(f32x16 v, f32x16 b) { return f32x16_and((f32x16)(v < 0), b); }

/* The low byte of each lane. */
DEEP_INLINE void f32x16_store_bytes(unsigned char *to, f32x16 a)
{
    const u8x16 bytes = __builtin_convertvector((u32x16)a & 0xff, u8x16);
    memcpy(to, &bytes, sizeof bytes);
}

/* The low bytes of the lanes of both, alternately. */
DEEP_INLINE void f32x16_store_byte_pairs(unsigned char *to, f32x16 even, f32x16 odd)
{
    const u32x16 low = (u32x16)(EVEN_IS_LOW ? even : odd) & 0xff, high = (u32x16)(EVEN_IS_LOW ? odd : even) & 0xff;
    const u16x16 pairs = __builtin_convertvector(low | high << 8, u16x16);
    memcpy(to, &pairs, sizeof pairs);
}

/* Horizontal sums of four vectors: lanes 8 apart are added first, then lanes 4, 2 and 1 apart. */
DEEP_INLINE void f32x16_sum_4(const f32x16 a[4], float sum[4])
{
    for (int k = 0; k < 4; k++) {
        float lane[16];
        memcpy(lane, &a[k], sizeof lane);
        for (int apart = 8; apart > 0; apart /= 2)
            for (int i = 0; i < apart; i++)
                lane[i] += lane[i + apart];
        sum[k] = lane[0];
    }
}

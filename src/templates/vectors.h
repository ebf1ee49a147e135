/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The vocabulary of vectors that all instruction sets share, in the vectors of the compiler; included by simd.h of
 * src/ISA, which has before it:
 *
 *   VEC_BYTES, vec, f32v        bytes of a vector; vectors of integers and of floats
 *   VEC_REGISTER                its constraint for assembly; undefined: there are no kernels of minimum and maximum
 *   f32v_splat(a)
 *   f32v_fma(a, b, c)           a * b + c, rounded once
 *   f32v_fnma(a, b, c)          c - a * b
 *   f32v_max(a, b), f32v_min    b if they are equal or one is NaN
 *   f32v_load_bf16, f32v_load_f16(p)     a vector of elements at any address, as floats
 *   f32v_round_f16(a), f32v_pow(a, b)
 *   f32v_look_up(table, a)      see f32x16_look_up
 *   vec_min_s32, vec_max_s32    and those of s16, u16 and u32 for minimum and maximum
 *   f32v_mask                   a set of lanes; with F32V_MASK_IS_REGISTER an integer, else all or no bits of a lane
 *   f32v_signs(a)               the lanes with a sign
 *   f32v_choose(k, a, b)        a in the lanes of the set, b in the others
 *   f32v_bits(k)                bit i is lane i
 *   f32v_any(k)
 *   vec_zip(bits, high, a, b)   interleaves the low or the high elements of each 128 bits
 *
 * Everything is static: the linker could replace a shared helper by one that was built with flags for another CPU. */
#pragma once

#include "templates/fixed_vectors.h"

typedef uint16_t u16v __attribute__((vector_size(VEC_BYTES)));
typedef int16_t s16v __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t u32v __attribute__((vector_size(VEC_BYTES)));
typedef int32_t s32v __attribute__((vector_size(VEC_BYTES)));

/* At any address. */
typedef vec vec_at __attribute__((aligned(1), may_alias));
typedef f32v f32v_at __attribute__((aligned(1), may_alias));

#ifdef VEC_REGISTER
/* ---- Integers ---------------------------------------------------------------------------------------------------- */

/* Loaded once: gcc would otherwise make it a memory operand of every use, and be bound by its loads. */
static inline vec vec_load(const void *p)
{
    vec v = *(const vec_at *)p;
    __asm__("" : "+" VEC_REGISTER(v));
    return v;
}

/* Ordered load: the compiler keeps the order of such loads. */
static inline vec vec_load_ordered(const void *p)
{
    vec v = *(const vec_at *)p;
    __asm__ volatile("" : "+" VEC_REGISTER(v));
    return v;
}

/* Keeps the vector in a register. */
static inline void vec_in_register(vec *v) { __asm__("" : "+" VEC_REGISTER(*v)); }

static inline void vec_store(void *p, vec v) { *(vec_at *)p = v; }
static inline vec vec_splat16(int16_t k) { return (vec)((s16v){0} + k); }
static inline vec vec_splat32(int32_t k) { return (vec)((s32v){0} + k); }

/* Without the sign. */
static inline vec vec_magnitude16(vec v) { return (vec)((u16v)v & INT16_MAX); }
static inline vec vec_magnitude32(vec v) { return (vec)((u32v)v & INT32_MAX); }

#if VEC_BYTES < 64
/* bits <-> key: x ^ (sign >> 1), the sign spread over its lane */
static inline vec vec_key16(vec v) { return v ^ (vec)((u16v)((s16v)v >> 15) >> 1); }
static inline vec vec_key32(vec v) { return v ^ (vec)((u32v)((s32v)v >> 31) >> 1); }
#endif

/* 0 where v equals k */
static inline vec vec_clear_equal16(vec v, vec k) { return v & ~(vec)((s16v)v == (s16v)k); }
static inline vec vec_clear_equal32(vec v, vec k) { return v & ~(vec)((s32v)v == (s32v)k); }

/* key -1 is -0: make it +0 */
static inline vec vec_no_minus_zero16(vec k) { return vec_clear_equal16(k, vec_splat16(-1)); }
static inline vec vec_no_minus_zero32(vec k) { return vec_clear_equal32(k, vec_splat32(-1)); }

/* Transposes tiles in registers: r[i] has the row i, and afterwards r[c] the column c. Elements are interleaved within
 * 128 bits first, then the 128-bit lanes change places. A tile of 16-bit elements has in part p of r[i], if there are
 * VEC_PARTS16, the row p * TILE + i. */

#define VEC_PARTS32 1

/* Interleaves n vectors that already hold elements of `done` rows side by side, `bits` wide together: pairs become
 * twice as wide. */
static inline __attribute__((always_inline)) void vec_interleave(int bits, int done, int n, vec *r)
{
    _Pragma("GCC unroll 16") for (int b = 0; b < n; b += 2 * done)
    {
        vec t[16];
        _Pragma("GCC unroll 16") for (int j = 0; j < 2 * done; j++) t[j] =
            vec_zip(bits, j % 2, r[b + j / 2], r[b + done + j / 2]);
        _Pragma("GCC unroll 16") for (int j = 0; j < 2 * done; j++) r[b + j] = t[j];
    }
}

static inline __attribute__((always_inline)) void vec_transpose16(vec *r)
{
    enum { N = VEC_BYTES / 2 / VEC_PARTS16 };
    vec_interleave(16, 1, N, r);
    vec_interleave(32, 2, N, r);
    vec_interleave(64, 4, N, r);
    vec_transpose_lanes16(r);
}

static inline __attribute__((always_inline)) void vec_transpose32(vec *r)
{
    vec_interleave(32, 1, VEC_BYTES / 4, r);
    vec_interleave(64, 2, VEC_BYTES / 4, r);
    vec_transpose_lanes32(r);
}
#endif

/* ---- 16 floats --------------------------------------------------------------------------------------------------- */

/* One vector, in as many registers as it takes; PART(a, i) is one of them. */
enum { F32X16_PARTS = 64 / VEC_BYTES };

#if VEC_BYTES == 64
typedef f32v f32x16;
#define PART(a, i) (a)
#else
typedef struct {
    f32v part[F32X16_PARTS];
} f32x16;
#define PART(a, i) ((a).part[i])
#endif

#define F32X16_EACH(expression)                                                                                        \
    f32x16 r;                                                                                                          \
    _Pragma("GCC unroll 4") for (int i = 0; i < F32X16_PARTS; i++) PART(r, i) = expression;                            \
    return r

/* Floats at any address. */
DEEP_INLINE f32x16 f32x16_load(const void *p)
{
    F32X16_EACH(*(const f32v_at *)((const unsigned char *)p + i * VEC_BYTES));
}
DEEP_INLINE void f32x16_store(float *p, f32x16 a)
{
    _Pragma("GCC unroll 4") for (int i = 0; i < F32X16_PARTS; i++) * (f32v_at *)(p + i * VEC_BYTES / 4) = PART(a, i);
}

DEEP_INLINE f32x16 f32x16_splat(float a) { F32X16_EACH(f32v_splat(a)); }
DEEP_INLINE f32x16 f32x16_add(f32x16 a, f32x16 b) { F32X16_EACH(PART(a, i) + PART(b, i)); }
DEEP_INLINE f32x16 f32x16_sub(f32x16 a, f32x16 b) { F32X16_EACH(PART(a, i) - PART(b, i)); }
DEEP_INLINE f32x16 f32x16_mul(f32x16 a, f32x16 b) { F32X16_EACH(PART(a, i) * PART(b, i)); }
DEEP_INLINE f32x16 f32x16_div(f32x16 a, f32x16 b) { F32X16_EACH(PART(a, i) / PART(b, i)); }
DEEP_INLINE f32x16 f32x16_fma(f32x16 a, f32x16 b, f32x16 c)
{
    F32X16_EACH(f32v_fma(PART(a, i), PART(b, i), PART(c, i)));
}
DEEP_INLINE f32x16 f32x16_fnma(f32x16 a, f32x16 b, f32x16 c)
{
    F32X16_EACH(f32v_fnma(PART(a, i), PART(b, i), PART(c, i)));
}

/* A constant of a loop, with many registers in one of them: gcc would make it again for each vector. */
DEEP_INLINE f32x16 f32x16_constant(float a)
{
    f32x16 v = f32x16_splat(a);
#if VEC_BYTES == 64
    __asm__("" : "+" VEC_REGISTER(v));
#endif
    return v;
}

/* a, or the limit if a is below or above it. NaN stays. */
DEEP_INLINE f32x16 f32x16_raise(f32x16 a, f32x16 limit) { F32X16_EACH(f32v_max(PART(limit, i), PART(a, i))); }
DEEP_INLINE f32x16 f32x16_lower(f32x16 a, f32x16 limit) { F32X16_EACH(f32v_min(PART(limit, i), PART(a, i))); }

/* Operations on bits as integers. */
#define BITS_(a) ((u32v)PART(a, i))
DEEP_INLINE f32x16 f32x16_and(f32x16 a, f32x16 b) { F32X16_EACH((f32v)(BITS_(a) & BITS_(b))); }
DEEP_INLINE f32x16 f32x16_or(f32x16 a, f32x16 b) { F32X16_EACH((f32v)(BITS_(a) | BITS_(b))); }
DEEP_INLINE f32x16 f32x16_add_bits(f32x16 a, f32x16 b) { F32X16_EACH((f32v)(BITS_(a) + BITS_(b))); }
DEEP_INLINE f32x16 f32x16_sub_bits(f32x16 a, f32x16 b) { F32X16_EACH((f32v)(BITS_(a) - BITS_(b))); }
DEEP_INLINE f32x16 f32x16_shift_right(f32x16 a, int bits) { F32X16_EACH((f32v)(BITS_(a) >> bits)); }
DEEP_INLINE f32x16 f32x16_abs(f32x16 a) { F32X16_EACH((f32v)(BITS_(a) & 0x7fffffff)); }

/* Minimum and maximum as signed integers. That is the order of floats if neither is negative, or if one of them is and
 * the other is not. */
DEEP_INLINE f32x16 f32x16_min_bits(f32x16 a, f32x16 b)
{
    F32X16_EACH((f32v)vec_min_s32((vec)PART(a, i), (vec)PART(b, i)));
}
DEEP_INLINE f32x16 f32x16_max_bits(f32x16 a, f32x16 b)
{
    F32X16_EACH((f32v)vec_max_s32((vec)PART(a, i), (vec)PART(b, i)));
}

/* The largest power of 2 that is not above a, which is positive and normal; less than 2^-126 becomes 0. */
DEEP_INLINE f32x16 f32x16_power_of_2(f32x16 a) { F32X16_EACH((f32v)(BITS_(a) & 0x7f800000)); }

/* Minus the mantissa, a number from 1 up to below 2, if the biased exponent is below 128. */
DEEP_INLINE f32x16 f32x16_minus_mantissa(f32x16 a) { F32X16_EACH((f32v)(BITS_(a) | 0xbf800000)); }

/* The sign of `sign` on the magnitude of a. */
DEEP_INLINE f32x16 f32x16_copy_sign(f32x16 a, f32x16 sign)
{
    F32X16_EACH((f32v)(((BITS_(a) ^ BITS_(sign)) & 0x7fffffff) ^ BITS_(sign)));
}

/* Rounds to BF16. A NaN must be quiet and its low 16 bits 0. */
DEEP_INLINE f32x16 f32x16_round_bf16(f32x16 a)
{
    F32X16_EACH((f32v)((BITS_(a) + 0x7fff + (BITS_(a) >> 16 & 1)) & 0xffff0000));
}
DEEP_INLINE f32x16 f32x16_round_f16(f32x16 a) { F32X16_EACH(f32v_round_f16(PART(a, i))); }

/* low[exponent % 8] * high[exponent / 8] for a biased exponent below 64, high being 0 up to high[3]; the sign does not
 * matter. */
DEEP_INLINE f32x16 f32x16_look_up(struct f32x16_table t, f32x16 a) { F32X16_EACH(f32v_look_up(t, PART(a, i))); }

#ifdef QOBS_SLEEF
DEEP_INLINE f32x16 f32x16_pow(f32x16 a, float exponent) { F32X16_EACH(f32v_pow(PART(a, i), f32v_splat(exponent))); }
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
enum { EVEN_IS_LOW = 0 };
#else
enum { EVEN_IS_LOW = 1 };
#endif

/* 32 elements of BF16: those at even places and those at odd ones. */
DEEP_INLINE void f32x16_load_bf16_pairs(const void *p, f32x16 *even, f32x16 *odd)
{
    const f32x16 pairs = f32x16_load(p);
    _Pragma("GCC unroll 4") for (int i = 0; i < F32X16_PARTS; i++)
    {
        PART(*(EVEN_IS_LOW ? even : odd), i) = (f32v)(BITS_(pairs) << 16);
        PART(*(EVEN_IS_LOW ? odd : even), i) = (f32v)(BITS_(pairs) & 0xffff0000);
    }
}

#ifdef VEC_REGISTER
/* Elements at any address, as floats. */
#define HALF_(p) ((const unsigned char *)(p) + i * VEC_BYTES / 2)
DEEP_INLINE f32x16 f32x16_load_bf16(const void *p) { F32X16_EACH(f32v_load_bf16(HALF_(p))); }
DEEP_INLINE f32x16 f32x16_load_f16(const void *p) { F32X16_EACH(f32v_load_f16(HALF_(p))); }
#undef HALF_

/* Transposes 16 rows of 16 floats that start `row` floats apart. */
DEEP_INLINE void f32x16_transpose(const float *x, size_t row, float *out)
{
    enum { N = VEC_BYTES / 4 };
    for (size_t from = 0; from < 16; from += N)
        for (size_t column = 0; column < 16; column += N) {
            vec r[N];
            for (size_t i = 0; i < N; i++)
                r[i] = *(const vec_at *)(const void *)(x + (from + i) * row + column);
            vec_transpose32(r);
            for (size_t i = 0; i < N; i++)
                vec_store(out + (column + i) * 16 + from, r[i]);
        }
}
#endif

#if VEC_BYTES == 16
/* Horizontal sums of four vectors: lanes 8 apart are added first, then lanes 4, 2 and 1 apart. */
DEEP_INLINE void f32x16_sum_4(const f32x16 a[4], float sum[4])
{
    for (int i = 0; i < 4; i++) {
        const f32v four = (a[i].part[0] + a[i].part[2]) + (a[i].part[1] + a[i].part[3]);
        sum[i] = (four[0] + four[2]) + (four[1] + four[3]);
    }
}
#endif

/* ---- Sets of lanes ----------------------------------------------------------------------------------------------- */

#ifndef F32V_MASK_IS_REGISTER
DEEP_INLINE f32v_mask f32v_less(f32v a, f32v b) { return (f32v_mask)(a < b); }
DEEP_INLINE f32v_mask f32v_at_most(f32v a, f32v b) { return (f32v_mask)(a <= b); }
DEEP_INLINE f32v_mask f32v_equal(f32v a, f32v b) { return (f32v_mask)(a == b); }
DEEP_INLINE f32v_mask f32v_unequal(f32v a, f32v b) { return (f32v_mask)(a != b); }
DEEP_INLINE f32v_mask u32v_unequal(u32v a, u32v b) { return (f32v_mask)(a != b); }
DEEP_INLINE f32v f32v_if(f32v_mask k, f32v a) { return (f32v)((u32v)k & (u32v)a); }
#endif

/* True if a <= b in a lane. */
DEEP_INLINE bool f32x16_any_at_most(f32x16 a, f32x16 b)
{
    f32v_mask any = f32v_at_most(PART(a, 0), PART(b, 0));
    for (int i = 1; i < F32X16_PARTS; i++)
        any |= f32v_at_most(PART(a, i), PART(b, i));
    return f32v_any(any);
}

/* In lanes in which a is below *best, *best becomes a and *at becomes `step`; returns whether there is such a lane.
 * NaN is not below. */
DEEP_INLINE bool f32x16_improve(f32x16 a, float step, f32x16 *best, f32x16 *at)
{
    f32v_mask any = f32v_less(PART(a, 0), PART(*best, 0));
    _Pragma("GCC unroll 4") for (int i = 0; i < F32X16_PARTS; i++)
    {
        const f32v_mask less = f32v_less(PART(a, i), PART(*best, i));
        PART(*best, i) = f32v_choose(less, PART(a, i), PART(*best, i));
        PART(*at, i) = f32v_choose(less, f32v_splat(step), PART(*at, i));
        any |= less;
    }
    return f32v_any(any);
}

/* `negative` in lanes in which x has a sign, `other` in the rest. */
DEEP_INLINE f32x16 f32x16_by_sign(f32x16 x, f32x16 negative, f32x16 other)
{
    F32X16_EACH(f32v_choose(f32v_signs(PART(x, i)), PART(negative, i), PART(other, i)));
}

/* a in lanes in which v is a number, `other` in those in which it is NaN. */
DEEP_INLINE f32x16 f32x16_if_number(f32x16 v, f32x16 a, f32x16 other)
{
    F32X16_EACH(f32v_choose(f32v_equal(PART(v, i), PART(v, i)), PART(a, i), PART(other, i)));
}

/* The bits of b in lanes in which v is below 0, none in the others. */
DEEP_INLINE f32x16 f32x16_if_negative(f32x16 v, f32x16 b)
{
    F32X16_EACH(f32v_if(f32v_less(PART(v, i), f32v_splat(0)), PART(b, i)));
}

/* ---- 8 floats ---------------------------------------------------------------------------------------------------- */

typedef f32x8 f32x8_at __attribute__((aligned(1), may_alias));

DEEP_INLINE f32x8 f32x8_load(const float *p) { return *(const f32x8_at *)(const void *)p; }
DEEP_INLINE void f32x8_store(float *p, f32x8 a) { *(f32x8_at *)(void *)p = a; }
DEEP_INLINE f32x8 f32x8_splat(float a) { return (f32x8){a, a, a, a, a, a, a, a}; }
DEEP_INLINE f32x8 f32x8_add(f32x8 a, f32x8 b) { return a + b; }

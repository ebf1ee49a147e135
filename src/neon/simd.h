/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The vocabulary of vectors, masks, loads and permutations: `vec`, 128 bits of integers for minimum and maximum, and
 * f32x16, 16 floats, for searches, sums and codes. Everything is static: the linker could replace a shared helper by
 * one that was built with flags for another CPU. */
#pragma once

#if !defined(__ARM_NEON) || !defined(__aarch64__)
#error "this file needs aarch64 with Advanced SIMD"
#endif

#include <arm_neon.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernel_search.h"
#include "templates/inline.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

#define VEC_BYTES 16
#define VEC_REGISTERS 32
typedef uint8x16_t vec;

static inline int16x8_t vec_s16(vec v) { return vreinterpretq_s16_u8(v); }
static inline int32x4_t vec_s32(vec v) { return vreinterpretq_s32_u8(v); }
static inline uint16x8_t vec_u16(vec v) { return vreinterpretq_u16_u8(v); }
/* Loaded once, as on the other instruction sets. */
static inline vec vec_load(const void *p)
{
    vec v = vld1q_u8((const uint8_t *)p);
    __asm__("" : "+w"(v));
    return v;
}

/* Ordered load: the compiler keeps the order of such loads. */
static inline vec vec_load_ordered(const void *p)
{
    vec v = vld1q_u8((const uint8_t *)p);
    __asm__ volatile("" : "+w"(v));
    return v;
}

/* Keeps the vector in a register. */
static inline void vec_in_register(vec *v) { __asm__("" : "+w"(*v)); }

static inline void vec_store(void *p, vec v) { vst1q_u8((uint8_t *)p, v); }

static inline vec vec_not(vec v) { return vmvnq_u8(v); }

static inline vec vec_and(vec a, vec b) { return vandq_u8(a, b); }

static inline vec vec_xor(vec a, vec b) { return veorq_u8(a, b); }

static inline vec vec_max_s16(vec a, vec b) { return vreinterpretq_u8_s16(vmaxq_s16(vec_s16(a), vec_s16(b))); }
static inline vec vec_max_s32(vec a, vec b) { return vreinterpretq_u8_s32(vmaxq_s32(vec_s32(a), vec_s32(b))); }
static inline vec vec_min_s16(vec a, vec b) { return vreinterpretq_u8_s16(vminq_s16(vec_s16(a), vec_s16(b))); }
static inline vec vec_min_s32(vec a, vec b) { return vreinterpretq_u8_s32(vminq_s32(vec_s32(a), vec_s32(b))); }
static inline vec vec_max_u16(vec a, vec b) { return vreinterpretq_u8_u16(vmaxq_u16(vec_u16(a), vec_u16(b))); }
static inline vec vec_max_u32(vec a, vec b)
{
    return vreinterpretq_u8_u32(vmaxq_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}
static inline vec vec_min_u16(vec a, vec b) { return vreinterpretq_u8_u16(vminq_u16(vec_u16(a), vec_u16(b))); }
static inline vec vec_min_u32(vec a, vec b)
{
    return vreinterpretq_u8_u32(vminq_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
}

static inline vec vec_splat16(int16_t k) { return vreinterpretq_u8_s16(vdupq_n_s16(k)); }
static inline vec vec_splat32(int32_t k) { return vreinterpretq_u8_s32(vdupq_n_s32(k)); }

static inline bool vec_any(vec m) { return vmaxvq_u8(m) != 0; }
static inline bool vec_any_ge16(vec a, vec b)
{
    return vec_any(vreinterpretq_u8_u16(vcgeq_s16(vec_s16(a), vec_s16(b))));
}

static inline bool vec_any_ge32(vec a, vec b)
{
    return vec_any(vreinterpretq_u8_u32(vcgeq_s32(vec_s32(a), vec_s32(b))));
}

/* bits <-> key: x ^ (sign >> 1), the sign spread over its lane */
static inline vec vec_key16(vec v)
{
    const uint16x8_t sign = vreinterpretq_u16_s16(vshrq_n_s16(vec_s16(v), 15));
    return vec_xor(v, vreinterpretq_u8_u16(vshrq_n_u16(sign, 1)));
}

static inline vec vec_key32(vec v)
{
    const uint32x4_t sign = vreinterpretq_u32_s32(vshrq_n_s32(vec_s32(v), 31));
    return vec_xor(v, vreinterpretq_u8_u32(vshrq_n_u32(sign, 1)));
}

/* 0 where v equals k */
static inline vec vec_clear_equal16(vec v, vec k)
{
    return vbicq_u8(v, vreinterpretq_u8_u16(vceqq_s16(vec_s16(v), vec_s16(k))));
}
static inline vec vec_clear_equal32(vec v, vec k)
{
    return vbicq_u8(v, vreinterpretq_u8_u32(vceqq_s32(vec_s32(v), vec_s32(k))));
}

/* key -1 is -0: make it +0 */
static inline vec vec_no_minus_zero16(vec k) { return vec_clear_equal16(k, vec_splat16(-1)); }
static inline vec vec_no_minus_zero32(vec k) { return vec_clear_equal32(k, vec_splat32(-1)); }

/* Smallest lane. */
static inline int16_t vec_reduce_min16(vec v) { return vminvq_s16(vec_s16(v)); }
static inline int32_t vec_reduce_min32(vec v) { return vminvq_s32(vec_s32(v)); }

/* Steps of transposed reductions (templates/transpose_reduce.inl.h). A step takes two vectors and halves the lanes
 * of each run: the result is the lane-wise minimum or maximum of x and y. Even and odd lanes preserve the order of
 * the runs, whatever step is the first. */
static inline void vec_pair16(int first, int step, vec a, vec b, vec *x, vec *y)
{
    (void)first, (void)step;
    *x = vreinterpretq_u8_s16(vuzp1q_s16(vec_s16(a), vec_s16(b)));
    *y = vreinterpretq_u8_s16(vuzp2q_s16(vec_s16(a), vec_s16(b)));
}

static inline void vec_pair32(int first, int step, vec a, vec b, vec *x, vec *y)
{
    (void)first, (void)step;
    *x = vreinterpretq_u8_s32(vuzp1q_s32(vec_s32(a), vec_s32(b)));
    *y = vreinterpretq_u8_s32(vuzp2q_s32(vec_s32(a), vec_s32(b)));
}

static inline vec vec_order16(int first, vec v)
{
    (void)first;
    return v;
}

static inline vec vec_order32(int first, vec v)
{
    (void)first;
    return v;
}

/* ---- Transposition ----------------------------------------------------------------------------------------------- */

/* Tiles in registers, for templates/indexed.inl.h: r[i] has row i, and afterwards r[c] column c of
 * all rows. */

#define VEC_PARTS16 1
#define VEC_PARTS32 1

/* Unused: there is one part. */
static inline vec vec_halves16(vec a, vec b, int p) { return (void)b, (void)p, a; }
static inline vec vec_halves32(vec a, vec b, int p) { return (void)b, (void)p, a; }

static inline vec vec_zip_low(int bits, vec a, vec b)
{
    return bits == 16   ? vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
           : bits == 32 ? vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)))
                        : vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

static inline vec vec_zip_high(int bits, vec a, vec b)
{
    return bits == 16   ? vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
           : bits == 32 ? vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)))
                        : vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

/* Interleaves n vectors that already hold elements of `done` rows side by side, `bits` wide together: pairs become
 * twice as wide. */
static inline __attribute__((always_inline)) void vec_interleave(int bits, int done, int n, vec *r)
{
    _Pragma("GCC unroll 8") for (int b = 0; b < n; b += 2 * done)
    {
        vec t[8];
        _Pragma("GCC unroll 8") for (int j = 0; j < done; j++)
        {
            t[2 * j] = vec_zip_low(bits, r[b + j], r[b + done + j]);
            t[2 * j + 1] = vec_zip_high(bits, r[b + j], r[b + done + j]);
        }
        _Pragma("GCC unroll 8") for (int j = 0; j < 2 * done; j++) r[b + j] = t[j];
    }
}

static inline __attribute__((always_inline)) void vec_transpose16(vec *r)
{
    vec_interleave(16, 1, 8, r);
    vec_interleave(32, 2, 8, r);
    vec_interleave(64, 4, 8, r);
}

static inline __attribute__((always_inline)) void vec_transpose32(vec *r)
{
    vec_interleave(32, 1, 4, r);
    vec_interleave(64, 2, 4, r);
}

/* ---- 16 floats --------------------------------------------------------------------------------------------------- */

/* One vector, in four registers. */

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

/* Minimum and maximum of bits as signed integers. That is the order of floats if neither is negative, or if one of them
 * is and the other is not. */
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

/* ---- Elements, bits and codes for templates/codes_lanes.inl.h ---------------------------------------------------- */

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
/* 32 elements: those at even places and those at odd ones. */
DEEP_INLINE void f32x16_load_bf16_pairs(const void *p, f32x16 *even, f32x16 *odd)
{
    for (int i = 0; i < 4; i++) {
        const uint32x4_t pairs = vreinterpretq_u32_u8(vld1q_u8((const unsigned char *)p + 16 * i));
        even->q[i] = FLOATS_(vshlq_n_u32(pairs, 16));
        odd->q[i] = FLOATS_(vandq_u32(pairs, vdupq_n_u32(0xffff0000)));
    }
}
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
DEEP_INLINE f32x16 f32x16_shift_right_26(f32x16 a) { F32X16_EACH(FLOATS_(vshrq_n_u32(INTEGERS_(a.q[i]), 26))); }

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

/* The low bytes of the lanes of both, alternately. */
DEEP_INLINE void f32x16_store_byte_pairs(unsigned char *to, f32x16 even, f32x16 odd)
{
    uint16x8_t pairs[4];
    for (int i = 0; i < 4; i++)
        pairs[i] = vreinterpretq_u16_u32(vsliq_n_u32(INTEGERS_(even.q[i]), INTEGERS_(odd.q[i]), 8));
    for (int i = 0; i < 2; i++)
        vst1q_u8(to + 16 * i, vreinterpretq_u8_u16(vuzp1q_u16(pairs[2 * i], pairs[2 * i + 1])));
}

/* ---- Words ------------------------------------------------------------------------------------------------------ */

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

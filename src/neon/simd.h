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
#include <string.h>

#include "kernels/kernel_search.h"
#include "neon/tuning.h"
#include "templates/inline.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

#define VEC_BYTES 16
#define VEC_REGISTERS 32
#define VEC_REGISTER "w"
typedef uint8x16_t vec;
typedef float32x4_t f32v;

static inline vec vec_max_s16(vec a, vec b) { return (vec)vmaxq_s16((int16x8_t)a, (int16x8_t)b); }
static inline vec vec_max_s32(vec a, vec b) { return (vec)vmaxq_s32((int32x4_t)a, (int32x4_t)b); }
static inline vec vec_min_s16(vec a, vec b) { return (vec)vminq_s16((int16x8_t)a, (int16x8_t)b); }
static inline vec vec_min_s32(vec a, vec b) { return (vec)vminq_s32((int32x4_t)a, (int32x4_t)b); }
static inline vec vec_max_u16(vec a, vec b) { return (vec)vmaxq_u16((uint16x8_t)a, (uint16x8_t)b); }
static inline vec vec_max_u32(vec a, vec b) { return (vec)vmaxq_u32((uint32x4_t)a, (uint32x4_t)b); }
static inline vec vec_min_u16(vec a, vec b) { return (vec)vminq_u16((uint16x8_t)a, (uint16x8_t)b); }
static inline vec vec_min_u32(vec a, vec b) { return (vec)vminq_u32((uint32x4_t)a, (uint32x4_t)b); }

static inline bool vec_any_ge16(vec a, vec b) { return vmaxvq_u16(vcgeq_s16((int16x8_t)a, (int16x8_t)b)) != 0; }
static inline bool vec_any_ge32(vec a, vec b) { return vmaxvq_u32(vcgeq_s32((int32x4_t)a, (int32x4_t)b)) != 0; }

/* Smallest lane. */
static inline int16_t vec_reduce_min16(vec v) { return vminvq_s16((int16x8_t)v); }
static inline int32_t vec_reduce_min32(vec v) { return vminvq_s32((int32x4_t)v); }

/* Steps of transposed reductions (templates/transpose_reduce.inl.h). A step takes two vectors and halves the lanes
 * of each run: the result is the lane-wise minimum or maximum of x and y. Even and odd lanes preserve the order of
 * the runs, whatever step is the first. */
static inline void vec_pair16(int first, int step, vec a, vec b, vec *x, vec *y)
{
    (void)first, (void)step;
    *x = (vec)vuzp1q_u16((uint16x8_t)a, (uint16x8_t)b);
    *y = (vec)vuzp2q_u16((uint16x8_t)a, (uint16x8_t)b);
}

static inline void vec_pair32(int first, int step, vec a, vec b, vec *x, vec *y)
{
    (void)first, (void)step;
    *x = (vec)vuzp1q_u32((uint32x4_t)a, (uint32x4_t)b);
    *y = (vec)vuzp2q_u32((uint32x4_t)a, (uint32x4_t)b);
}

static inline vec vec_order16(int first, vec v) { return (void)first, v; }
static inline vec vec_order32(int first, vec v) { return (void)first, v; }

/* ---- Transposition ----------------------------------------------------------------------------------------------- */

#define VEC_PARTS16 1

/* Unused: there is one part, and a vector is one lane of 128 bits. */
static inline vec vec_halves(vec a, vec b, int p) { return (void)b, (void)p, a; }
static inline void vec_transpose_lanes16(vec *r) { (void)r; }
static inline void vec_transpose_lanes32(vec *r) { (void)r; }

static inline __attribute__((always_inline)) vec vec_zip(int bits, bool high, vec a, vec b)
{
    const uint16x8_t a16 = (uint16x8_t)a, b16 = (uint16x8_t)b;
    const uint32x4_t a32 = (uint32x4_t)a, b32 = (uint32x4_t)b;
    const uint64x2_t a64 = (uint64x2_t)a, b64 = (uint64x2_t)b;
    if (bits == 16)
        return (vec)(high ? vzip2q_u16(a16, b16) : vzip1q_u16(a16, b16));
    if (bits == 32)
        return (vec)(high ? vzip2q_u32(a32, b32) : vzip1q_u32(a32, b32));
    return (vec)(high ? vzip2q_u64(a64, b64) : vzip1q_u64(a64, b64));
}

/* ---- Floats ------------------------------------------------------------------------------------------------------ */

typedef uint32x4_t f32v_mask;

DEEP_INLINE f32v_mask f32v_signs(f32v a) { return vcltzq_s32((int32x4_t)a); }
DEEP_INLINE f32v f32v_choose(f32v_mask k, f32v a, f32v b) { return vbslq_f32(k, a, b); }
DEEP_INLINE bool f32v_any(f32v_mask k) { return vmaxvq_u32(k) != 0; }
DEEP_INLINE uint32_t f32v_bits(f32v_mask k) { return vaddvq_u32(k & (uint32x4_t){1, 2, 4, 8}); }

DEEP_INLINE f32v f32v_splat(float a) { return vdupq_n_f32(a); }
DEEP_INLINE f32v f32v_fma(f32v a, f32v b, f32v c) { return vfmaq_f32(c, a, b); }
DEEP_INLINE f32v f32v_fnma(f32v a, f32v b, f32v c) { return vfmsq_f32(c, a, b); }
DEEP_INLINE f32v f32v_max(f32v a, f32v b) { return f32v_choose(vcgtq_f32(a, b), a, b); }
DEEP_INLINE f32v f32v_min(f32v a, f32v b) { return f32v_choose(vcltq_f32(a, b), a, b); }
DEEP_INLINE f32v f32v_of_bf16(uint8x8_t words) { return (f32v)vshll_n_u16(vreinterpret_u16_u8(words), 16); }
DEEP_INLINE f32v f32v_load_bf16(const void *p) { return f32v_of_bf16(vld1_u8(p)); }
DEEP_INLINE f32v f32v_load_f16(const void *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
DEEP_INLINE f32v f32v_round_f16(f32v a) { return vcvt_f32_f16(vcvt_f16_f32(a)); }
#define f32v_pow Sleef_cinz_powf4_u10advsimdnofma

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

DEEP_INLINE f32v f32v_look_up(struct f32x16_table t, f32v a)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(a);
    const uint32x4_t low = vandq_u32(vshrq_n_u32(bits, 23), vdupq_n_u32(7)),
                     high = vandq_u32(vshrq_n_u32(bits, 26), vdupq_n_u32(7));
    return vmulq_f32(vreinterpretq_f32_u8(vqtbl2q_u8(t.low, bytes_of_index(low))),
                     vreinterpretq_f32_u8(vqtbl2q_u8(t.high, bytes_of_index(high))));
}

#include "templates/vectors.h"

/* ---- Bits and codes for templates/codes_lanes.inl.h -------------------------------------------------------------- */

/* The numbers of 16 codes of e2m1, made as BF16: a table has their low bytes, another one their high bytes. */
DEEP_INLINE f32x16 f32x16_load_e2m1(const unsigned char *codes)
{
    static const uint8_t low[] = {0, 0, 128, 192, 0, 64, 128, 192, 0, 0, 128, 192, 0, 64, 128, 192};
    static const uint8_t high[] = {0, 63, 63, 63, 64, 64, 64, 64, 128, 191, 191, 191, 192, 192, 192, 192};
    const uint8x16_t at = vld1q_u8(codes), l = vqtbl1q_u8(vld1q_u8(low), at), h = vqtbl1q_u8(vld1q_u8(high), at);
    const uint8x16_t first = vzip1q_u8(l, h), last = vzip2q_u8(l, h);
    const uint8x8_t quarter[] = {vget_low_u8(first), vget_high_u8(first), vget_low_u8(last), vget_high_u8(last)};
    F32X16_EACH(f32v_of_bf16(quarter[i]));
}

/* The low byte of each lane. */
DEEP_INLINE void f32x16_store_bytes(unsigned char *to, f32x16 a)
{
    const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_f32(a.part[0]), vreinterpretq_u16_f32(a.part[1]));
    const uint16x8_t high = vuzp1q_u16(vreinterpretq_u16_f32(a.part[2]), vreinterpretq_u16_f32(a.part[3]));
    vst1q_u8(to, vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high)));
}

/* Stores of nearest integers; largest: the largest magnitude so far, as bits. */
#define CODE_NEAREST
struct nearest_limits {
    int8x16_t min, max;
    uint32x4_t largest;
};

DEEP_INLINE struct nearest_limits nearest_limits_of(int min, int max)
{
    return (struct nearest_limits){vdupq_n_s8((int8_t)min), vdupq_n_s8((int8_t)max), vdupq_n_u32(0)};
}

/* NaN, and numbers from 2^31 on. */
DEEP_INLINE bool nearest_too_large(const struct nearest_limits *limits)
{
    return vmaxvq_u32(limits->largest) >= 0x4f000000;
}

/* The integers nearest to 16 floats as bytes; conversions limit. */
DEEP_INLINE int16x8_t nearest_words(f32v low, f32v high)
{
    return vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(low)), vcvtnq_s32_f32(high));
}
DEEP_INLINE int8x16_t nearest_bytes(f32x16 a, struct nearest_limits *limits)
{
    const int16x8_t low = nearest_words(a.part[0], a.part[1]), high = nearest_words(a.part[2], a.part[3]);
    const int8x16_t bytes = vqmovn_high_s16(vqmovn_s16(low), high);
    if (!limits)
        return bytes;
    for (int i = 0; i < 4; i++)
        limits->largest = vmaxq_u32(limits->largest, vreinterpretq_u32_f32(vabsq_f32(a.part[i])));
    return vminq_s8(vmaxq_s8(bytes, limits->min), limits->max);
}

/* The integers nearest to 64 floats as bytes; a[0]: elements 0, 2, 4, ..., a[1]: 1, 3, 5, ..., a[2] and a[3]: the same
 * of elements from 32 on. Bytes are limited to int8, and to the limits unless they are NULL. */
DEEP_INLINE void nearest_store(unsigned char *to, const f32x16 a[4], struct nearest_limits *limits)
{
    for (int k = 0; k < 4; k += 2) {
        const int8x16x2_t pairs = {{nearest_bytes(a[k], limits), nearest_bytes(a[k + 1], limits)}};
        vst2q_s8((int8_t *)to + 16 * k, pairs);
    }
}

/* ---- Words ------------------------------------------------------------------------------------------------------ */

#define CODE_THRESHOLDS
#define BF16_CODE_PATHS(PATH)                                                                                          \
    PATH(thresholds, 1 << QOBS_CODE_E2M1, ZERO_POINT)                                                                  \
    PATH(nearest, 1 << QOBS_CODE_INTEGER, WITH_SUM | IN_FLOAT)

DEEP_INLINE i16x16 i16x16_min(i16x16 a, i16x16 b)
{
    const i16x16 less = a < b;
    return (a & less) | (b & ~less);
}

/* a - b, or 0 if that is below 0; neither is below 0. */
DEEP_INLINE i16x16 i16x16_excess(i16x16 a, i16x16 b) { return (a - b) & (a > b); }

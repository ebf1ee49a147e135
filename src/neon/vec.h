/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 128-bit integer vectors for templates/minmax.inl.h and templates/absmax.inl.h. Everything is static: the linker
 * could replace a shared helper by one that was built with flags for another CPU. */
#pragma once

#if !defined(__ARM_NEON) || !defined(__aarch64__)
#error "this file needs aarch64 with Advanced SIMD"
#endif

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_BYTES 16
#define VEC_REGISTERS 32
typedef uint8x16_t vec;

static inline int16x8_t vec_s16(vec v) { return vreinterpretq_s16_u8(v); }
static inline int32x4_t vec_s32(vec v) { return vreinterpretq_s32_u8(v); }
static inline int64x2_t vec_s64(vec v) { return vreinterpretq_s64_u8(v); }
static inline uint16x8_t vec_u16(vec v) { return vreinterpretq_u16_u8(v); }
static inline float32x4_t vec_f32(vec v) { return vreinterpretq_f32_u8(v); }
static inline float64x2_t vec_f64(vec v) { return vreinterpretq_f64_u8(v); }

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

/* There is no 64-bit minimum: a comparison and a choice. */
static inline vec vec_max_s64(vec a, vec b)
{
    return vbslq_u8(vreinterpretq_u8_u64(vcgtq_s64(vec_s64(a), vec_s64(b))), a, b);
}

static inline vec vec_min_s64(vec a, vec b)
{
    return vbslq_u8(vreinterpretq_u8_u64(vcgtq_s64(vec_s64(a), vec_s64(b))), b, a);
}

/* Minimum and maximum as floats. Results for NaN do not matter: vec_or_unordered finds NaN. */
static inline vec vec_min_f32(vec a, vec b) { return vreinterpretq_u8_f32(vminnmq_f32(vec_f32(a), vec_f32(b))); }
static inline vec vec_max_f32(vec a, vec b) { return vreinterpretq_u8_f32(vmaxnmq_f32(vec_f32(a), vec_f32(b))); }
static inline vec vec_min_f64(vec a, vec b) { return vreinterpretq_u8_f64(vminnmq_f64(vec_f64(a), vec_f64(b))); }
static inline vec vec_max_f64(vec a, vec b) { return vreinterpretq_u8_f64(vmaxnmq_f64(vec_f64(a), vec_f64(b))); }

typedef vec vec_mask; /* all bits of a lane, or none */

static inline vec_mask vec_mask_none(void) { return vdupq_n_u8(0); }
static inline bool vec_mask_any(vec_mask m) { return vmaxvq_u8(m) != 0; }

static inline vec_mask vec_or_unordered32(vec_mask m, vec a, vec b)
{
    const uint32x4_t ordered = vandq_u32(vceqq_f32(vec_f32(a), vec_f32(a)), vceqq_f32(vec_f32(b), vec_f32(b)));
    return vornq_u8(m, vreinterpretq_u8_u32(ordered));
}

static inline vec_mask vec_or_unordered64(vec_mask m, vec a, vec b)
{
    const uint64x2_t ordered = vandq_u64(vceqq_f64(vec_f64(a), vec_f64(a)), vceqq_f64(vec_f64(b), vec_f64(b)));
    return vornq_u8(m, vreinterpretq_u8_u64(ordered));
}

static inline vec vec_splat16(int16_t k) { return vreinterpretq_u8_s16(vdupq_n_s16(k)); }
static inline vec vec_splat32(int32_t k) { return vreinterpretq_u8_s32(vdupq_n_s32(k)); }
static inline vec vec_splat64(int64_t k) { return vreinterpretq_u8_s64(vdupq_n_s64(k)); }

static inline bool vec_any_ge16(vec a, vec b)
{
    return vec_mask_any(vreinterpretq_u8_u16(vcgeq_s16(vec_s16(a), vec_s16(b))));
}

static inline bool vec_any_ge32(vec a, vec b)
{
    return vec_mask_any(vreinterpretq_u8_u32(vcgeq_s32(vec_s32(a), vec_s32(b))));
}

static inline bool vec_any_ge64(vec a, vec b)
{
    return vec_mask_any(vreinterpretq_u8_u64(vcgeq_s64(vec_s64(a), vec_s64(b))));
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

static inline vec vec_key64(vec v)
{
    const uint64x2_t sign = vreinterpretq_u64_s64(vshrq_n_s64(vec_s64(v), 63));
    return vec_xor(v, vreinterpretq_u8_u64(vshrq_n_u64(sign, 1)));
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
static inline vec vec_clear_equal64(vec v, vec k)
{
    return vbicq_u8(v, vreinterpretq_u8_u64(vceqq_s64(vec_s64(v), vec_s64(k))));
}

/* key -1 is -0: make it +0 */
static inline vec vec_no_minus_zero16(vec k) { return vec_clear_equal16(k, vec_splat16(-1)); }
static inline vec vec_no_minus_zero32(vec k) { return vec_clear_equal32(k, vec_splat32(-1)); }
static inline vec vec_no_minus_zero64(vec k) { return vec_clear_equal64(k, vec_splat64(-1)); }

/* Smallest lane. */
static inline int16_t vec_reduce_min16(vec v) { return vminvq_s16(vec_s16(v)); }
static inline int32_t vec_reduce_min32(vec v) { return vminvq_s32(vec_s32(v)); }

static inline int64_t vec_reduce_min64(vec v)
{
    const int64_t a = vgetq_lane_s64(vec_s64(v), 0), b = vgetq_lane_s64(vec_s64(v), 1);
    return a < b ? a : b;
}

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

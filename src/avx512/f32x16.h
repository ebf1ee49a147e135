/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 16 floats as one vector for templates/search_errors.inl.h, in one register. Everything is static, as in vec.h. */
#pragma once

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "this file needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include <immintrin.h>
#include <math.h>

#include "avx512/transpose.h"
#include "kernels/kernel_search.h"
#include "templates/inline.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

typedef __m512 f32x16;

DEEP_INLINE f32x16 f32x16_load(const float *p) { return _mm512_load_ps(p); }
DEEP_INLINE void f32x16_store(float *p, f32x16 a) { _mm512_storeu_ps(p, a); }
DEEP_INLINE f32x16 f32x16_splat(float a) { return _mm512_set1_ps(a); }
DEEP_INLINE f32x16 f32x16_add(f32x16 a, f32x16 b) { return _mm512_add_ps(a, b); }
DEEP_INLINE f32x16 f32x16_sub(f32x16 a, f32x16 b) { return _mm512_sub_ps(a, b); }
DEEP_INLINE f32x16 f32x16_mul(f32x16 a, f32x16 b) { return _mm512_mul_ps(a, b); }
DEEP_INLINE f32x16 f32x16_fma(f32x16 a, f32x16 b, f32x16 c) { return _mm512_fmadd_ps(a, b, c); }   /* a * b + c */
DEEP_INLINE f32x16 f32x16_fnma(f32x16 a, f32x16 b, f32x16 c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a * b */
DEEP_INLINE f32x16 f32x16_div(f32x16 a, f32x16 b) { return _mm512_div_ps(a, b); }
DEEP_INLINE f32x16 f32x16_abs(f32x16 a) { return _mm512_abs_ps(a); }

/* The largest power of 2 that is not above a, which is positive and normal; less than 2^-126 becomes 0. */
DEEP_INLINE f32x16 f32x16_power_of_2(f32x16 a)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7f800000)));
}

/* True if a <= b in a lane. */
DEEP_INLINE bool f32x16_any_at_most(f32x16 a, f32x16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ) != 0; }

/* `negative` in lanes in which x has a sign, `other` in the rest. */
DEEP_INLINE f32x16 f32x16_by_sign(f32x16 x, f32x16 negative, f32x16 other)
{
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), other, negative);
}

/* The sign of `sign` on the magnitude of a. */
DEEP_INLINE f32x16 f32x16_copy_sign(f32x16 a, f32x16 sign)
{
    const __m512i minus = _mm512_set1_epi32(INT32_MIN);
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(minus, _mm512_castps_si512(sign), _mm512_castps_si512(a), 0xca));
}

/* Minimum and maximum of bits as signed integers: right for floats of which none is negative, and for limits of
 * floats of any sign. */
DEEP_INLINE f32x16 f32x16_min_bits(f32x16 a, f32x16 b)
{
    return _mm512_castsi512_ps(_mm512_min_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

DEEP_INLINE f32x16 f32x16_max_bits(f32x16 a, f32x16 b)
{
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

/* Minus the mantissa, a number from 1 up to below 2, if the biased exponent is below 128. */
DEEP_INLINE f32x16 f32x16_minus_mantissa(f32x16 a) { return _mm512_or_ps(a, _mm512_set1_ps(-1)); }

struct f32x16_table {
    __m512 low, high; /* for exponents 32 to 47 and 48 to 63; 0 for those below */
};

DEEP_INLINE struct f32x16_table f32x16_table(const float low[8], const float high[8])
{
    const __m512 v = _mm512_broadcast_f32x8(_mm256_loadu_ps(low));
    return (struct f32x16_table){
        _mm512_mul_ps(v, _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(high[4]), _mm512_set1_ps(high[5]))),
        _mm512_mul_ps(v, _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(high[6]), _mm512_set1_ps(high[7]))),
    };
}

/* low[exponent % 8] * high[exponent / 8] for a biased exponent below 64, high being 0 up to high[3]; the sign does
 * not matter. A permutation looks at the low five bits of its indices only; the sixth is 0 where the result is. */
DEEP_INLINE f32x16 f32x16_look_up(struct f32x16_table t, f32x16 a)
{
    const __m512i bits = _mm512_castps_si512(a);
    const __mmask16 there = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(32 << 23));
    return _mm512_maskz_permutex2var_ps(there, t.low, _mm512_srli_epi32(bits, 23), t.high);
}

#ifdef QOBS_SLEEF
DEEP_INLINE f32x16 f32x16_pow(f32x16 a, float exponent)
{
    return Sleef_cinz_powf16_u10avx512fnofma(a, f32x16_splat(exponent));
}
#endif

/* Horizontal sums of four vectors: lanes 8 apart are added first, then lanes 4, 2 and 1 apart. */
DEEP_INLINE void f32x16_sum_4(const f32x16 a[4], float sum[4])
{
    const __m512 ab = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a[0], a[1]), _mm512_shuffle_f32x4(a[0], a[1], 0x4e));
    const __m512 cd = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a[2], a[3]), _mm512_shuffle_f32x4(a[2], a[3], 0x4e));
    const __m512 four = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    const __m512 two = _mm512_add_ps(four, _mm512_permute_ps(four, 0x4e));
    const __m512 one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xb1));
    const __m512i first = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    _mm_storeu_ps(sum, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, one)));
}

/* Transposes 16 rows of 16 floats that start `row` floats apart. */
DEEP_INLINE void f32x16_transpose(const float *x, size_t row, float *out)
{
    vec r[16];
    for (size_t i = 0; i < 16; i++)
        r[i] = _mm512_loadu_si512(x + i * row);
    vec_transpose32(r);
    for (size_t i = 0; i < 16; i++)
        _mm512_store_si512(out + i * 16, r[i]);
}

/* In lanes in which a is below *best, *best becomes a and *at becomes `step`; returns whether there is such a lane.
 * NaN is not below. */
DEEP_INLINE bool f32x16_improve(f32x16 a, float step, f32x16 *best, f32x16 *at)
{
    const __mmask16 less = _mm512_cmp_ps_mask(a, *best, _CMP_LT_OQ);
    *best = _mm512_mask_mov_ps(*best, less, a);
    *at = _mm512_mask_mov_ps(*at, less, f32x16_splat(step));
    return less != 0;
}

/* 8 floats. */
typedef __m256 f32x8;

DEEP_INLINE f32x8 f32x8_load(const float *p) { return _mm256_load_ps(p); }
DEEP_INLINE void f32x8_store(float *p, f32x8 a) { _mm256_storeu_ps(p, a); }
DEEP_INLINE f32x8 f32x8_splat(float a) { return _mm256_set1_ps(a); }
DEEP_INLINE f32x8 f32x8_add(f32x8 a, f32x8 b) { return _mm256_add_ps(a, b); }

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 16 floats as one vector for templates/search_errors.inl.h, in two registers. Everything is static, as in vec.h. */
#pragma once

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file needs -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>
#include <math.h>

#include "avx2/transpose.h"
#include "kernels/kernel_search.h"
#include "templates/inline.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

typedef struct {
    __m256 l, h;
} f32x16;

DEEP_INLINE f32x16 f32x16_load(const float *p) { return (f32x16){_mm256_load_ps(p), _mm256_load_ps(p + 8)}; }

DEEP_INLINE void f32x16_store(float *p, f32x16 a)
{
    _mm256_storeu_ps(p, a.l);
    _mm256_storeu_ps(p + 8, a.h);
}

DEEP_INLINE f32x16 f32x16_splat(float a) { return (f32x16){_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
DEEP_INLINE f32x16 f32x16_add(f32x16 a, f32x16 b) { return (f32x16){_mm256_add_ps(a.l, b.l), _mm256_add_ps(a.h, b.h)}; }
DEEP_INLINE f32x16 f32x16_sub(f32x16 a, f32x16 b) { return (f32x16){_mm256_sub_ps(a.l, b.l), _mm256_sub_ps(a.h, b.h)}; }
DEEP_INLINE f32x16 f32x16_mul(f32x16 a, f32x16 b) { return (f32x16){_mm256_mul_ps(a.l, b.l), _mm256_mul_ps(a.h, b.h)}; }
DEEP_INLINE f32x16 f32x16_div(f32x16 a, f32x16 b) { return (f32x16){_mm256_div_ps(a.l, b.l), _mm256_div_ps(a.h, b.h)}; }

/* The largest power of 2 that is not above a, which is positive and normal; less than 2^-126 becomes 0. */
DEEP_INLINE f32x16 f32x16_power_of_2(f32x16 a)
{
    const __m256 exponent = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
    return (f32x16){_mm256_and_ps(a.l, exponent), _mm256_and_ps(a.h, exponent)};
}

/* True if a <= b in a lane. */
DEEP_INLINE bool f32x16_any_at_most(f32x16 a, f32x16 b)
{
    const __m256 low = _mm256_cmp_ps(a.l, b.l, _CMP_LE_OQ), high = _mm256_cmp_ps(a.h, b.h, _CMP_LE_OQ);
    return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
}

/* a * b + c */
DEEP_INLINE f32x16 f32x16_fma(f32x16 a, f32x16 b, f32x16 c)
{
    return (f32x16){_mm256_fmadd_ps(a.l, b.l, c.l), _mm256_fmadd_ps(a.h, b.h, c.h)};
}

/* c - a * b */
DEEP_INLINE f32x16 f32x16_fnma(f32x16 a, f32x16 b, f32x16 c)
{
    return (f32x16){_mm256_fnmadd_ps(a.l, b.l, c.l), _mm256_fnmadd_ps(a.h, b.h, c.h)};
}

DEEP_INLINE f32x16 f32x16_abs(f32x16 a)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (f32x16){_mm256_andnot_ps(sign, a.l), _mm256_andnot_ps(sign, a.h)};
}

/* `negative` in lanes in which x has a sign, `other` in the rest. */
DEEP_INLINE f32x16 f32x16_by_sign(f32x16 x, f32x16 negative, f32x16 other)
{
    return (f32x16){_mm256_blendv_ps(other.l, negative.l, x.l), _mm256_blendv_ps(other.h, negative.h, x.h)};
}

/* The sign of `sign` on the magnitude of a. */
DEEP_INLINE f32x16 f32x16_copy_sign(f32x16 a, f32x16 sign)
{
    const __m256 minus = _mm256_set1_ps(-0.0f);
    return (f32x16){_mm256_or_ps(_mm256_andnot_ps(minus, a.l), _mm256_and_ps(minus, sign.l)),
                    _mm256_or_ps(_mm256_andnot_ps(minus, a.h), _mm256_and_ps(minus, sign.h))};
}

/* Minimum and maximum of bits as signed integers: right for floats of which none is negative, and for limits of
 * floats of any sign. */
DEEP_INLINE __m256 half_min_bits(__m256 a, __m256 b)
{
    return _mm256_castsi256_ps(_mm256_min_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

DEEP_INLINE __m256 half_max_bits(__m256 a, __m256 b)
{
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

DEEP_INLINE f32x16 f32x16_min_bits(f32x16 a, f32x16 b)
{
    return (f32x16){half_min_bits(a.l, b.l), half_min_bits(a.h, b.h)};
}
DEEP_INLINE f32x16 f32x16_max_bits(f32x16 a, f32x16 b)
{
    return (f32x16){half_max_bits(a.l, b.l), half_max_bits(a.h, b.h)};
}

/* Minus the mantissa, a number from 1 up to below 2, if the biased exponent is below 128. */
DEEP_INLINE f32x16 f32x16_minus_mantissa(f32x16 a)
{
    const __m256 set = _mm256_set1_ps(-1);
    return (f32x16){_mm256_or_ps(a.l, set), _mm256_or_ps(a.h, set)};
}

struct f32x16_table {
    __m256 low, high;
};

DEEP_INLINE struct f32x16_table f32x16_table(const float low[8], const float high[8])
{
    return (struct f32x16_table){_mm256_loadu_ps(low), _mm256_loadu_ps(high)};
}

/* low[exponent % 8] * high[exponent / 8] for a biased exponent below 64; the sign does not matter. A permutation
 * looks at the low three bits of its indices only. */
DEEP_INLINE __m256 half_look_up(struct f32x16_table t, __m256 a)
{
    const __m256i bits = _mm256_castps_si256(a);
    return _mm256_mul_ps(_mm256_permutevar8x32_ps(t.low, _mm256_srli_epi32(bits, 23)),
                         _mm256_permutevar8x32_ps(t.high, _mm256_srli_epi32(bits, 26)));
}

DEEP_INLINE f32x16 f32x16_look_up(struct f32x16_table t, f32x16 a)
{
    return (f32x16){half_look_up(t, a.l), half_look_up(t, a.h)};
}

#ifdef QOBS_SLEEF
DEEP_INLINE f32x16 f32x16_pow(f32x16 a, float exponent)
{
    const __m256 e = _mm256_set1_ps(exponent);
    return (f32x16){Sleef_cinz_powf8_u10avx(a.l, e), Sleef_cinz_powf8_u10avx(a.h, e)};
}
#endif

/* Horizontal sums of four vectors: lanes 8 apart are added first, then lanes 4, 2 and 1 apart. */
DEEP_INLINE void f32x16_sum_4(const f32x16 a[4], float sum[4])
{
    __m256 eight[4];
    for (int i = 0; i < 4; i++)
        eight[i] = _mm256_add_ps(a[i].l, a[i].h);
    const __m256 ab =
        _mm256_add_ps(_mm256_blend_ps(eight[0], eight[1], 0xf0), _mm256_permute2f128_ps(eight[0], eight[1], 0x21));
    const __m256 cd =
        _mm256_add_ps(_mm256_blend_ps(eight[2], eight[3], 0xf0), _mm256_permute2f128_ps(eight[2], eight[3], 0x21));
    /* ab holds four lanes each of a and b */
    const __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    const __m256 one = _mm256_add_ps(two, _mm256_permute_ps(two, 0xb1));
    /* lanes 0 and 4: a and b; 2 and 6: c and d */
    const __m256i order = _mm256_setr_epi32(0, 4, 2, 6, 0, 0, 0, 0);
    _mm_storeu_ps(sum, _mm256_castps256_ps128(_mm256_permutevar8x32_ps(one, order)));
}

/* Transposes 16 rows of 16 floats that start `row` floats apart. */
DEEP_INLINE void f32x16_transpose(const float *x, size_t row, float *out)
{
    for (size_t from = 0; from < 16; from += 8)
        for (size_t column = 0; column < 16; column += 8) {
            vec r[8];
            for (size_t i = 0; i < 8; i++)
                r[i] = _mm256_loadu_si256((const __m256i *)(const void *)(x + (from + i) * row + column));
            vec_transpose32(r);
            for (size_t i = 0; i < 8; i++)
                _mm256_store_si256((__m256i *)(void *)(out + (column + i) * 16 + from), r[i]);
        }
}

DEEP_INLINE int half_improve(__m256 a, __m256 step, __m256 *best, __m256 *at)
{
    const __m256 less = _mm256_cmp_ps(a, *best, _CMP_LT_OQ);
    *best = _mm256_blendv_ps(*best, a, less);
    *at = _mm256_blendv_ps(*at, step, less);
    return _mm256_movemask_ps(less);
}

/* In lanes in which a is below *best, *best becomes a and *at becomes `step`; returns whether there is such a lane.
 * NaN is not below. */
DEEP_INLINE bool f32x16_improve(f32x16 a, float step, f32x16 *best, f32x16 *at)
{
    const __m256 steps = _mm256_set1_ps(step);
    return (half_improve(a.l, steps, &best->l, &at->l) | half_improve(a.h, steps, &best->h, &at->h)) != 0;
}

/* 8 floats. */
typedef __m256 f32x8;

DEEP_INLINE f32x8 f32x8_load(const float *p) { return _mm256_load_ps(p); }
DEEP_INLINE void f32x8_store(float *p, f32x8 a) { _mm256_storeu_ps(p, a); }
DEEP_INLINE f32x8 f32x8_splat(float a) { return _mm256_set1_ps(a); }
DEEP_INLINE f32x8 f32x8_add(f32x8 a, f32x8 b) { return _mm256_add_ps(a, b); }

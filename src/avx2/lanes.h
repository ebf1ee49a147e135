/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 16 floats as one for the body of search_errors.inl.h, in two registers. Everything is static, as in vec.h. */
#ifndef QOBS_AVX2_LANES_H
#define QOBS_AVX2_LANES_H

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file needs -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>
#include <math.h>

#include "kernels.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

#define LANES_ABREAST 2 /* candidates whose sums fit the registers beside what they need */
typedef struct {
    __m256 l, h;
} lanes;

static inline lanes lanes_load(const float *p) { return (lanes){_mm256_load_ps(p), _mm256_load_ps(p + 8)}; }

static inline void lanes_store(float *p, lanes a)
{
    _mm256_storeu_ps(p, a.l);
    _mm256_storeu_ps(p + 8, a.h);
}

static inline lanes lanes_splat(float a) { return (lanes){_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
static inline lanes lanes_add(lanes a, lanes b) { return (lanes){_mm256_add_ps(a.l, b.l), _mm256_add_ps(a.h, b.h)}; }
static inline lanes lanes_sub(lanes a, lanes b) { return (lanes){_mm256_sub_ps(a.l, b.l), _mm256_sub_ps(a.h, b.h)}; }
static inline lanes lanes_mul(lanes a, lanes b) { return (lanes){_mm256_mul_ps(a.l, b.l), _mm256_mul_ps(a.h, b.h)}; }

/* a * b + c */
static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return (lanes){_mm256_fmadd_ps(a.l, b.l, c.l), _mm256_fmadd_ps(a.h, b.h, c.h)};
}

/* c - a * b */
static inline lanes lanes_fnma(lanes a, lanes b, lanes c)
{
    return (lanes){_mm256_fnmadd_ps(a.l, b.l, c.l), _mm256_fnmadd_ps(a.h, b.h, c.h)};
}

static inline lanes lanes_abs(lanes a)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (lanes){_mm256_andnot_ps(sign, a.l), _mm256_andnot_ps(sign, a.h)};
}

/* `negative` where x has a sign, elsewhere `other`. */
static inline lanes lanes_by_sign(lanes x, lanes negative, lanes other)
{
    return (lanes){_mm256_blendv_ps(other.l, negative.l, x.l), _mm256_blendv_ps(other.h, negative.h, x.h)};
}

/* The sign of `sign` on the magnitude of a. */
static inline lanes lanes_copy_sign(lanes a, lanes sign)
{
    const __m256 minus = _mm256_set1_ps(-0.0f);
    return (lanes){_mm256_or_ps(_mm256_andnot_ps(minus, a.l), _mm256_and_ps(minus, sign.l)),
                   _mm256_or_ps(_mm256_andnot_ps(minus, a.h), _mm256_and_ps(minus, sign.h))};
}

/* Of their bits as signed integers: of floats where none of the two is negative, and of bounds to floats of any sign. */
static inline __m256 half_min_bits(__m256 a, __m256 b)
{
    return _mm256_castsi256_ps(_mm256_min_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

static inline __m256 half_max_bits(__m256 a, __m256 b)
{
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

static inline lanes lanes_min_bits(lanes a, lanes b) { return (lanes){half_min_bits(a.l, b.l), half_min_bits(a.h, b.h)}; }
static inline lanes lanes_max_bits(lanes a, lanes b) { return (lanes){half_max_bits(a.l, b.l), half_max_bits(a.h, b.h)}; }

/* Minus the mantissa as a number from 1 up to below 2, for a biased exponent below 128. */
static inline lanes lanes_minus_mantissa(lanes a)
{
    const __m256 set = _mm256_set1_ps(-1);
    return (lanes){_mm256_or_ps(a.l, set), _mm256_or_ps(a.h, set)};
}

struct lanes_table {
    __m256 low, high;
};

static inline struct lanes_table lanes_table(const float low[8], const float high[8])
{
    return (struct lanes_table){_mm256_loadu_ps(low), _mm256_loadu_ps(high)};
}

/* low[exponent % 8] * high[exponent / 8] for a biased exponent below 64; the sign does not matter. A permutation looks at the low
 * three bits of its indices only. */
static inline __m256 half_look_up(struct lanes_table t, __m256 a)
{
    const __m256i bits = _mm256_castps_si256(a);
    return _mm256_mul_ps(_mm256_permutevar8x32_ps(t.low, _mm256_srli_epi32(bits, 23)),
                         _mm256_permutevar8x32_ps(t.high, _mm256_srli_epi32(bits, 26)));
}

static inline lanes lanes_look_up(struct lanes_table t, lanes a) { return (lanes){half_look_up(t, a.l), half_look_up(t, a.h)}; }

#ifdef QOBS_SLEEF
static inline lanes lanes_pow(lanes a, float exponent)
{
    const __m256 e = _mm256_set1_ps(exponent);
    return (lanes){Sleef_cinz_powf8_u10avx(a.l, e), Sleef_cinz_powf8_u10avx(a.h, e)};
}
#endif

/* The sums of four: of lanes 8 apart, then of those 4, 2 and 1 apart. */
static inline void lanes_fold(const lanes a[4], float sum[4])
{
    __m256 eight[4];
    for (int i = 0; i < 4; i++)
        eight[i] = _mm256_add_ps(a[i].l, a[i].h);
    const __m256 ab = _mm256_add_ps(_mm256_blend_ps(eight[0], eight[1], 0xf0), _mm256_permute2f128_ps(eight[0], eight[1], 0x21));
    const __m256 cd = _mm256_add_ps(_mm256_blend_ps(eight[2], eight[3], 0xf0), _mm256_permute2f128_ps(eight[2], eight[3], 0x21));
    /* ab holds four lanes each of a and b */
    const __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    const __m256 one = _mm256_add_ps(two, _mm256_permute_ps(two, 0xb1));
    /* lanes 0 and 4: a and b; 2 and 6: c and d */
    const __m256i order = _mm256_setr_epi32(0, 4, 2, 6, 0, 0, 0, 0);
    _mm_storeu_ps(sum, _mm256_castps256_ps128(_mm256_permutevar8x32_ps(one, order)));
}

/* The lesser ones; b where a is NaN. */
static inline lanes lanes_least(lanes a, lanes b) { return (lanes){_mm256_min_ps(a.l, b.l), _mm256_min_ps(a.h, b.h)}; }

/* The least of them, none of which is NaN. */
static inline float lanes_least_of(lanes a)
{
    const __m256 eight = _mm256_min_ps(a.l, a.h);
    const __m128 four = _mm_min_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_min_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_min_ss(two, _mm_movehdup_ps(two)));
}

/* The first n of a, at least 1, and infinity in the others. */
static inline lanes lanes_first(lanes a, size_t n)
{
    const __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)n), at);
    const __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)n - 8), at);
    const __m256 none = _mm256_set1_ps(INFINITY);
    return (lanes){_mm256_blendv_ps(none, a.l, _mm256_castsi256_ps(low)), _mm256_blendv_ps(none, a.h, _mm256_castsi256_ps(high))};
}

/* A bit for each lane that is equal. */
static inline uint32_t lanes_equal(lanes a, lanes b)
{
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.l, b.l, _CMP_EQ_OQ)), high = _mm256_movemask_ps(_mm256_cmp_ps(a.h, b.h, _CMP_EQ_OQ));
    return (uint32_t)(low | high << 8);
}

static inline uint32_t half_improved(__m256 a, __m256 *least)
{
    const __m256 none = _mm256_set1_ps(INFINITY), before = *least;
    const __m256 v = _mm256_blendv_ps(a, none, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i by_1 = _mm256_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6), by_2 = _mm256_setr_epi32(0, 0, 0, 1, 2, 3, 4, 5);
    __m256 m = _mm256_min_ps(v, _mm256_blend_ps(_mm256_permutevar8x32_ps(v, by_1), none, 1));
    m = _mm256_min_ps(m, _mm256_blend_ps(_mm256_permutevar8x32_ps(m, by_2), none, 3));
    m = _mm256_min_ps(m, _mm256_blend_ps(_mm256_permute2f128_ps(m, m, 0x00), none, 15));
    m = _mm256_min_ps(m, before);
    const __m256 earlier = _mm256_blend_ps(_mm256_permutevar8x32_ps(m, by_1), before, 1);
    *least = _mm256_permutevar8x32_ps(m, _mm256_set1_epi32(7));
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(v, earlier, _CMP_LT_OQ));
}

/* A bit for each lane that is less than *least, the same in all lanes, and every lane before it; *least becomes the least of all.
 * NaN is not. */
static inline uint32_t lanes_improved(lanes a, lanes *least)
{
    const uint32_t low = half_improved(a.l, &least->l), high = half_improved(a.h, &least->l);
    least->h = least->l;
    return low | high << 8;
}

#endif

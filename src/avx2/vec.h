/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 256-bit integer vectors for the bodies of minmax.inl.h. Everything is static: a helper shared between objects built with
 * different flags could be called on a CPU that lacks them. */
#ifndef QOBS_AVX2_VEC_H
#define QOBS_AVX2_VEC_H

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file needs -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_BYTES 32
typedef __m256i vec;

/* Loaded once: gcc would otherwise make it a memory operand of every use, and be bound by its loads. */
static inline vec vec_load(const void *p)
{
    vec v = _mm256_loadu_si256((const vec *)p);
    __asm__("" : "+x"(v));
    return v;
}

static inline void vec_store(void *p, vec v)
{
    _mm256_storeu_si256((vec *)p, v);
}

static inline vec vec_not(vec v)
{
    return _mm256_xor_si256(v, _mm256_set1_epi64x(-1));
}

static inline vec vec_xor(vec a, vec b)
{
    return _mm256_xor_si256(a, b);
}

/* There is no 64-bit minimum: a comparison and a choice. */
static inline vec vec_choose(vec no, vec yes, vec mask)
{
    return _mm256_blendv_epi8(no, yes, mask);
}

static inline vec vec_max_s16(vec a, vec b) { return _mm256_max_epi16(a, b); }
static inline vec vec_max_s32(vec a, vec b) { return _mm256_max_epi32(a, b); }
static inline vec vec_max_s64(vec a, vec b) { return vec_choose(b, a, _mm256_cmpgt_epi64(a, b)); }
static inline vec vec_min_s16(vec a, vec b) { return _mm256_min_epi16(a, b); }
static inline vec vec_min_s32(vec a, vec b) { return _mm256_min_epi32(a, b); }
static inline vec vec_min_s64(vec a, vec b) { return vec_choose(a, b, _mm256_cmpgt_epi64(a, b)); }
static inline vec vec_max_u16(vec a, vec b) { return _mm256_max_epu16(a, b); }
static inline vec vec_min_u16(vec a, vec b) { return _mm256_min_epu16(a, b); }

/* As floats. With NaN in the first operand the second is the result. */
static inline vec vec_min_f32(vec a, vec b)
{
    return _mm256_castps_si256(_mm256_min_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
}

static inline vec vec_max_f32(vec a, vec b)
{
    return _mm256_castps_si256(_mm256_max_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
}

static inline vec vec_min_f64(vec a, vec b)
{
    return _mm256_castpd_si256(_mm256_min_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
}

static inline vec vec_max_f64(vec a, vec b)
{
    return _mm256_castpd_si256(_mm256_max_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
}

typedef vec vec_mask; /* all bits of a lane, or none */

static inline vec_mask vec_mask_none(void) { return _mm256_setzero_si256(); }
static inline bool vec_mask_any(vec_mask m) { return !_mm256_testz_si256(m, m); }

static inline vec_mask vec_or_unordered32(vec_mask m, vec a, vec b)
{
    const __m256 unordered = _mm256_cmp_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), _CMP_UNORD_Q);
    return _mm256_or_si256(m, _mm256_castps_si256(unordered));
}

static inline vec_mask vec_or_unordered64(vec_mask m, vec a, vec b)
{
    const __m256d unordered = _mm256_cmp_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b), _CMP_UNORD_Q);
    return _mm256_or_si256(m, _mm256_castpd_si256(unordered));
}

static inline vec vec_splat16(int16_t k) { return _mm256_set1_epi16(k); }
static inline vec vec_splat32(int32_t k) { return _mm256_set1_epi32(k); }
static inline vec vec_splat64(int64_t k) { return _mm256_set1_epi64x(k); }

/* a >= b somewhere: not a < b everywhere */
static inline bool vec_any_ge16(vec a, vec b) { return _mm256_movemask_epi8(_mm256_cmpgt_epi16(b, a)) != -1; }
static inline bool vec_any_ge32(vec a, vec b) { return _mm256_movemask_epi8(_mm256_cmpgt_epi32(b, a)) != -1; }
static inline bool vec_any_ge64(vec a, vec b) { return _mm256_movemask_epi8(_mm256_cmpgt_epi64(b, a)) != -1; }

/* bits <-> key: x ^ (sign >> 1), the sign spread over its lane */
static inline vec vec_key16(vec v)
{
    return vec_xor(v, _mm256_srli_epi16(_mm256_srai_epi16(v, 15), 1));
}

static inline vec vec_key32(vec v)
{
    return vec_xor(v, _mm256_srli_epi32(_mm256_srai_epi32(v, 31), 1));
}

static inline vec vec_key64(vec v)
{
    return vec_xor(v, _mm256_srli_epi64(_mm256_cmpgt_epi64(_mm256_setzero_si256(), v), 1));
}

/* key -1 is -0: make it +0 */
static inline vec vec_no_minus_zero16(vec k)
{
    return _mm256_andnot_si256(_mm256_cmpeq_epi16(k, _mm256_set1_epi16(-1)), k);
}

static inline vec vec_no_minus_zero32(vec k)
{
    return _mm256_andnot_si256(_mm256_cmpeq_epi32(k, _mm256_set1_epi32(-1)), k);
}

static inline vec vec_no_minus_zero64(vec k)
{
    return _mm256_andnot_si256(_mm256_cmpeq_epi64(k, _mm256_set1_epi64x(-1)), k);
}

/* Smallest lane. */
static inline int16_t vec_reduce_min16(vec v)
{
    const __m128i a = _mm_min_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    const __m128i offset = _mm_set1_epi16(INT16_MIN); /* minpos is unsigned */
    return (int16_t)(_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(a, offset))) ^ 0x8000);
}

static inline int32_t vec_reduce_min32(vec v)
{
    const __m128i a = _mm_min_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    const __m128i b = _mm_min_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_min_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}

static inline int64_t vec_reduce_min64(vec v)
{
    const vec a = vec_min_s64(v, _mm256_permute4x64_epi64(v, 0x4e));
    return _mm_cvtsi128_si64(_mm256_castsi256_si128(vec_min_s64(a, _mm256_shuffle_epi32(a, 0x4e))));
}

/* Transposed folds: the smallest lane of each of as many runs as a vector has lanes, in the order of the runs. Every step joins
 * two vectors and halves the lanes a run still has; a run of half or a quarter of a vector enters one or two steps later
 * (level 1 or 2). K(vec_fold4_) joins four vectors, K(vec_fold_rest) the quarter as many that are left.
 * Steps mix shuffles and blends, which run on different ports. */
static inline __attribute__((always_inline)) vec vec_step128(vec a, vec b, vec (*min)(vec, vec))
{
    return min(_mm256_blend_epi32(a, b, 0xf0), _mm256_permute2x128_si256(a, b, 0x21));
}

static inline __attribute__((always_inline)) vec vec_step64(vec a, vec b, vec (*min)(vec, vec))
{
    const __m256d x = _mm256_castsi256_pd(a), y = _mm256_castsi256_pd(b);
    return min(_mm256_blend_epi32(a, b, 0xcc), _mm256_castpd_si256(_mm256_shuffle_pd(x, y, 0x5)));
}

static inline __attribute__((always_inline)) vec vec_step32(vec a, vec b, vec (*min)(vec, vec))
{
    const __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    return min(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)), _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)));
}

static inline __attribute__((always_inline)) vec vec_step16(vec a, vec b)
{
    const vec even = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
    const vec odd = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
    return vec_min_s16(even, odd);
}

/* 16-bit lanes take the 16-bit step before the 32-bit one: then the low halves of both 128-bit lanes hold the first eight runs. */
static inline __attribute__((always_inline)) vec vec_fold4_16(int level, vec a, vec b, vec c, vec d)
{
    if (level == 0)
        return vec_step64(vec_step128(a, b, vec_min_s16), vec_step128(c, d, vec_min_s16), vec_min_s16);
    if (level == 1)
        return vec_step16(vec_step64(a, b, vec_min_s16), vec_step64(c, d, vec_min_s16));
    return vec_step32(vec_step16(a, b), vec_step16(c, d), vec_min_s16);
}

static inline __attribute__((always_inline)) vec vec_fold4_32(int level, vec a, vec b, vec c, vec d)
{
    if (level == 0)
        return vec_step64(vec_step128(a, b, vec_min_s32), vec_step128(c, d, vec_min_s32), vec_min_s32);
    return vec_step32(vec_step64(a, b, vec_min_s32), vec_step64(c, d, vec_min_s32), vec_min_s32);
}

static inline __attribute__((always_inline)) vec vec_fold4_64(int level, vec a, vec b, vec c, vec d)
{
    (void)level; /* half a vector of 64-bit lanes is too short to fold */
    return vec_step64(vec_step128(a, b, vec_min_s64), vec_step128(c, d, vec_min_s64), vec_min_s64);
}

/* After the last step, the 32-bit lanes of 16-bit runs i and i + 4 are 0 2 8 10 | 1 3 9 11, at level 2 0 1 8 9 | 2 3 10 11. */
static inline __attribute__((always_inline)) vec vec_fold_rest16(int level, const vec v[4])
{
    vec r = v[0];
    if (level == 0)
        r = vec_step32(vec_step16(v[0], v[1]), vec_step16(v[2], v[3]), vec_min_s16);
    else if (level == 1)
        r = vec_step32(v[0], v[1], vec_min_s16);
    const __m128i order = level == 2 ? _mm_set_epi8(15, 14, 11, 10, 7, 6, 3, 2, 13, 12, 9, 8, 5, 4, 1, 0)
                                     : _mm_set_epi8(15, 14, 7, 6, 11, 10, 3, 2, 13, 12, 5, 4, 9, 8, 1, 0);
    return _mm256_shuffle_epi8(_mm256_permute4x64_epi64(r, 0xd8), _mm256_broadcastsi128_si256(order));
}

static inline __attribute__((always_inline)) vec vec_fold_rest32(int level, const vec v[2])
{
    const vec r = level == 0 ? vec_step32(v[0], v[1], vec_min_s32) : v[0];
    return _mm256_permutevar8x32_epi32(r, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
}

static inline __attribute__((always_inline)) vec vec_fold_rest64(int level, const vec v[1])
{
    (void)level;
    return _mm256_permute4x64_epi64(v[0], 0xd8);
}

#endif

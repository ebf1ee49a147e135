/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 256-bit integer vectors for templates/minmax.inl.h and templates/absmax.inl.h. Everything is static: the linker
 * could replace a shared helper by one that was built with flags for another CPU. */
#pragma once

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file needs -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_BYTES 32
#define VEC_REGISTERS 16
typedef __m256i vec;

/* Loaded once: gcc would otherwise make it a memory operand of every use, and be bound by its loads. */
static inline vec vec_load(const void *p)
{
    vec v = _mm256_loadu_si256((const vec *)p);
    __asm__("" : "+x"(v));
    return v;
}

/* Ordered load: the compiler keeps the order of such loads. */
static inline vec vec_load_ordered(const void *p)
{
    vec v = _mm256_loadu_si256((const vec *)p);
    __asm__ volatile("" : "+x"(v));
    return v;
}

/* Keeps the vector in a register. */
static inline void vec_in_register(vec *v) { __asm__("" : "+x"(*v)); }

static inline void vec_store(void *p, vec v) { _mm256_storeu_si256((vec *)p, v); }

static inline vec vec_not(vec v) { return _mm256_xor_si256(v, _mm256_set1_epi64x(-1)); }

static inline vec vec_and(vec a, vec b) { return _mm256_and_si256(a, b); }

static inline vec vec_xor(vec a, vec b) { return _mm256_xor_si256(a, b); }

/* There is no 64-bit minimum: a comparison and a choice. */
static inline vec vec_choose(vec no, vec yes, vec mask) { return _mm256_blendv_epi8(no, yes, mask); }

static inline vec vec_max_s16(vec a, vec b) { return _mm256_max_epi16(a, b); }
static inline vec vec_max_s32(vec a, vec b) { return _mm256_max_epi32(a, b); }
static inline vec vec_max_s64(vec a, vec b) { return vec_choose(b, a, _mm256_cmpgt_epi64(a, b)); }
static inline vec vec_min_s16(vec a, vec b) { return _mm256_min_epi16(a, b); }
static inline vec vec_min_s32(vec a, vec b) { return _mm256_min_epi32(a, b); }
static inline vec vec_min_s64(vec a, vec b) { return vec_choose(a, b, _mm256_cmpgt_epi64(a, b)); }
static inline vec vec_max_u16(vec a, vec b) { return _mm256_max_epu16(a, b); }
static inline vec vec_max_u32(vec a, vec b) { return _mm256_max_epu32(a, b); }
static inline vec vec_min_u16(vec a, vec b) { return _mm256_min_epu16(a, b); }
static inline vec vec_min_u32(vec a, vec b) { return _mm256_min_epu32(a, b); }

/* Minimum and maximum as floats. If the first operand is NaN, the result is the second. */
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
static inline vec vec_key16(vec v) { return vec_xor(v, _mm256_srli_epi16(_mm256_srai_epi16(v, 15), 1)); }

static inline vec vec_key32(vec v) { return vec_xor(v, _mm256_srli_epi32(_mm256_srai_epi32(v, 31), 1)); }

static inline vec vec_key64(vec v)
{
    return vec_xor(v, _mm256_srli_epi64(_mm256_cmpgt_epi64(_mm256_setzero_si256(), v), 1));
}

/* 0 where v equals k */
static inline vec vec_clear_equal16(vec v, vec k) { return _mm256_andnot_si256(_mm256_cmpeq_epi16(v, k), v); }
static inline vec vec_clear_equal32(vec v, vec k) { return _mm256_andnot_si256(_mm256_cmpeq_epi32(v, k), v); }
static inline vec vec_clear_equal64(vec v, vec k) { return _mm256_andnot_si256(_mm256_cmpeq_epi64(v, k), v); }

/* key -1 is -0: make it +0 */
static inline vec vec_no_minus_zero16(vec k) { return vec_clear_equal16(k, vec_splat16(-1)); }
static inline vec vec_no_minus_zero32(vec k) { return vec_clear_equal32(k, vec_splat32(-1)); }
static inline vec vec_no_minus_zero64(vec k) { return vec_clear_equal64(k, vec_splat64(-1)); }

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

/* Steps of transposed reductions (templates/transpose_reduce.inl.h). A step takes two vectors and halves the lanes
 * of each run: the result is the lane-wise minimum or maximum of x and y. Steps within 128 bits come first, because
 * shuffles across them are slower and the first steps have most vectors. Shuffles and blends alternate, because they
 * run on different ports. Runs of half a vector (`first` 1) do not need the last step, those of a quarter (2)
 * neither the last nor the first. */
static inline void vec_pair_of128(vec a, vec b, vec *x, vec *y)
{
    *x = _mm256_blend_epi32(a, b, 0xf0);
    *y = _mm256_permute2x128_si256(a, b, 0x21);
}

static inline void vec_pair_of64(vec a, vec b, vec *x, vec *y)
{
    *x = _mm256_blend_epi32(a, b, 0xcc);
    *y = _mm256_castpd_si256(_mm256_shuffle_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b), 0x5));
}

static inline void vec_pair_of32(vec a, vec b, vec *x, vec *y)
{
    const __m256 f = _mm256_castsi256_ps(a), g = _mm256_castsi256_ps(b);
    *x = _mm256_castps_si256(_mm256_shuffle_ps(f, g, 0x88));
    *y = _mm256_castps_si256(_mm256_shuffle_ps(f, g, 0xdd));
}

static inline void vec_pair_of16(vec a, vec b, vec *x, vec *y)
{
    *x = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
    *y = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
}

static inline __attribute__((always_inline)) void vec_pair16(int first, int step, vec a, vec b, vec *x, vec *y)
{
    if (first == 2)
        step++;
    (step == 0 ? vec_pair_of64 : step == 1 ? vec_pair_of32 : step == 2 ? vec_pair_of16 : vec_pair_of128)(a, b, x, y);
}

static inline __attribute__((always_inline)) void vec_pair32(int first, int step, vec a, vec b, vec *x, vec *y)
{
    (void)first;
    (step == 0 ? vec_pair_of64 : step == 1 ? vec_pair_of32 : vec_pair_of128)(a, b, x, y);
}

static inline __attribute__((always_inline)) void vec_pair64(int first, int step, vec a, vec b, vec *x, vec *y)
{
    (void)first;
    (step == 0 ? vec_pair_of64 : vec_pair_of128)(a, b, x, y);
}

/* Brings the result of the last step into the order of the runs. */
static inline vec vec_order16(int first, vec v)
{
    const __m128i even_odd = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    v = _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(even_odd));
    if (first == 0)
        return v;
    v = _mm256_permute4x64_epi64(v, 0xd8);
    const __m128i halves = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    return first == 1 ? _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(halves)) : _mm256_shuffle_epi32(v, 0xd8);
}

static inline vec vec_order32(int first, vec v)
{
    return first == 0 ? v : _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline vec vec_order64(int first, vec v)
{
    (void)first;
    return v;
}

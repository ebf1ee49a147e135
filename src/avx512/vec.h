/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 512-bit integer vectors for templates/minmax.inl.h and templates/absmax.inl.h. Everything is static: the linker
 * could replace a shared helper by one that was built with flags for another CPU. */
#pragma once

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "this file needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_BYTES 64
#define VEC_REGISTERS 32
typedef __m512i vec;

/* Loaded once: gcc would otherwise make it a memory operand of every use, and be bound by its loads. */
static inline vec vec_load(const void *p)
{
    vec v = _mm512_loadu_si512(p);
    __asm__("" : "+v"(v));
    return v;
}

/* Ordered load: the compiler keeps the order of such loads. */
static inline vec vec_load_ordered(const void *p)
{
    vec v = _mm512_loadu_si512(p);
    __asm__ volatile("" : "+v"(v));
    return v;
}

/* Keeps the vector in a register. */
static inline void vec_in_register(vec *v) { __asm__("" : "+v"(*v)); }

static inline void vec_store(void *p, vec v) { _mm512_storeu_si512(p, v); }

static inline vec vec_not(vec v) { return _mm512_ternarylogic_epi64(v, v, v, 0x55); }

static inline vec vec_and(vec a, vec b) { return _mm512_and_si512(a, b); }

static inline vec vec_xor(vec a, vec b) { return _mm512_xor_si512(a, b); }

static inline vec vec_max_s16(vec a, vec b) { return _mm512_max_epi16(a, b); }
static inline vec vec_max_s32(vec a, vec b) { return _mm512_max_epi32(a, b); }
static inline vec vec_max_s64(vec a, vec b) { return _mm512_max_epi64(a, b); }
static inline vec vec_min_s16(vec a, vec b) { return _mm512_min_epi16(a, b); }
static inline vec vec_min_s32(vec a, vec b) { return _mm512_min_epi32(a, b); }
static inline vec vec_min_s64(vec a, vec b) { return _mm512_min_epi64(a, b); }
static inline vec vec_max_u16(vec a, vec b) { return _mm512_max_epu16(a, b); }
static inline vec vec_max_u32(vec a, vec b) { return _mm512_max_epu32(a, b); }
static inline vec vec_max_u64(vec a, vec b) { return _mm512_max_epu64(a, b); }
static inline vec vec_min_u16(vec a, vec b) { return _mm512_min_epu16(a, b); }
static inline vec vec_min_u32(vec a, vec b) { return _mm512_min_epu32(a, b); }
static inline vec vec_min_u64(vec a, vec b) { return _mm512_min_epu64(a, b); }

/* Minimum and maximum as floats. If the first operand is NaN, the result is the second. */
static inline vec vec_min_f32(vec a, vec b)
{
    return _mm512_castps_si512(_mm512_min_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
}

static inline vec vec_max_f32(vec a, vec b)
{
    return _mm512_castps_si512(_mm512_max_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
}

static inline vec vec_min_f64(vec a, vec b)
{
    return _mm512_castpd_si512(_mm512_min_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b)));
}

static inline vec vec_max_f64(vec a, vec b)
{
    return _mm512_castpd_si512(_mm512_max_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b)));
}

typedef __mmask16 vec_mask;

static inline vec_mask vec_mask_none(void) { return 0; }
static inline bool vec_mask_any(vec_mask m) { return m != 0; }

static inline vec_mask vec_or_unordered32(vec_mask m, vec a, vec b)
{
    return (vec_mask)(m | _mm512_cmp_ps_mask(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), _CMP_UNORD_Q));
}

static inline vec_mask vec_or_unordered64(vec_mask m, vec a, vec b)
{
    return (vec_mask)(m | _mm512_cmp_pd_mask(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b), _CMP_UNORD_Q));
}

static inline vec vec_splat16(int16_t k) { return _mm512_set1_epi16(k); }
static inline vec vec_splat32(int32_t k) { return _mm512_set1_epi32(k); }
static inline vec vec_splat64(int64_t k) { return _mm512_set1_epi64(k); }

static inline bool vec_any_ge16(vec a, vec b) { return _mm512_cmpge_epi16_mask(a, b) != 0; }
static inline bool vec_any_ge32(vec a, vec b) { return _mm512_cmpge_epi32_mask(a, b) != 0; }
static inline bool vec_any_ge64(vec a, vec b) { return _mm512_cmpge_epi64_mask(a, b) != 0; }

/* bits <-> key: x ^ (sign & magnitude mask), as one three-way operation */
static inline vec vec_key16(vec v)
{
    return _mm512_ternarylogic_epi64(v, _mm512_srai_epi16(v, 15), _mm512_set1_epi16(INT16_MAX), 0x78);
}

static inline vec vec_key32(vec v)
{
    return _mm512_ternarylogic_epi64(v, _mm512_srai_epi32(v, 31), _mm512_set1_epi32(INT32_MAX), 0x78);
}

static inline vec vec_key64(vec v)
{
    return _mm512_ternarylogic_epi64(v, _mm512_srai_epi64(v, 63), _mm512_set1_epi64(INT64_MAX), 0x78);
}

/* 0 where v equals k */
static inline vec vec_clear_equal16(vec v, vec k) { return _mm512_maskz_mov_epi16(_mm512_cmpneq_epi16_mask(v, k), v); }
static inline vec vec_clear_equal32(vec v, vec k) { return _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(v, k), v); }
static inline vec vec_clear_equal64(vec v, vec k) { return _mm512_maskz_mov_epi64(_mm512_cmpneq_epi64_mask(v, k), v); }

/* key -1 is -0: make it +0 */
static inline vec vec_no_minus_zero16(vec k) { return vec_clear_equal16(k, vec_splat16(-1)); }
static inline vec vec_no_minus_zero32(vec k) { return vec_clear_equal32(k, vec_splat32(-1)); }
static inline vec vec_no_minus_zero64(vec k) { return vec_clear_equal64(k, vec_splat64(-1)); }

/* Smallest lane. */
static inline int16_t vec_reduce_min16(vec v)
{
    const __m256i a = _mm256_min_epi16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    const __m128i b = _mm_min_epi16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i offset = _mm_set1_epi16(INT16_MIN); /* minpos is unsigned */
    return (int16_t)(_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(b, offset))) ^ 0x8000);
}

static inline int32_t vec_reduce_min32(vec v) { return _mm512_reduce_min_epi32(v); }

static inline int64_t vec_reduce_min64(vec v) { return _mm512_reduce_min_epi64(v); }

/* Steps of transposed reductions (templates/transpose_reduce.inl.h). A step takes two vectors and halves the lanes
 * of each run: the result is the lane-wise minimum or maximum of x and y. Steps within 128 bits come first, because
 * shuffles across them are slower and the first steps have most vectors. Shuffles and blends alternate, because they
 * run on different ports. Runs of half or a quarter of a vector (`first` 1 or 2) do not need the last one or two
 * steps. */
static inline void vec_pair_of64(vec a, vec b, vec *x, vec *y)
{
    *x = _mm512_mask_blend_epi64(0xaa, a, b);
    *y = _mm512_castpd_si512(_mm512_shuffle_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b), 0x55));
}

static inline void vec_pair_of32(vec a, vec b, vec *x, vec *y)
{
    const __m512 f = _mm512_castsi512_ps(a), g = _mm512_castsi512_ps(b);
    *x = _mm512_castps_si512(_mm512_shuffle_ps(f, g, 0x88));
    *y = _mm512_castps_si512(_mm512_shuffle_ps(f, g, 0xdd));
}

static inline void vec_pair_of16(vec a, vec b, vec *x, vec *y)
{
    const vec other = _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    *x = _mm512_mask_shuffle_epi8(a, 0xcccccccccccccccc, b, other);
    *y = _mm512_mask_shuffle_epi8(b, 0x3333333333333333, a, other);
}

static inline void vec_pair_of128(vec a, vec b, vec *x, vec *y)
{
    *x = _mm512_mask_blend_epi64(0xcc, a, b);
    *y = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(2, 3, 8, 9, 6, 7, 12, 13), b);
}

static inline void vec_pair_of256(vec a, vec b, vec *x, vec *y)
{
    *x = _mm512_mask_blend_epi64(0xf0, a, b);
    *y = _mm512_shuffle_i64x2(a, b, 0x4e);
}

static inline __attribute__((always_inline)) void vec_pair16(int first, int step, vec a, vec b, vec *x, vec *y)
{
    (void)first;
    (step == 0   ? vec_pair_of64
     : step == 1 ? vec_pair_of32
     : step == 2 ? vec_pair_of16
     : step == 3 ? vec_pair_of128
                 : vec_pair_of256)(a, b, x, y);
}

static inline __attribute__((always_inline)) void vec_pair32(int first, int step, vec a, vec b, vec *x, vec *y)
{
    (void)first;
    (step == 0 ? vec_pair_of64 : step == 1 ? vec_pair_of32 : step == 2 ? vec_pair_of128 : vec_pair_of256)(a, b, x, y);
}

static inline __attribute__((always_inline)) void vec_pair64(int first, int step, vec a, vec b, vec *x, vec *y)
{
    (void)first;
    (step == 0 ? vec_pair_of64 : step == 1 ? vec_pair_of128 : vec_pair_of256)(a, b, x, y);
}

/* Brings the result of the last step into the order of the runs. */
static inline vec vec_order16(int first, vec v)
{
    const vec full = _mm512_set_epi16(31, 29, 27, 25, 30, 28, 26, 24, 23, 21, 19, 17, 22, 20, 18, 16, 15, 13, 11, 9, 14,
                                      12, 10, 8, 7, 5, 3, 1, 6, 4, 2, 0);
    const vec halves = _mm512_set_epi16(31, 15, 29, 13, 27, 11, 25, 9, 30, 14, 28, 12, 26, 10, 24, 8, 23, 7, 21, 5, 19,
                                        3, 17, 1, 22, 6, 20, 4, 18, 2, 16, 0);
    const vec quarters = _mm512_set_epi16(31, 23, 15, 7, 29, 21, 13, 5, 27, 19, 11, 3, 25, 17, 9, 1, 30, 22, 14, 6, 28,
                                          20, 12, 4, 26, 18, 10, 2, 24, 16, 8, 0);
    return _mm512_permutexvar_epi16(first == 0 ? full : first == 1 ? halves : quarters, v);
}

static inline vec vec_order32(int first, vec v)
{
    const vec halves = _mm512_set_epi32(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
    const vec quarters = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    return first == 0 ? v : _mm512_permutexvar_epi32(first == 1 ? halves : quarters, v);
}

static inline vec vec_order64(int first, vec v)
{
    return first == 0 ? v : _mm512_permutexvar_epi64(_mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0), v);
}

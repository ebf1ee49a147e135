/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The vocabulary of vectors, masks, loads and permutations: `vec`, 256 bits of integers for minimum and maximum, and
 * f32x16, 16 floats, for searches, sums and codes. Everything is static: the linker could replace a shared helper by
 * one that was built with flags for another CPU. */
#pragma once

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file needs -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "avx2/tuning.h"
#include "kernels/kernel_search.h"
#include "templates/inline.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

#define VEC_BYTES 32
#define VEC_REGISTERS 16
#define VEC_REGISTER "x"
typedef __m256i vec;
typedef __m256 f32v;

static inline vec vec_max_s16(vec a, vec b) { return _mm256_max_epi16(a, b); }
static inline vec vec_max_s32(vec a, vec b) { return _mm256_max_epi32(a, b); }
static inline vec vec_min_s16(vec a, vec b) { return _mm256_min_epi16(a, b); }
static inline vec vec_min_s32(vec a, vec b) { return _mm256_min_epi32(a, b); }
static inline vec vec_max_u16(vec a, vec b) { return _mm256_max_epu16(a, b); }
static inline vec vec_max_u32(vec a, vec b) { return _mm256_max_epu32(a, b); }
static inline vec vec_min_u16(vec a, vec b) { return _mm256_min_epu16(a, b); }
static inline vec vec_min_u32(vec a, vec b) { return _mm256_min_epu32(a, b); }

/* a >= b somewhere: not a < b everywhere */
static inline bool vec_any_ge16(vec a, vec b) { return _mm256_movemask_epi8(_mm256_cmpgt_epi16(b, a)) != -1; }
static inline bool vec_any_ge32(vec a, vec b) { return _mm256_movemask_epi8(_mm256_cmpgt_epi32(b, a)) != -1; }

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

/* ---- Transposition ----------------------------------------------------------------------------------------------- */

/* 16 rows of 16 elements do not fit the registers, two halves of 8 vectors do. */
#define VEC_PARTS16 2

/* The lower (p = 0) or the upper halves of two vectors. */
static inline vec vec_halves(vec a, vec b, int p)
{
    return p == 0 ? _mm256_permute2x128_si256(a, b, 0x20) : _mm256_permute2x128_si256(a, b, 0x31);
}

static inline __attribute__((always_inline)) vec vec_zip(int bits, bool high, vec a, vec b)
{
    if (bits == 16)
        return high ? _mm256_unpackhi_epi16(a, b) : _mm256_unpacklo_epi16(a, b);
    if (bits == 32)
        return high ? _mm256_unpackhi_epi32(a, b) : _mm256_unpacklo_epi32(a, b);
    return high ? _mm256_unpackhi_epi64(a, b) : _mm256_unpacklo_epi64(a, b);
}

static inline void vec_transpose_lanes16(vec *r) { (void)r; }

/* Two vectors have two rows of lanes, of the columns c and c + n. */
static inline __attribute__((always_inline)) void vec_transpose_lanes32(vec *r)
{
    enum { n = 4 };
    _Pragma("GCC unroll 8") for (int c = 0; c < n; c++)
    {
        const vec a = r[c], b = r[n + c];
        r[c] = _mm256_permute2x128_si256(a, b, 0x20);
        r[n + c] = _mm256_permute2x128_si256(a, b, 0x31);
    }
}

/* ---- Floats ------------------------------------------------------------------------------------------------------ */

DEEP_INLINE f32v f32v_splat(float a) { return _mm256_set1_ps(a); }
DEEP_INLINE f32v f32v_fma(f32v a, f32v b, f32v c) { return _mm256_fmadd_ps(a, b, c); }
DEEP_INLINE f32v f32v_fnma(f32v a, f32v b, f32v c) { return _mm256_fnmadd_ps(a, b, c); }
DEEP_INLINE f32v f32v_max(f32v a, f32v b) { return _mm256_max_ps(a, b); }
DEEP_INLINE f32v f32v_min(f32v a, f32v b) { return _mm256_min_ps(a, b); }
DEEP_INLINE f32v f32v_of_bf16(__m128i words)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}
DEEP_INLINE f32v f32v_load_bf16(const void *p) { return f32v_of_bf16(_mm_loadu_si128(p)); }
DEEP_INLINE f32v f32v_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
DEEP_INLINE f32v f32v_round_f16(f32v a)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#define f32v_pow Sleef_cinz_powf8_u10avx

typedef __m256i f32v_mask;

DEEP_INLINE f32v_mask f32v_signs(f32v a) { return _mm256_castps_si256(a); } /* enough for f32v_choose */
DEEP_INLINE f32v f32v_choose(f32v_mask k, f32v a, f32v b) { return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(k)); }
DEEP_INLINE uint32_t f32v_bits(f32v_mask k) { return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(k)); }
DEEP_INLINE bool f32v_any(f32v_mask k) { return f32v_bits(k) != 0; }

struct f32x16_table {
    __m256 low, high;
};

DEEP_INLINE struct f32x16_table f32x16_table(const float low[8], const float high[8])
{
    return (struct f32x16_table){_mm256_loadu_ps(low), _mm256_loadu_ps(high)};
}

/* A permutation looks at the low three bits of its indices only. */
DEEP_INLINE f32v f32v_look_up(struct f32x16_table t, f32v a)
{
    const __m256i bits = _mm256_castps_si256(a);
    return _mm256_mul_ps(_mm256_permutevar8x32_ps(t.low, _mm256_srli_epi32(bits, 23)),
                         _mm256_permutevar8x32_ps(t.high, _mm256_srli_epi32(bits, 26)));
}

#include "templates/vectors.h"

/* Horizontal sums of four vectors: lanes 8 apart are added first, then lanes 4, 2 and 1 apart. */
DEEP_INLINE void f32x16_sum_4(const f32x16 a[4], float sum[4])
{
    __m256 eight[4];
    for (int i = 0; i < 4; i++)
        eight[i] = a[i].part[0] + a[i].part[1];
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

/* ---- Elements, bits and codes for templates/codes_lanes.inl.h ---------------------------------------------------- */

#define INTEGERS_(a) _mm256_castps_si256(a)
#define FLOATS_(a) _mm256_castsi256_ps(a)

/* The numbers of 16 codes of e2m1, made as BF16: a table has their low bytes, another one their high bytes. */
DEEP_INLINE f32x16 f32x16_load_e2m1(const unsigned char *codes)
{
    const __m128i low = _mm_setr_epi8(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64);
    const __m128i high = _mm_setr_epi8(0, 63, 63, 63, 64, 64, 64, 64, -128, -65, -65, -65, -64, -64, -64, -64);
    const __m128i at = _mm_loadu_si128((const __m128i *)codes);
    const __m128i l = _mm_shuffle_epi8(low, at), h = _mm_shuffle_epi8(high, at);
    return (f32x16){{f32v_of_bf16(_mm_unpacklo_epi8(l, h)), f32v_of_bf16(_mm_unpackhi_epi8(l, h))}};
}

/* The low byte of each lane. Packing saturates, so the other bytes are cleared first. */
DEEP_INLINE void f32x16_store_bytes(unsigned char *to, f32x16 a)
{
    const __m256i byte = _mm256_set1_epi32(255);
    const __m256i words = _mm256_packus_epi32(_mm256_and_si256(INTEGERS_(a.part[0]), byte),
                                              _mm256_and_si256(INTEGERS_(a.part[1]), byte)); /* 0-3 8-11 | 4-7 12-15 */
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)to, _mm_shuffle_epi32(bytes, 0xd8));
}

/* Stores of nearest integers; least: the smallest one so far, as words. */
#define CODE_NEAREST
struct nearest_limits {
    __m256i min, max, least;
};

DEEP_INLINE struct nearest_limits nearest_limits_of(int min, int max)
{
    return (struct nearest_limits){_mm256_set1_epi8((char)min), _mm256_set1_epi8((char)max), _mm256_setzero_si256()};
}

/* NaN, and numbers from 2^31 on, become the smallest integer. */
DEEP_INLINE bool nearest_too_large(const struct nearest_limits *limits)
{
    return _mm256_movemask_epi8(_mm256_cmpeq_epi16(limits->least, _mm256_set1_epi16(INT16_MIN))) != 0;
}

/* The integers nearest to 64 floats as bytes; a[0]: elements 0, 2, 4, ..., a[1]: 1, 3, 5, ..., a[2] and a[3]: the same
 * of elements from 32 on. Bytes are limited to int8, and to the limits unless they are NULL. */
DEEP_INLINE void half_nearest_store(unsigned char *to, const f32x16 a[2], struct nearest_limits *limits)
{
    const __m256i alternate =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
    const __m256i low = _mm256_packs_epi32(_mm256_cvtps_epi32(a[0].part[0]), _mm256_cvtps_epi32(a[1].part[0]));
    const __m256i high = _mm256_packs_epi32(_mm256_cvtps_epi32(a[0].part[1]), _mm256_cvtps_epi32(a[1].part[1]));
    __m256i bytes = _mm256_packs_epi16(low, high);
    if (limits) {
        limits->least = _mm256_min_epi16(limits->least, _mm256_min_epi16(low, high));
        bytes = _mm256_min_epi8(_mm256_max_epi8(bytes, limits->min), limits->max);
    }
    _mm256_storeu_si256((__m256i *)to, _mm256_permute4x64_epi64(_mm256_shuffle_epi8(bytes, alternate), 0xd8));
}
DEEP_INLINE void nearest_store(unsigned char *to, const f32x16 a[4], struct nearest_limits *limits)
{
    half_nearest_store(to, a, limits);
    half_nearest_store(to + 32, a + 2, limits);
}

/* ---- Words ------------------------------------------------------------------------------------------------------ */

#define CODE_THRESHOLDS
#define BF16_CODE_PATHS(PATH)                                                                                          \
    PATH(thresholds, 1 << QOBS_CODE_E2M1, ZERO_POINT)                                                                  \
    PATH(nearest, 1 << QOBS_CODE_INTEGER, WITH_SUM | IN_FLOAT)

DEEP_INLINE i16x16 i16x16_min(i16x16 a, i16x16 b) { return (i16x16)_mm256_min_epi16((__m256i)a, (__m256i)b); }

/* a - b, or 0 if that is below 0; neither is below 0. */
DEEP_INLINE i16x16 i16x16_excess(i16x16 a, i16x16 b) { return (i16x16)_mm256_subs_epu16((__m256i)a, (__m256i)b); }

#undef INTEGERS_
#undef FLOATS_

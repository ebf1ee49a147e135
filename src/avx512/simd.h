/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The vocabulary of vectors, masks, loads and permutations: `vec`, 512 bits of integers for minimum and maximum, and
 * f32x16, 16 floats, for searches, sums and codes. Everything is static: the linker could replace a shared helper by
 * one that was built with flags for another CPU. */
#pragma once

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "this file needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "avx512/tuning.h"
#include "kernels/kernel_search.h"
#include "templates/inline.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

#define VEC_BYTES 64
#define VEC_REGISTERS 32
#define VEC_REGISTER "v"
typedef __m512i vec;
typedef __m512 f32v;

static inline vec vec_max_s16(vec a, vec b) { return _mm512_max_epi16(a, b); }
static inline vec vec_max_s32(vec a, vec b) { return _mm512_max_epi32(a, b); }
static inline vec vec_min_s16(vec a, vec b) { return _mm512_min_epi16(a, b); }
static inline vec vec_min_s32(vec a, vec b) { return _mm512_min_epi32(a, b); }
static inline vec vec_max_u16(vec a, vec b) { return _mm512_max_epu16(a, b); }
static inline vec vec_max_u32(vec a, vec b) { return _mm512_max_epu32(a, b); }
static inline vec vec_min_u16(vec a, vec b) { return _mm512_min_epu16(a, b); }
static inline vec vec_min_u32(vec a, vec b) { return _mm512_min_epu32(a, b); }

static inline bool vec_any_ge16(vec a, vec b) { return _mm512_cmpge_epi16_mask(a, b) != 0; }
static inline bool vec_any_ge32(vec a, vec b) { return _mm512_cmpge_epi32_mask(a, b) != 0; }

/* bits <-> key: x ^ (sign & magnitude mask), as one three-way operation */
static inline vec vec_key16(vec v)
{
    return _mm512_ternarylogic_epi64(v, _mm512_srai_epi16(v, 15), _mm512_set1_epi16(INT16_MAX), 0x78);
}
static inline vec vec_key32(vec v)
{
    return _mm512_ternarylogic_epi64(v, _mm512_srai_epi32(v, 31), _mm512_set1_epi32(INT32_MAX), 0x78);
}

/* Smallest lane. */
static inline int16_t vec_reduce_min16(vec v)
{
    const __m256i a = _mm256_min_epi16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    const __m128i b = _mm_min_epi16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i offset = _mm_set1_epi16(INT16_MIN); /* minpos is unsigned */
    return (int16_t)(_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(b, offset))) ^ 0x8000);
}

static inline int32_t vec_reduce_min32(vec v) { return _mm512_reduce_min_epi32(v); }

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

/* ---- Transposition ----------------------------------------------------------------------------------------------- */

/* 32 rows of 32 elements do not fit the registers, two halves of 16 vectors do. */
#define VEC_PARTS16 2

/* The lower (p = 0) or the upper halves of two vectors. */
static inline vec vec_halves(vec a, vec b, int p)
{
    return p == 0 ? _mm512_inserti64x4(a, _mm512_castsi512_si256(b), 1) : _mm512_shuffle_i64x2(a, b, 0xee);
}

static inline __attribute__((always_inline)) vec vec_zip(int bits, bool high, vec a, vec b)
{
    if (bits == 16)
        return high ? _mm512_unpackhi_epi16(a, b) : _mm512_unpacklo_epi16(a, b);
    if (bits == 32)
        return high ? _mm512_unpackhi_epi32(a, b) : _mm512_unpacklo_epi32(a, b);
    return high ? _mm512_unpackhi_epi64(a, b) : _mm512_unpacklo_epi64(a, b);
}

/* Four vectors have four rows of lanes, of the columns c, c + n, c + 2n and c + 3n. */
static inline __attribute__((always_inline)) void vec_transpose_lanes32(vec *r)
{
    enum { n = 4 };
    _Pragma("GCC unroll 16") for (int c = 0; c < n; c++)
    {
        const vec a = _mm512_shuffle_i64x2(r[c], r[n + c], 0x88),
                  b = _mm512_shuffle_i64x2(r[2 * n + c], r[3 * n + c], 0x88);
        const vec d = _mm512_shuffle_i64x2(r[c], r[n + c], 0xdd),
                  e = _mm512_shuffle_i64x2(r[2 * n + c], r[3 * n + c], 0xdd);
        r[c] = _mm512_shuffle_i64x2(a, b, 0x88);
        r[n + c] = _mm512_shuffle_i64x2(d, e, 0x88);
        r[2 * n + c] = _mm512_shuffle_i64x2(a, b, 0xdd);
        r[3 * n + c] = _mm512_shuffle_i64x2(d, e, 0xdd);
    }
}

static inline __attribute__((always_inline)) void vec_transpose_lanes16(vec *r)
{
    const vec first = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0), second = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    _Pragma("GCC unroll 16") for (int c = 0; c < 8; c++)
    {
        const vec a = r[c], b = r[8 + c];
        r[c] = _mm512_permutex2var_epi64(a, first, b);
        r[8 + c] = _mm512_permutex2var_epi64(a, second, b);
    }
}

/* ---- Floats ------------------------------------------------------------------------------------------------------ */

DEEP_INLINE f32v f32v_splat(float a) { return _mm512_set1_ps(a); }
DEEP_INLINE f32v f32v_fma(f32v a, f32v b, f32v c) { return _mm512_fmadd_ps(a, b, c); }
DEEP_INLINE f32v f32v_fnma(f32v a, f32v b, f32v c) { return _mm512_fnmadd_ps(a, b, c); }
DEEP_INLINE f32v f32v_max(f32v a, f32v b) { return _mm512_max_ps(a, b); }
DEEP_INLINE f32v f32v_min(f32v a, f32v b) { return _mm512_min_ps(a, b); }
DEEP_INLINE f32v f32v_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
DEEP_INLINE f32v f32v_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
DEEP_INLINE f32v f32v_round_f16(f32v a)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#define f32v_pow Sleef_cinz_powf16_u10avx512fnofma

#define F32V_MASK_IS_REGISTER
typedef __mmask16 f32v_mask;

DEEP_INLINE f32v_mask f32v_less(f32v a, f32v b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
DEEP_INLINE f32v_mask f32v_at_most(f32v a, f32v b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
DEEP_INLINE f32v_mask f32v_equal(f32v a, f32v b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
DEEP_INLINE f32v_mask f32v_unequal(f32v a, f32v b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
DEEP_INLINE f32v f32v_if(f32v_mask k, f32v a) { return _mm512_maskz_mov_ps(k, a); }
DEEP_INLINE f32v_mask f32v_signs(f32v a) { return _mm512_movepi32_mask(_mm512_castps_si512(a)); }
DEEP_INLINE f32v f32v_choose(f32v_mask k, f32v a, f32v b) { return _mm512_mask_blend_ps(k, b, a); }
DEEP_INLINE bool f32v_any(f32v_mask k) { return k != 0; }

/* gcc 12 stores the 16 bits of a mask for which it has no register and reads 32 bits there, if the sanitizers take the
 * registers; the general register ends that. */
DEEP_INLINE uint32_t f32v_bits(f32v_mask k)
{
#ifdef SANITIZED
    __asm__("" : "+r"(k));
#endif
    return k;
}

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

/* A permutation looks at the low five bits of its indices only; the sixth is 0 where the result is. */
DEEP_INLINE f32v f32v_look_up(struct f32x16_table t, f32v a)
{
    const __m512i bits = _mm512_castps_si512(a);
    const __mmask16 there = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(32 << 23));
    return _mm512_maskz_permutex2var_ps(there, t.low, _mm512_srli_epi32(bits, 23), t.high);
}

#include "templates/vectors.h"

DEEP_INLINE f32v_mask u32v_unequal(u32v a, u32v b) { return _mm512_cmpneq_epi32_mask((__m512i)a, (__m512i)b); }

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

/* ---- Elements, bits and codes for templates/codes_lanes.inl.h ---------------------------------------------------- */

/* Entries of a table for the low 4 bits of 16 codes; the numbers of 16 codes of e2m1. */
DEEP_INLINE f32x16 code_permute(f32x16 table, const unsigned char *codes)
{
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)codes)), table);
}
DEEP_INLINE f32x16 f32x16_load_e2m1(const unsigned char *codes)
{
    return code_permute((f32x16){0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6}, codes);
}

/* The low byte of each lane. */
DEEP_INLINE void f32x16_store_bytes(unsigned char *to, f32x16 a)
{
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(_mm512_castps_si512(a)));
}

/* Stores of nearest integers; least: the smallest one so far, as words. */
#define CODE_NEAREST
struct nearest_limits {
    __m512i min, max, least;
};

DEEP_INLINE struct nearest_limits nearest_limits_of(int min, int max)
{
    return (struct nearest_limits){_mm512_set1_epi8((char)min), _mm512_set1_epi8((char)max), _mm512_set1_epi8(0)};
}

/* NaN, and numbers from 2^31 on, become the smallest integer. */
DEEP_INLINE bool nearest_too_large(const struct nearest_limits *limits)
{
    return _mm512_cmpeq_epi16_mask(limits->least, _mm512_set1_epi16(INT16_MIN)) != 0;
}

/* The integers nearest to 64 floats as bytes; a[0]: elements 0, 2, 4, ..., a[1]: 1, 3, 5, ..., a[2] and a[3]: the same
 * of elements from 32 on. Bytes are limited to int8, and to the limits unless they are NULL. */
DEEP_INLINE void nearest_store(unsigned char *to, const f32x16 a[4], struct nearest_limits *limits)
{
    const i64x8 order = {0, 2, 4, 6, 1, 3, 5, 7};
    const __m512i alternate =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
    const __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(a[0]), _mm512_cvtps_epi32(a[1]));
    const __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(a[2]), _mm512_cvtps_epi32(a[3]));
    __m512i bytes = _mm512_packs_epi16(low, high);
    if (limits) {
        limits->least = _mm512_min_epi16(limits->least, _mm512_min_epi16(low, high));
        bytes = _mm512_min_epi8(_mm512_max_epi8(bytes, limits->min), limits->max);
    }
    _mm512_storeu_si512(to, _mm512_permutexvar_epi64((__m512i)order, _mm512_shuffle_epi8(bytes, alternate)));
}

/* ---- Words ------------------------------------------------------------------------------------------------------ */

#define CODE_THRESHOLDS
#define BF16_CODE_PATHS(PATH)                                                                                          \
    PATH(thresholds, 1 << QOBS_CODE_E2M1, ZERO_POINT)                                                                  \
    PATH(tables, 1 << QOBS_CODE_INTEGER | 1 << QOBS_CODE_E4M3, ZERO_POINT | IN_FLOAT)                                  \
    PATH(nearest, 1 << QOBS_CODE_INTEGER, WITH_SUM | IN_FLOAT)

DEEP_INLINE i16x16 i16x16_min(i16x16 a, i16x16 b) { return (i16x16)_mm256_min_epi16((__m256i)a, (__m256i)b); }

/* a - b, or 0 if that is below 0; neither is below 0. */
DEEP_INLINE i16x16 i16x16_excess(i16x16 a, i16x16 b) { return (i16x16)_mm256_subs_epu16((__m256i)a, (__m256i)b); }

/* 32 words, or two runs of 16. i16x32_pick permutes lanes of 32 bits, because words take Intel's processors longer. */
#define I16X32
typedef __mmask32 i16x32_mask;

DEEP_INLINE i16x32 i16x32_splat(int16_t a) { return (i16x32)_mm512_set1_epi16(a); }

/* A constant of a loop, in a register. */
DEEP_INLINE i16x32 i16x32_constant(int16_t a)
{
    __m512i v = _mm512_set1_epi16(a);
    __asm__("" : "+v"(v));
    return (i16x32)v;
}

DEEP_INLINE i16x32 i16x32_min(i16x32 a, i16x32 b) { return (i16x32)_mm512_min_epi16((__m512i)a, (__m512i)b); }
DEEP_INLINE i16x32 i16x32_excess(i16x32 a, i16x32 b) { return (i16x32)_mm512_subs_epu16((__m512i)a, (__m512i)b); }
DEEP_INLINE bool i16x32_all_zero(i16x32 a) { return _mm512_test_epi32_mask((__m512i)a, (__m512i)a) == 0; }

/* Zeros come in from above. */
DEEP_INLINE i16x32 i16x32_shift_right(i16x32 a, int bits) { return (i16x32)((u16x32)a >> bits); }

/* a > b, without signs. */
DEEP_INLINE i16x32_mask i16x32_above(i16x32 a, i16x32 b) { return _mm512_cmplt_epu16_mask((__m512i)b, (__m512i)a); }

/* a, or b in lanes that are not in the mask. a, or 0. a + b, or a. */
DEEP_INLINE i16x32 i16x32_choose(i16x32_mask k, i16x32 a, i16x32 b)
{
    return (i16x32)_mm512_mask_mov_epi16((__m512i)b, k, (__m512i)a);
}
DEEP_INLINE i16x32 i16x32_if(i16x32_mask k, i16x32 a) { return (i16x32)_mm512_maskz_mov_epi16(k, (__m512i)a); }
DEEP_INLINE i16x32 i16x32_add_if(i16x32_mask k, i16x32 a, i16x32 b)
{
    return (i16x32)_mm512_mask_add_epi16((__m512i)a, k, (__m512i)a, (__m512i)b);
}

/* Lanes of 32 bits: `low` in the first half, `high` in the second. Lane `at` of 16 lanes of 32 bits, for each. */
DEEP_INLINE i16x32 i16x32_halves(int low, int high)
{
    return (i16x32)(i32x16){low, low, low, low, low, low, low, low, high, high, high, high, high, high, high, high};
}
DEEP_INLINE i16x32 i16x32_pick(i16x32 from, i16x32 at)
{
    return (i16x32)_mm512_permutexvar_epi32((__m512i)at, (__m512i)from);
}

/* 32 elements at any address. Lane `at` % 32 of a table. */
DEEP_INLINE i16x32 i16x32_load(const void *p) { return (i16x32)_mm512_loadu_si512(p); }
DEEP_INLINE i16x32 i16x32_permute(i16x32 table, i16x32 at)
{
    return (i16x32)_mm512_permutexvar_epi16((__m512i)at, (__m512i)table);
}

/* Lanes below 0. a - b in lanes of the mask, `other` in the others. */
DEEP_INLINE i16x32_mask i16x32_negative(i16x32 a) { return _mm512_movepi16_mask((__m512i)a); }
DEEP_INLINE i16x32 i16x32_sub_if(i16x32_mask k, i16x32 other, i16x32 a, i16x32 b)
{
    return (i16x32)_mm512_mask_sub_epi16((__m512i)other, k, (__m512i)a, (__m512i)b);
}

/* Stores bytes that a pack of two vectors left in the order of its 128-bit lanes. */
DEEP_INLINE void i16x32_store_packed(unsigned char *to, __m512i bytes)
{
    const i64x8 order = {0, 2, 4, 6, 1, 3, 5, 7};
    _mm512_storeu_si512(to, _mm512_permutexvar_epi64((__m512i)order, bytes));
}

/* The lanes of a, then those of b, as signed bytes. */
DEEP_INLINE void i16x32_store_signed(unsigned char *to, i16x32 a, i16x32 b)
{
    i16x32_store_packed(to, _mm512_packs_epi16((__m512i)a, (__m512i)b));
}

/* The lanes of a, then those of b, as bytes; lanes are 0 to 255. */
DEEP_INLINE void i16x32_store_bytes(unsigned char *to, i16x32 a, i16x32 b)
{
    i16x32_store_packed(to, _mm512_packus_epi16((__m512i)a, (__m512i)b));
}

/* The same for 7 bits; the highest bit of a byte is the sign of the lane of sign_a or sign_b. */
DEEP_INLINE void i16x32_store_with_signs(unsigned char *to, i16x32 a, i16x32 b, i16x32 sign_a, i16x32 sign_b)
{
    const __m512i bytes = _mm512_packus_epi16((__m512i)a, (__m512i)b);
    const __m512i signs = _mm512_packs_epi16((__m512i)sign_a, (__m512i)sign_b); /* saturation preserves the sign */
    const __m512i sign_bit = _mm512_set1_epi8((char)0x80);
    i16x32_store_packed(to, _mm512_ternarylogic_epi32(sign_bit, signs, bytes, 0xca));
}

/* Bits 4 to 7 of the lanes of four vectors; two make a byte, the first one its low half. Lanes above 255 count as 255.
 */
DEEP_INLINE __m512i i16x32_high_halves(i16x32 a, i16x32 b)
{
    const __m512i bytes = _mm512_packus_epi16((__m512i)a, (__m512i)b);
    const __m512i low = _mm512_srli_epi16(bytes, 4), high = _mm512_srli_epi16(bytes, 8);
    return _mm512_ternarylogic_epi32(_mm512_set1_epi16(15), low, high, 0xca);
}
DEEP_INLINE void i16x32_store_high_halves(unsigned char *to, const i16x32 a[4])
{
    const i32x16 order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const __m512i bytes = _mm512_packus_epi16(i16x32_high_halves(a[0], a[1]), i16x32_high_halves(a[2], a[3]));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32((__m512i)order, bytes));
}

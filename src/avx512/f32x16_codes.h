/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Operations on 16 floats that templates/codes_lanes.inl.h needs beyond f32x16.h: elements, bits and codes. Everything
 * is static, as in vec.h. */
#pragma once

#include "avx512/f32x16.h"

/* A constant of a loop, in a register: gcc would make it again for each vector. */
DEEP_INLINE f32x16 f32x16_constant(float a)
{
    f32x16 v = _mm512_set1_ps(a);
    __asm__("" : "+v"(v));
    return v;
}

/* Elements at any address, as floats. */
DEEP_INLINE f32x16 f32x16_load_f32(const void *p) { return _mm512_loadu_ps(p); }
DEEP_INLINE f32x16 f32x16_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
DEEP_INLINE f32x16 f32x16_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }

/* Entries of a table for the low 4 bits of 16 codes; the numbers of 16 codes of e2m1. */
DEEP_INLINE f32x16 code_permute(f32x16 table, const unsigned char *codes)
{
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)codes)), table);
}
DEEP_INLINE f32x16 f32x16_load_e2m1(const unsigned char *codes)
{
    return code_permute((f32x16){0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6}, codes);
}

/* a, or the limit if a is below or above it. NaN stays. */
DEEP_INLINE f32x16 f32x16_raise(f32x16 a, f32x16 limit) { return _mm512_max_ps(limit, a); }
DEEP_INLINE f32x16 f32x16_lower(f32x16 a, f32x16 limit) { return _mm512_min_ps(limit, a); }

/* Rounds to the dtype. A NaN must be quiet and its low 16 bits 0. */
DEEP_INLINE f32x16 f32x16_round_bf16(f32x16 a)
{
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i up = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_add_epi32(up, even), _mm512_set1_epi32(-0x10000)));
}
DEEP_INLINE f32x16 f32x16_round_f16(f32x16 a)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

DEEP_INLINE f32x16 f32x16_and(f32x16 a, f32x16 b) { return _mm512_and_ps(a, b); }
DEEP_INLINE f32x16 f32x16_or(f32x16 a, f32x16 b) { return _mm512_or_ps(a, b); }

/* Sums and shifts of bits as integers. */
DEEP_INLINE f32x16 f32x16_add_bits(f32x16 a, f32x16 b)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}
DEEP_INLINE f32x16 f32x16_sub_bits(f32x16 a, f32x16 b)
{
    return _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}
DEEP_INLINE f32x16 f32x16_shift_right_20(f32x16 a)
{
    return _mm512_castsi512_ps(_mm512_srli_epi32(_mm512_castps_si512(a), 20));
}
DEEP_INLINE f32x16 f32x16_shift_right_22(f32x16 a)
{
    return _mm512_castsi512_ps(_mm512_srli_epi32(_mm512_castps_si512(a), 22));
}
DEEP_INLINE f32x16 f32x16_shift_right_24(f32x16 a)
{
    return _mm512_castsi512_ps(_mm512_srli_epi32(_mm512_castps_si512(a), 24));
}

/* a in lanes in which v is a number, `other` in those in which it is NaN. */
DEEP_INLINE f32x16 f32x16_if_number(f32x16 v, f32x16 a, f32x16 other)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), other, a);
}

/* The bits of b in lanes in which v is below 0, none in the others. */
DEEP_INLINE f32x16 f32x16_if_negative(f32x16 v, f32x16 b)
{
    const __m512 zero = _mm512_set1_ps(0);
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, zero, _CMP_LT_OQ), zero, b);
}

/* The low byte of each lane. */
DEEP_INLINE void f32x16_store_bytes(unsigned char *to, f32x16 a)
{
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(_mm512_castps_si512(a)));
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

#define CODE_THRESHOLDS
typedef int16_t i16x16 __attribute__((vector_size(32)));

DEEP_INLINE i16x16 i16x16_min(i16x16 a, i16x16 b) { return (i16x16)_mm256_min_epi16((__m256i)a, (__m256i)b); }

/* a - b, or 0 if that is below 0; neither is below 0. */
DEEP_INLINE i16x16 i16x16_excess(i16x16 a, i16x16 b) { return (i16x16)_mm256_subs_epu16((__m256i)a, (__m256i)b); }

/* 32 words. */
typedef int16_t i16x32 __attribute__((vector_size(64)));
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
/* Zeros come in from above. */
DEEP_INLINE i16x32 i16x32_shift_right(i16x32 a, int bits)
{
    typedef uint16_t u16x32 __attribute__((vector_size(64)));
    return (i16x32)((u16x32)a >> bits);
}

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
    typedef int64_t i64x8 __attribute__((vector_size(64)));
    const i64x8 order = {0, 2, 4, 6, 1, 3, 5, 7};
    _mm512_storeu_si512(to, _mm512_permutexvar_epi64((__m512i)order, bytes));
}

/* The lanes of a, then those of b, as signed bytes. */
DEEP_INLINE void i16x32_store_signed(unsigned char *to, i16x32 a, i16x32 b)
{
    i16x32_store_packed(to, _mm512_packs_epi16((__m512i)a, (__m512i)b));
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
    typedef int32_t i32x16 __attribute__((vector_size(64)));
    const i32x16 order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const __m512i bytes = _mm512_packus_epi16(i16x32_high_halves(a[0], a[1]), i16x32_high_halves(a[2], a[3]));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32((__m512i)order, bytes));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Operations on 16 floats that templates/codes_lanes.inl.h needs beyond f32x16.h: elements, bits and codes. Everything
 * is static, as in vec.h. */
#pragma once

#include "avx2/f32x16.h"

#define INTEGERS_(a) _mm256_castps_si256(a)
#define FLOATS_(a) _mm256_castsi256_ps(a)

/* A constant of a loop. */
DEEP_INLINE f32x16 f32x16_constant(float a) { return f32x16_splat(a); }

/* Elements at any address, as floats. */
DEEP_INLINE f32x16 f32x16_load_f32(const void *p)
{
    return (f32x16){_mm256_loadu_ps(p), _mm256_loadu_ps((const float *)p + 8)};
}
DEEP_INLINE __m256 half_of_bf16(__m128i words) { return FLOATS_(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16)); }
DEEP_INLINE __m256 half_load_bf16(const uint16_t *p) { return half_of_bf16(_mm_loadu_si128((const __m128i *)p)); }
DEEP_INLINE f32x16 f32x16_load_bf16(const void *p)
{
    return (f32x16){half_load_bf16(p), half_load_bf16((const uint16_t *)p + 8)};
}
DEEP_INLINE f32x16 f32x16_load_f16(const void *p)
{
    const __m128i *halves = p;
    return (f32x16){_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}

/* The numbers of 16 codes of e2m1, made as BF16: a table has their low bytes, another one their high bytes. */
DEEP_INLINE f32x16 f32x16_load_e2m1(const unsigned char *codes)
{
    const __m128i low = _mm_setr_epi8(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64);
    const __m128i high = _mm_setr_epi8(0, 63, 63, 63, 64, 64, 64, 64, -128, -65, -65, -65, -64, -64, -64, -64);
    const __m128i at = _mm_loadu_si128((const __m128i *)codes);
    const __m128i l = _mm_shuffle_epi8(low, at), h = _mm_shuffle_epi8(high, at);
    return (f32x16){half_of_bf16(_mm_unpacklo_epi8(l, h)), half_of_bf16(_mm_unpackhi_epi8(l, h))};
}

/* a, or the limit if a is below or above it. NaN stays. */
DEEP_INLINE f32x16 f32x16_raise(f32x16 a, f32x16 limit)
{
    return (f32x16){_mm256_max_ps(limit.l, a.l), _mm256_max_ps(limit.h, a.h)};
}
DEEP_INLINE f32x16 f32x16_lower(f32x16 a, f32x16 limit)
{
    return (f32x16){_mm256_min_ps(limit.l, a.l), _mm256_min_ps(limit.h, a.h)};
}

/* Rounds to the dtype. A NaN must be quiet and its low 16 bits 0. */
DEEP_INLINE __m256 half_round_bf16(__m256 a)
{
    const __m256i bits = INTEGERS_(a), up = _mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff));
    const __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return FLOATS_(_mm256_and_si256(_mm256_add_epi32(up, even), _mm256_set1_epi32(-0x10000)));
}
DEEP_INLINE f32x16 f32x16_round_bf16(f32x16 a) { return (f32x16){half_round_bf16(a.l), half_round_bf16(a.h)}; }
DEEP_INLINE __m256 half_round_f16(__m256 a)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
DEEP_INLINE f32x16 f32x16_round_f16(f32x16 a) { return (f32x16){half_round_f16(a.l), half_round_f16(a.h)}; }

DEEP_INLINE f32x16 f32x16_and(f32x16 a, f32x16 b) { return (f32x16){_mm256_and_ps(a.l, b.l), _mm256_and_ps(a.h, b.h)}; }
DEEP_INLINE f32x16 f32x16_or(f32x16 a, f32x16 b) { return (f32x16){_mm256_or_ps(a.l, b.l), _mm256_or_ps(a.h, b.h)}; }

/* Sums and shifts of bits as integers. */
DEEP_INLINE f32x16 f32x16_add_bits(f32x16 a, f32x16 b)
{
    return (f32x16){FLOATS_(_mm256_add_epi32(INTEGERS_(a.l), INTEGERS_(b.l))),
                    FLOATS_(_mm256_add_epi32(INTEGERS_(a.h), INTEGERS_(b.h)))};
}
DEEP_INLINE f32x16 f32x16_sub_bits(f32x16 a, f32x16 b)
{
    return (f32x16){FLOATS_(_mm256_sub_epi32(INTEGERS_(a.l), INTEGERS_(b.l))),
                    FLOATS_(_mm256_sub_epi32(INTEGERS_(a.h), INTEGERS_(b.h)))};
}
DEEP_INLINE f32x16 f32x16_shift_right_20(f32x16 a)
{
    return (f32x16){FLOATS_(_mm256_srli_epi32(INTEGERS_(a.l), 20)), FLOATS_(_mm256_srli_epi32(INTEGERS_(a.h), 20))};
}
DEEP_INLINE f32x16 f32x16_shift_right_22(f32x16 a)
{
    return (f32x16){FLOATS_(_mm256_srli_epi32(INTEGERS_(a.l), 22)), FLOATS_(_mm256_srli_epi32(INTEGERS_(a.h), 22))};
}
DEEP_INLINE f32x16 f32x16_shift_right_24(f32x16 a)
{
    return (f32x16){FLOATS_(_mm256_srli_epi32(INTEGERS_(a.l), 24)), FLOATS_(_mm256_srli_epi32(INTEGERS_(a.h), 24))};
}

/* a in lanes in which v is a number, `other` in those in which it is NaN. */
DEEP_INLINE f32x16 f32x16_if_number(f32x16 v, f32x16 a, f32x16 other)
{
    return (f32x16){_mm256_blendv_ps(a.l, other.l, _mm256_cmp_ps(v.l, v.l, _CMP_UNORD_Q)),
                    _mm256_blendv_ps(a.h, other.h, _mm256_cmp_ps(v.h, v.h, _CMP_UNORD_Q))};
}

/* The bits of b in lanes in which v is below 0, none in the others. */
DEEP_INLINE f32x16 f32x16_if_negative(f32x16 v, f32x16 b)
{
    const __m256 zero = _mm256_setzero_ps();
    return (f32x16){_mm256_and_ps(_mm256_cmp_ps(v.l, zero, _CMP_LT_OQ), b.l),
                    _mm256_and_ps(_mm256_cmp_ps(v.h, zero, _CMP_LT_OQ), b.h)};
}

/* The low byte of each lane. Packing saturates, so the other bytes are cleared first. */
DEEP_INLINE void f32x16_store_bytes(unsigned char *to, f32x16 a)
{
    const __m256i byte = _mm256_set1_epi32(255);
    const __m256i words = _mm256_packus_epi32(_mm256_and_si256(INTEGERS_(a.l), byte),
                                              _mm256_and_si256(INTEGERS_(a.h), byte)); /* 0-3 8-11 | 4-7 12-15 */
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)to, _mm_shuffle_epi32(bytes, 0xd8));
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

#define CODE_THRESHOLDS
typedef int16_t i16x16 __attribute__((vector_size(32)));

DEEP_INLINE i16x16 i16x16_min(i16x16 a, i16x16 b) { return (i16x16)_mm256_min_epi16((__m256i)a, (__m256i)b); }

/* a - b, or 0 if that is below 0; neither is below 0. */
DEEP_INLINE i16x16 i16x16_excess(i16x16 a, i16x16 b) { return (i16x16)_mm256_subs_epu16((__m256i)a, (__m256i)b); }

#undef INTEGERS_
#undef FLOATS_

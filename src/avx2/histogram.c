/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 histogram; contract and limits in templates/histogram.inl.h. */
#include "avx2/simd.h"
#include "kernels/kernel_histogram.h"
#include "kernels/left_pack.h"

static inline f32v_mask f32v_differ(f32v a, f32v b) { return (f32v_mask)_mm256_cmp_ps(a, b, _CMP_NEQ_OQ); }
static inline s32v f32v_truncate(f32v v) { return (s32v)_mm256_cvttps_epi32(v); }

static inline void u32v_store_halves(uint16_t *p, u32v a)
{
    const __m256i v = (__m256i)a;
    _mm_storeu_si128((void *)p, _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

static inline void f32v_left_pack(float *p, f32v a, uint32_t lanes)
{
    const __m128i low = _mm_loadu_si128((const void *)left_pack_lanes[lanes & 15]),
                  high = _mm_loadu_si128((const void *)left_pack_lanes[lanes >> 4]);
    const __m256i v = (__m256i)a;
    _mm_storeu_si128((void *)p, _mm_shuffle_epi8(_mm256_castsi256_si128(v), low));
    _mm_storeu_si128((void *)(p + __builtin_popcount(lanes & 15)),
                     _mm_shuffle_epi8(_mm256_extracti128_si256(v, 1), high));
}

static inline void u32v_left_pack_halves(uint16_t *p, u32v a, uint32_t lanes)
{
    const __m128i low = _mm_loadl_epi64((const void *)left_pack_halves[lanes & 15]),
                  high = _mm_loadl_epi64((const void *)left_pack_halves[lanes >> 4]);
    const __m256i v = (__m256i)a;
    _mm_storel_epi64((void *)p, _mm_shuffle_epi8(_mm256_castsi256_si128(v), low));
    _mm_storel_epi64((void *)(p + __builtin_popcount(lanes & 15)),
                     _mm_shuffle_epi8(_mm256_extracti128_si256(v, 1), high));
}

#include "templates/histogram.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 search for optimal scales; contract and limits in the templates. */
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "this file needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include <immintrin.h>

#include "avx512/prefer_avx2.h"

#define LEAST_OF(a, b) ((i32x8)_mm256_min_epi32((__m256i)(a), (__m256i)(b)))
#define MOST_OF(a, b) ((i32x8)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))

#define OPTIMAL_ERROR_OF_FEW(n, ...)                                                                                   \
    if (prefer_avx2_for_few_elements(n))                                                                               \
        return qobs_optimal_error_avx2(__VA_ARGS__);

#define GREATER(x, y) ((f64x4)_mm256_max_pd((__m256d)(x), (__m256d)(y)))

#include "templates/optimal_error.inl.h"

/* See templates/optimal_curve.inl.h. */
#define PACKED_EVENTS
ALWAYS_INLINE size_t pack_events(uint32_t *events, const float t[16], uint32_t first, uint32_t count, uint32_t tag,
                                 int32_t passed[16])
{
    const __m512i lanes = _mm512_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240);
    const __m512i bits = _mm512_loadu_si512(t), most = _mm512_set1_epi32((int32_t)count);
    const __m512i k = _mm512_sub_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32((int32_t)first));
    const __mmask16 inside = _mm512_cmplt_epu32_mask(k, most), beyond = _mm512_cmpge_epi32_mask(k, most);
    const __m512i event = _mm512_or_si512(_mm512_slli_epi32(k, 20),
                                          _mm512_add_epi32(_mm512_set1_epi32((int32_t)tag), lanes));
    const __m512i old = _mm512_loadu_si512(passed);
    _mm512_storeu_si512(events, _mm512_maskz_compress_epi32(inside, event));
    _mm512_storeu_si512(passed, _mm512_mask_add_epi32(old, beyond, old, _mm512_set1_epi32(1)));
    return (size_t)__builtin_popcount(inside);
}

#include "templates/optimal_curve.inl.h"

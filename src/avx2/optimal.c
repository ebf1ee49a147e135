/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 search for optimal scales; contract and limits in the templates. */
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file needs -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>

#define LEAST_OF(a, b) ((mask32x8)_mm256_min_epi32((__m256i)(a), (__m256i)(b)))
#define MOST_OF(a, b) ((mask32x8)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))

#define GREATER(x, y) ((f64x4)_mm256_max_pd((__m256d)(x), (__m256d)(y)))

#define ENTRY_(name) name##_avx2
#define ENTRY(name) ENTRY_(name)
#include "templates/optimal_error.inl.h"

#include "templates/left_pack.h"

/* Appends the lanes of a mask; may write four. */
ALWAYS_INLINE size_t pack_four(uint32_t *events, __m128i event, int mask)
{
    const __m128i order = _mm_loadu_si128((const __m128i *)(const void *)left_pack_lanes[mask]);
    _mm_storeu_si128((__m128i *)(void *)events, _mm_shuffle_epi8(event, order));
    return (size_t)__builtin_popcount((unsigned)mask);
}

/* See templates/optimal_curve.inl.h. */
#define PACKED_EVENTS
ALWAYS_INLINE size_t pack_events(uint32_t *events, const float t[16], uint32_t first, uint32_t count, uint32_t tag,
                                 int32_t passed[16])
{
    const __m256i most = _mm256_set1_epi32((int32_t)count - 1), none = _mm256_set1_epi32(-1);
    size_t n = 0;
    for (int half = 0; half < 2; half++) {
        __m256i *const taken = (__m256i *)(void *)(passed + 8 * half);
        const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(t + 8 * half));
        const __m256i k = _mm256_sub_epi32(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32((int32_t)first));
        const __m256i beyond = _mm256_cmpgt_epi32(k, most),
                      inside = _mm256_andnot_si256(beyond, _mm256_cmpgt_epi32(k, none));
        const __m256i event = _mm256_or_si256(
            _mm256_slli_epi32(k, 20), _mm256_add_epi32(_mm256_set1_epi32((int32_t)tag + 8 * half), lanes));
        const int mask = _mm256_movemask_ps(_mm256_castsi256_ps(inside));
        n += pack_four(events + n, _mm256_castsi256_si128(event), mask & 15);
        n += pack_four(events + n, _mm256_extracti128_si256(event, 1), mask >> 4);
        _mm256_storeu_si256(taken, _mm256_sub_epi32(_mm256_loadu_si256(taken), beyond));
    }
    return n;
}

#include "templates/optimal_curve.inl.h"

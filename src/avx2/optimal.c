/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 search for optimal scales; contract and limits in the templates. */
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file needs -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>

#include "avx2/tuning.h"

#define LEAST_OF(a, b) ((i32x8)_mm256_min_epi32((__m256i)(a), (__m256i)(b)))
#define MOST_OF(a, b) ((i32x8)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))

#define GREATER(x, y) ((f64x4)_mm256_max_pd((__m256d)(x), (__m256d)(y)))

#include "templates/optimal_error.inl.h"

/* For each mask of eight lanes the indices of its lanes, a byte each, first those of the lowest lanes. */
#define HAS(m, i) ((uint64_t)(m) >> (i) & 1)
#define BEFORE(m, i)                                                                                                   \
    (((i) > 0) * HAS(m, 0) + ((i) > 1) * HAS(m, 1) + ((i) > 2) * HAS(m, 2) + ((i) > 3) * HAS(m, 3) +                   \
     ((i) > 4) * HAS(m, 4) + ((i) > 5) * HAS(m, 5) + ((i) > 6) * HAS(m, 6))
#define LANE(m, i) (HAS(m, i) * (i) << 8 * BEFORE(m, i))
#define ORDER(m)                                                                                                       \
    (LANE(m, 1) | LANE(m, 2) | LANE(m, 3) | LANE(m, 4) | LANE(m, 5) | LANE(m, 6) | LANE(m, 7))
#define ORDER_4(m) ORDER(m), ORDER((m) + 1), ORDER((m) + 2), ORDER((m) + 3)
#define ORDER_16(m) ORDER_4(m), ORDER_4((m) + 4), ORDER_4((m) + 8), ORDER_4((m) + 12)
#define ORDER_64(m) ORDER_16(m), ORDER_16((m) + 16), ORDER_16((m) + 32), ORDER_16((m) + 48)
static const uint64_t lane_order[256] = {ORDER_64(0), ORDER_64(64), ORDER_64(128), ORDER_64(192)};

/* Appends the lanes of a mask; writes eight. */
ALWAYS_INLINE size_t pack_eight(uint32_t *events, __m256i event, int mask)
{
    const __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)&lane_order[mask]));
    _mm256_storeu_si256((__m256i *)(void *)events, _mm256_permutevar8x32_epi32(event, order));
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
        const __m256i lanes = _mm256_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112);
        const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(t + 8 * half));
        const __m256i k = _mm256_sub_epi32(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32((int32_t)first));
        const __m256i beyond = _mm256_cmpgt_epi32(k, most),
                      inside = _mm256_andnot_si256(beyond, _mm256_cmpgt_epi32(k, none));
        const __m256i event = _mm256_or_si256(
            _mm256_slli_epi32(k, 20), _mm256_add_epi32(_mm256_set1_epi32((int32_t)tag + 128 * half), lanes));
        const int mask = _mm256_movemask_ps(_mm256_castsi256_ps(inside));
        n += pack_eight(events + n, event, mask);
        _mm256_storeu_si256(taken, _mm256_sub_epi32(_mm256_loadu_si256(taken), beyond));
    }
    return n;
}

#include "templates/optimal_curve.inl.h"

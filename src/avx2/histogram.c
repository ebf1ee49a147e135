/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 histogram; contract and limits in templates/histogram.inl.h. */
#if !defined(__AVX2__) || !defined(__F16C__)
#error "this file needs -mavx2 -mf16c"
#endif

#include <immintrin.h>

#include "kernels/kernel_histogram.h"
#include "kernels/left_pack.h"

enum { LANES = 8, ALL_LANES = 0xff };
typedef __m256 hist_vec;
typedef __m256i hist_index;
typedef __m256 hist_lanes;

typedef struct {
    __m256 lo, hi, scale, from, bins, width, skipped, uncountable, magnitude;
    __m256i last;
} hist_rule;

/* The members beside those that hist_rule_of sets. */
static inline void hist_set_special(hist_rule *r, const struct binning *b)
{
    r->uncountable = _mm256_set1_ps(b->skip_zeros ? 0 : __builtin_inff());
    r->magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(b->magnitude ? INT32_MAX : -1));
    r->last = _mm256_set1_epi32((int32_t)b->bins - 1);
}

static inline hist_vec hist_load_f32(const unsigned char *x) { return _mm256_loadu_ps((const void *)x); }

static inline hist_vec hist_load_bf16(const unsigned char *x)
{
    const __m128i h = _mm_loadu_si128((const void *)x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static inline hist_vec hist_load_f16(const unsigned char *x)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)x));
}

static inline hist_vec hist_abs(const hist_rule *r, hist_vec v) { return _mm256_and_ps(v, r->magnitude); }

static inline uint32_t hist_mask(__m256 lanes) { return (uint32_t)_mm256_movemask_ps(lanes); }

static inline uint32_t hist_inside(const hist_rule *r, hist_vec v)
{
    const __m256 in = _mm256_and_ps(_mm256_cmp_ps(v, r->lo, _CMP_GE_OQ), _mm256_cmp_ps(v, r->hi, _CMP_LE_OQ));
    return hist_mask(_mm256_and_ps(in, _mm256_cmp_ps(v, r->skipped, _CMP_NEQ_UQ)));
}

static inline uint32_t hist_special(hist_vec v)
{
    const __m256 magnitude = _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX)));
    return hist_mask(_mm256_cmp_ps(magnitude, _mm256_set1_ps(__builtin_inff()), _CMP_NLT_UQ));
}

static inline uint32_t hist_in_extrema(const hist_rule *r, hist_vec v)
{
    return ~hist_special(v) & hist_mask(_mm256_cmp_ps(v, r->skipped, _CMP_NEQ_UQ));
}

static inline hist_lanes hist_all(void) { return _mm256_castsi256_ps(_mm256_set1_epi32(-1)); }
static inline bool hist_is_all(hist_lanes lanes) { return hist_mask(lanes) == ALL_LANES; }

static inline hist_lanes hist_all_countable(const hist_rule *r, hist_lanes lanes, hist_vec v)
{
    return _mm256_and_ps(lanes, _mm256_cmp_ps(v, r->uncountable, _CMP_NEQ_OQ));
}

static inline bool hist_between(const hist_rule *r, hist_vec min, hist_vec max)
{
    return hist_is_all(_mm256_and_ps(_mm256_cmp_ps(min, r->lo, _CMP_GE_OQ), _mm256_cmp_ps(max, r->hi, _CMP_LE_OQ)));
}

static inline hist_vec hist_place(const hist_rule *r, hist_vec v)
{
    const __m256 distance = _mm256_sub_ps(_mm256_mul_ps(v, r->scale), r->from);
    return _mm256_div_ps(_mm256_mul_ps(distance, r->bins), r->width);
}

static inline hist_index hist_bins(const hist_rule *r, hist_vec place)
{
    return _mm256_min_epu32(_mm256_cvttps_epi32(place), r->last);
}

static inline uint32_t hist_unlike(hist_index bins, uint32_t bin)
{
    return ~hist_mask(_mm256_castsi256_ps(_mm256_cmpeq_epi32(bins, _mm256_set1_epi32((int32_t)bin))));
}

static inline uint32_t hist_unequal(hist_vec v, hist_vec w) { return hist_mask(_mm256_cmp_ps(v, w, _CMP_NEQ_UQ)); }

static inline hist_vec hist_min(hist_vec v, hist_vec w) { return _mm256_min_ps(v, w); }
static inline hist_vec hist_max(hist_vec v, hist_vec w) { return _mm256_max_ps(v, w); }

static inline hist_vec hist_where(uint32_t mask, hist_vec v, hist_vec w)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i lanes = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int32_t)mask), bit), bit);
    return _mm256_blendv_ps(w, v, _mm256_castsi256_ps(lanes));
}

static inline hist_vec hist_splat(float x) { return _mm256_set1_ps(x); }
static inline void hist_store_floats(float *p, hist_vec v) { _mm256_storeu_ps(p, v); }
static inline void hist_store_wide(uint32_t *p, hist_index bins) { _mm256_storeu_si256((void *)p, bins); }

static inline void hist_store(uint16_t *p, hist_index bins)
{
    _mm_storeu_si128((void *)p, _mm_packus_epi32(_mm256_castsi256_si128(bins), _mm256_extracti128_si256(bins, 1)));
}

static inline void hist_left_pack(float *p, hist_vec v, uint32_t mask)
{
    const __m128i low = _mm_loadu_si128((const void *)left_pack_lanes[mask & 15]),
                  high = _mm_loadu_si128((const void *)left_pack_lanes[mask >> 4]);
    const __m256i bits = _mm256_castps_si256(v);
    _mm_storeu_si128((void *)p, _mm_shuffle_epi8(_mm256_castsi256_si128(bits), low));
    _mm_storeu_si128((void *)(p + __builtin_popcount(mask & 15)),
                     _mm_shuffle_epi8(_mm256_extracti128_si256(bits, 1), high));
}

static inline void hist_left_pack_bins(uint16_t *p, hist_index bins, uint32_t mask)
{
    const __m128i low = _mm_loadl_epi64((const void *)left_pack_halves[mask & 15]),
                  high = _mm_loadl_epi64((const void *)left_pack_halves[mask >> 4]);
    _mm_storel_epi64((void *)p, _mm_shuffle_epi8(_mm256_castsi256_si128(bins), low));
    _mm_storel_epi64((void *)(p + __builtin_popcount(mask & 15)),
                     _mm_shuffle_epi8(_mm256_extracti128_si256(bins, 1), high));
}

#include "avx2/tuning.h"

#include "templates/histogram.inl.h"

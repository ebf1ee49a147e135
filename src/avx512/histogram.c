/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 histogram; contract and limits in templates/histogram.inl.h. */
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "this file needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include <immintrin.h>

#include "base/sanitized.h"
#include "kernels/kernel_histogram.h"

enum { LANES = 16, ALL_LANES = 0xffff };
typedef __m512 hist_vec;
typedef __m512i hist_index;
typedef __mmask16 hist_lanes;

typedef struct {
    __m512 lo, hi, scale, from, bins, width, skipped, uncountable, magnitude;
    __m512i last;
} hist_rule;

/* The members beside those that hist_rule_of sets. */
static inline void hist_set_special(hist_rule *r, const struct binning *b)
{
    r->uncountable = _mm512_set1_ps(b->skip_zeros ? 0 : __builtin_inff());
    r->magnitude = _mm512_castsi512_ps(_mm512_set1_epi32(b->magnitude ? INT32_MAX : -1));
    r->last = _mm512_set1_epi32((int32_t)b->bins - 1);
}

static inline hist_vec hist_load_f32(const unsigned char *x) { return _mm512_loadu_ps(x); }

static inline hist_vec hist_load_bf16(const unsigned char *x)
{
    const __m256i h = _mm256_loadu_si256((const void *)x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static inline hist_vec hist_load_f16(const unsigned char *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)x));
}

static inline hist_vec hist_abs(const hist_rule *r, hist_vec v) { return _mm512_and_ps(v, r->magnitude); }

/* A mask as an integer. gcc 12 stores the 16 bits of a mask for which it has no register and reads 32 bits there, if
 * the sanitizers take the registers; the general register ends that. */
static inline uint32_t hist_mask(__mmask16 mask)
{
#ifdef SANITIZED
    __asm__("" : "+r"(mask));
#endif
    return mask;
}

static inline uint32_t hist_inside(const hist_rule *r, hist_vec v)
{
    const __mmask16 above = _mm512_cmp_ps_mask(v, r->lo, _CMP_GE_OQ);
    const __mmask16 within = _mm512_mask_cmp_ps_mask(above, v, r->hi, _CMP_LE_OQ);
    return hist_mask(_mm512_mask_cmp_ps_mask(within, v, r->skipped, _CMP_NEQ_UQ));
}

static inline uint32_t hist_special(hist_vec v)
{
    return hist_mask(_mm512_fpclass_ps_mask(v, 0x99)); /* quiet NaN, +infinity, -infinity, signalling NaN */
}

static inline uint32_t hist_in_extrema(const hist_rule *r, hist_vec v)
{
    return ~hist_special(v) & hist_mask(_mm512_cmp_ps_mask(v, r->skipped, _CMP_NEQ_UQ));
}

static inline hist_lanes hist_all(void) { return ALL_LANES; }
static inline bool hist_is_all(hist_lanes lanes) { return lanes == ALL_LANES; }

static inline hist_lanes hist_all_countable(const hist_rule *r, hist_lanes lanes, hist_vec v)
{
    return _mm512_mask_cmp_ps_mask(lanes, v, r->uncountable, _CMP_NEQ_OQ);
}

static inline bool hist_between(const hist_rule *r, hist_vec min, hist_vec max)
{
    return _mm512_cmp_ps_mask(min, r->lo, _CMP_GE_OQ) == ALL_LANES &&
           _mm512_cmp_ps_mask(max, r->hi, _CMP_LE_OQ) == ALL_LANES;
}

static inline hist_vec hist_place(const hist_rule *r, hist_vec v)
{
    const __m512 distance = _mm512_sub_ps(_mm512_mul_ps(v, r->scale), r->from);
    return _mm512_div_ps(_mm512_mul_ps(distance, r->bins), r->width);
}

static inline hist_index hist_bins(const hist_rule *r, hist_vec place)
{
    return _mm512_min_epu32(_mm512_cvttps_epi32(place), r->last);
}

static inline uint32_t hist_unlike(hist_index bins, uint32_t bin)
{
    return hist_mask(_mm512_cmpneq_epi32_mask(bins, _mm512_set1_epi32((int32_t)bin)));
}

static inline uint32_t hist_unequal(hist_vec v, hist_vec w) { return hist_mask(_mm512_cmp_ps_mask(v, w, _CMP_NEQ_UQ)); }

static inline hist_vec hist_min(hist_vec v, hist_vec w) { return _mm512_min_ps(v, w); }
static inline hist_vec hist_max(hist_vec v, hist_vec w) { return _mm512_max_ps(v, w); }

static inline hist_vec hist_where(uint32_t mask, hist_vec v, hist_vec w)
{
    return _mm512_mask_blend_ps((__mmask16)mask, w, v);
}

static inline hist_vec hist_splat(float x) { return _mm512_set1_ps(x); }
static inline void hist_store_floats(float *p, hist_vec v) { _mm512_storeu_ps(p, v); }
static inline void hist_store_wide(uint32_t *p, hist_index bins) { _mm512_storeu_si512(p, bins); }
static inline void hist_store(uint16_t *p, hist_index bins)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(bins));
}

/* In a register: compressing into memory is slow on some CPUs. */
static inline void hist_left_pack(float *p, hist_vec v, uint32_t mask)
{
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps((__mmask16)mask, v));
}

static inline void hist_left_pack_bins(uint16_t *p, hist_index bins, uint32_t mask)
{
    hist_store(p, _mm512_maskz_compress_epi32((__mmask16)mask, bins));
}

#include "avx512/tuning.h"

#include "templates/histogram.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON histogram; contract and limits in templates/histogram.inl.h. */
#include <arm_neon.h>

#include "kernels/kernel_histogram.h"
#include "kernels/left_pack.h"

enum { LANES = 4, ALL_LANES = 0xf };
typedef float32x4_t hist_vec;
typedef uint32x4_t hist_index;
typedef uint32x4_t hist_lanes;

typedef struct {
    float32x4_t lo, hi, scale, from, bins, width, skipped, quant_min;
    uint32x4_t magnitude, last;
} hist_rule;

/* The members beside those that hist_rule_of sets. */
static inline void hist_set_special(hist_rule *r, const struct binning *b)
{
    r->quant_min = vdupq_n_f32(b->skip_zeros ? 0x1p-149f : 0);
    r->magnitude = vdupq_n_u32(b->magnitude ? INT32_MAX : UINT32_MAX);
    r->last = vdupq_n_u32(b->bins - 1);
}

static inline hist_vec hist_load_f32(const unsigned char *x) { return vreinterpretq_f32_u8(vld1q_u8(x)); }

static inline hist_vec hist_load_bf16(const unsigned char *x)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(x)), 16));
}

static inline hist_vec hist_load_f16(const unsigned char *x) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(x))); }

static inline hist_vec hist_abs(const hist_rule *r, hist_vec v)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), r->magnitude));
}

static inline uint32_t hist_mask(uint32x4_t lanes)
{
    static const uint32_t bit[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(lanes, vld1q_u32(bit)));
}

static inline uint32_t hist_inside(const hist_rule *r, hist_vec v)
{
    const uint32x4_t in = vandq_u32(vcgeq_f32(v, r->lo), vcleq_f32(v, r->hi));
    return hist_mask(vbicq_u32(in, vceqq_f32(v, r->skipped)));
}

static inline uint32_t hist_special(hist_vec v)
{
    return ALL_LANES ^ hist_mask(vcltq_f32(vabsq_f32(v), vdupq_n_f32(__builtin_inff())));
}

static inline uint32_t hist_in_extrema(const hist_rule *r, hist_vec v)
{
    const uint32x4_t finite = vcltq_f32(vabsq_f32(v), vdupq_n_f32(__builtin_inff()));
    return hist_mask(vbicq_u32(finite, vceqq_f32(v, r->skipped)));
}

static inline hist_lanes hist_all(void) { return vdupq_n_u32(UINT32_MAX); }
static inline bool hist_is_all(hist_lanes lanes) { return vminvq_u32(lanes) == UINT32_MAX; }

static inline hist_lanes hist_all_countable(const hist_rule *r, hist_lanes lanes, hist_vec v)
{
    return vandq_u32(lanes, vcageq_f32(v, r->quant_min));
}

static inline bool hist_between(const hist_rule *r, hist_vec min, hist_vec max)
{
    return hist_is_all(vandq_u32(vcgeq_f32(min, r->lo), vcleq_f32(max, r->hi)));
}

static inline hist_vec hist_place(const hist_rule *r, hist_vec v)
{
    const float32x4_t distance = vsubq_f32(vmulq_f32(v, r->scale), r->from);
    return vdivq_f32(vmulq_f32(distance, r->bins), r->width);
}

static inline hist_index hist_bins(const hist_rule *r, hist_vec place)
{
    return vminq_u32(vcvtq_u32_f32(place), r->last);
}

static inline uint32_t hist_unlike(hist_index bins, uint32_t bin)
{
    return ALL_LANES ^ hist_mask(vceqq_u32(bins, vdupq_n_u32(bin)));
}

static inline uint32_t hist_unequal(hist_vec v, hist_vec w) { return ALL_LANES ^ hist_mask(vceqq_f32(v, w)); }

static inline hist_vec hist_min(hist_vec v, hist_vec w) { return vminnmq_f32(v, w); }
static inline hist_vec hist_max(hist_vec v, hist_vec w) { return vmaxnmq_f32(v, w); }

static inline hist_vec hist_where(uint32_t mask, hist_vec v, hist_vec w)
{
    static const uint32_t bit[4] = {1, 2, 4, 8};
    return vbslq_f32(vtstq_u32(vdupq_n_u32(mask), vld1q_u32(bit)), v, w);
}

static inline hist_vec hist_splat(float x) { return vdupq_n_f32(x); }
static inline void hist_store_floats(float *p, hist_vec v) { vst1q_f32(p, v); }
static inline void hist_store_wide(uint32_t *p, hist_index bins) { vst1q_u32(p, bins); }
static inline void hist_store(uint16_t *p, hist_index bins) { vst1_u16(p, vmovn_u32(bins)); }

static inline void hist_left_pack(float *p, hist_vec v, uint32_t mask)
{
    const uint8x16_t packed = vqtbl1q_u8(vreinterpretq_u8_f32(v), vld1q_u8(left_pack_lanes[mask]));
    vst1q_f32(p, vreinterpretq_f32_u8(packed));
}

static inline void hist_left_pack_bins(uint16_t *p, hist_index bins, uint32_t mask)
{
    const uint8x8_t picked = vqtbl1_u8(vreinterpretq_u8_u32(bins), vld1_u8(left_pack_halves[mask]));
    vst1_u16(p, vreinterpret_u16_u8(picked));
}

#include "neon/tuning.h"

#include "templates/histogram.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON histogram; contract and limits in templates/histogram.inl.h. */
#include "kernels/kernel_histogram.h"
#include "kernels/left_pack.h"
#include "neon/simd.h"

static inline f32v_mask f32v_differ(f32v a, f32v b) { return f32v_less(a, b) | f32v_less(b, a); }
static inline u32v f32v_truncate(f32v v) { return vcvtq_u32_f32(v); }
static inline void u32v_store_halves(uint16_t *p, u32v a) { vst1_u16(p, vmovn_u32(a)); }

static inline void f32v_left_pack(float *p, f32v a, uint32_t lanes)
{
    vst1q_f32(p, (f32v)vqtbl1q_u8((uint8x16_t)a, vld1q_u8(left_pack_lanes[lanes])));
}

static inline void u32v_left_pack_halves(uint16_t *p, u32v a, uint32_t lanes)
{
    vst1_u16(p, (uint16x4_t)vqtbl1_u8((uint8x16_t)a, vld1_u8(left_pack_halves[lanes])));
}

#include "templates/histogram.inl.h"

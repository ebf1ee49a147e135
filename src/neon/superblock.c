/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON blocks of GGUF types; contract and limits in templates/superblock.inl.h. */
#include "neon/simd.h"

#define TOGETHER 4
#define CANDIDATES 8

DEEP_INLINE f32v f32v_sqrt(f32v a) { return vsqrtq_f32(a); }

struct f32v_table8 {
    uint8x16x2_t entry;
};

DEEP_INLINE struct f32v_table8 f32v_table8(const float entry[8])
{
    return (struct f32v_table8){{{vreinterpretq_u8_f32(vld1q_f32(entry)), vreinterpretq_u8_f32(vld1q_f32(entry + 4))}}};
}

DEEP_INLINE f32v f32v_pick8(struct f32v_table8 t, u32v index)
{
    return vreinterpretq_f32_u8(vqtbl2q_u8(t.entry, bytes_of_index(vandq_u32((uint32x4_t)index, vdupq_n_u32(7)))));
}

#include "templates/superblock.inl.h"

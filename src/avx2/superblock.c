/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 blocks of GGUF types; contract and limits in templates/superblock.inl.h. */
#include "avx2/simd.h"

#define TOGETHER 2
#define CANDIDATES 4
#define CUT_OFF(a) (s32v) _mm256_cvttps_epi32(a)

DEEP_INLINE f32v f32v_sqrt(f32v a) { return _mm256_sqrt_ps(a); }

struct f32v_table8 {
    __m256 entry;
};

DEEP_INLINE struct f32v_table8 f32v_table8(const float entry[8])
{
    return (struct f32v_table8){_mm256_loadu_ps(entry)};
}

DEEP_INLINE f32v f32v_pick8(struct f32v_table8 t, u32v index)
{
    return _mm256_permutevar8x32_ps(t.entry, (__m256i)index);
}

#include "templates/superblock.inl.h"

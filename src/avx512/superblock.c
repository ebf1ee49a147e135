/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 blocks of GGUF types; contract and limits in templates/superblock.inl.h. */
#include "avx512/simd.h"

#define TOGETHER 2
#define CANDIDATES 8
#define CUT_OFF(a) (s32v) _mm512_cvttps_epi32(a)

DEEP_INLINE f32v f32v_sqrt(f32v a) { return _mm512_sqrt_ps(a); }

struct f32v_table8 {
    __m512 entry; /* twice */
};

DEEP_INLINE struct f32v_table8 f32v_table8(const float entry[8])
{
    return (struct f32v_table8){_mm512_broadcast_f32x8(_mm256_loadu_ps(entry))};
}

DEEP_INLINE f32v f32v_pick8(struct f32v_table8 t, u32v index) { return _mm512_permutexvar_ps((__m512i)index, t.entry); }

#include "templates/superblock.inl.h"

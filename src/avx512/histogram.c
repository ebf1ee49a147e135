/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 histogram; contract and limits in templates/histogram.inl.h. */
#include "avx512/simd.h"
#include "kernels/kernel_histogram.h"

static inline f32v_mask f32v_differ(f32v a, f32v b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_OQ); }
static inline s32v f32v_truncate(f32v v) { return (s32v)_mm512_cvttps_epi32(v); }

static inline void u32v_store_halves(uint16_t *p, u32v a)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16((__m512i)a));
}

/* In a register: compressing into memory is slow on some CPUs. */
static inline void f32v_left_pack(float *p, f32v a, uint32_t lanes)
{
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps((__mmask16)lanes, a));
}

static inline void u32v_left_pack_halves(uint16_t *p, u32v a, uint32_t lanes)
{
    u32v_store_halves(p, (u32v)_mm512_maskz_compress_epi32((__mmask16)lanes, (__m512i)a));
}

#include "templates/histogram.inl.h"

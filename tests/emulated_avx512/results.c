/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Calls every intrinsic of avx512.h. RESULTS is the function's name: results_emulated, after avx512.h, or
 * results_native. */
#include <immintrin.h>
#include <string.h>

#include "results.h"

/* Operands of arithmetic may change places, so the NaN that comes out is any of them. */
static __m512 any_nan(__m512 a)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a, _mm512_set1_ps(__builtin_nanf("")));
}

static struct result *put(struct result *to, const char *intrinsic, const void *bytes, size_t size)
{
    to->intrinsic = intrinsic;
    to->size = size;
    memcpy(to->bytes, bytes, size);
    return to + 1;
}

#define PUT(intrinsic, ...)                                                                                            \
    do {                                                                                                               \
        const __typeof__(__VA_ARGS__) value = (__VA_ARGS__);                                                           \
        to = put(to, intrinsic, &value, sizeof value);                                                                 \
    } while (0)
#define I(name, ...) PUT(#name, _mm512_##name(__VA_ARGS__))
#define ARITHMETIC(name, ...) PUT(#name, any_nan(_mm512_##name(__VA_ARGS__)))

size_t RESULTS(const struct operands *operands, struct result *results)
{
    struct result *to = results;
    const __m512i i = _mm512_loadu_si512(operands->a), j = _mm512_loadu_si512(operands->b);
    const __m512i l = _mm512_loadu_si512(operands->c);
    const __m512 s = _mm512_castsi512_ps(i), t = _mm512_castsi512_ps(j), u = _mm512_castsi512_ps(l);
    const __m512d d = _mm512_castsi512_pd(i), e = _mm512_castsi512_pd(j);
    const __m256i low = _mm512_castsi512_si256(i), high = _mm512_extracti64x4_epi64(i, 1);
    const __mmask64 k64 = operands->mask;
    const __mmask32 k32 = (__mmask32)k64;
    const __mmask16 k16 = (__mmask16)k64;
    const __mmask8 k8 = (__mmask8)k64;
    int32_t first;
    memcpy(&first, operands->a, sizeof first);

    _Alignas(64) unsigned char memory[3 * 64];
    memset(memory, 0x5a, sizeof memory);
    _mm512_storeu_si512(memory + 1, i);
    PUT("storeu_si512", _mm512_loadu_si512(memory));
    _mm512_storeu_ps(memory + 3, t);
    PUT("storeu_ps", _mm512_loadu_si512(memory + 3));
    _mm512_mask_storeu_epi16(memory + 67, k32, j);
    PUT("mask_storeu_epi16", _mm512_loadu_si512(memory + 67));
    I(maskz_loadu_epi16, k32, operands->a);

    I(set1_epi8, (signed char)first);
    I(set1_epi16, (short)first);
    I(set1_epi32, first);
    I(set1_ps, (float)first);
    I(set_epi16, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5,
      4, 3, 2, 1, 0);
    I(set_epi32, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    I(set_epi64, 7, 6, 5, 4, 3, 2, 1, 0);
    I(setr_epi32, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    I(setr_epi64, 7, 6, 5, 4, 3, 2, 1, 0);
    I(castsi512_si256, i);
    I(castps512_ps128, s);
    const __m512i defined4 = _mm512_castsi128_si512(_mm256_castsi256_si128(high));
    PUT("castsi128_si512", _mm512_castps512_ps128(_mm512_castsi512_ps(defined4)));
    I(castpd_si512, _mm512_castsi512_pd(i));
    I(extracti64x4_epi64, i, 0);
    I(extracti64x4_epi64, i, 1);
    I(inserti64x4, j, low, 1);
    I(broadcast_f32x8, _mm256_castsi256_ps(high));
    I(broadcast_i32x4, _mm256_castsi256_si128(high));

    ARITHMETIC(add_ps, s, t);
    ARITHMETIC(sub_ps, s, t);
    ARITHMETIC(mul_ps, s, t);
    ARITHMETIC(div_ps, s, t);
    ARITHMETIC(fmadd_ps, s, t, u);
    ARITHMETIC(sqrt_ps, s);
    ARITHMETIC(fnmadd_ps, s, t, u);
    I(min_ps, s, t);
    I(max_ps, s, t);
    I(cvttps_epi32, s);
    I(cvtps_epi32, s);
    I(cvtph_ps, low);
    I(cmp_ps_mask, s, t, _CMP_GE_OQ);
    I(cmp_ps_mask, s, t, _CMP_LE_OQ);
    I(cmp_ps_mask, s, t, _CMP_LT_OQ);
    I(cmp_ps_mask, s, t, _CMP_NEQ_UQ);
    I(cmp_ps_mask, s, t, _CMP_NEQ_OQ);
    I(cmp_ps_mask, s, t, _CMP_UNORD_Q);

    I(add_epi32, i, j);
    I(mask_add_epi32, l, k16, i, j);
    I(or_si512, i, j);
    I(sub_epi32, i, j);
    I(subs_epu16, i, j);
    I(mask_add_epi16, l, k32, i, j);
    I(mask_sub_epi16, l, k32, i, j);
    I(packs_epi16, i, j);
    I(packs_epi32, i, j);
    I(shuffle_epi8, i, j);
    I(min_epi8, i, j);
    I(max_epi8, i, j);
    I(packus_epi16, i, j);
    I(min_epi16, i, j);
    I(max_epi16, i, j);
    I(min_epi32, i, j);
    I(max_epi32, i, j);
    I(min_epu16, i, j);
    I(max_epu16, i, j);
    I(min_epu32, i, j);
    I(max_epu32, i, j);
    I(mask_min_epi16, l, k32, i, j);
    I(mask_max_epi16, l, k32, i, j);
    I(srli_epi16, i, 5);
    I(srli_epi16, i, 16);
    I(slli_epi32, i, 16);
    I(slli_epi32, i, 32);
    I(srli_epi32, i, 23);
    I(srli_epi32, i, 32);
    I(srai_epi16, i, 15);
    I(srai_epi16, i, 16);
    I(srai_epi32, i, 31);
    I(srai_epi32, i, 32);
    I(ternarylogic_epi64, i, j, l, 0x78);
    I(ternarylogic_epi64, i, j, l, 0x55);
    I(ternarylogic_epi32, i, j, l, 0xca);
    I(ternarylogic_epi32, i, j, l, 0x1b);

    I(cmpge_epi16_mask, i, j);
    I(cmpge_epi32_mask, i, j);
    I(cmple_epu16_mask, i, j);
    I(cmpeq_epi16_mask, i, j);
    I(cmpneq_epi32_mask, i, j);
    I(test_epi32_mask, i, j);
    I(cmplt_epu16_mask, i, j);
    I(cmplt_epu32_mask, i, j);
    I(movepi16_mask, i);
    I(movepi32_mask, i);
    I(mask_blend_epi64, k8, i, j);
    I(mask_blend_ps, k16, s, t);
    I(mask_mov_epi16, i, k32, j);
    I(maskz_mov_epi16, k32, i);
    I(maskz_mov_ps, k16, s);

    I(maskz_compress_epi32, k16, i);
    I(maskz_compress_ps, k16, s);
    I(permutexvar_epi16, i, j);
    I(permutexvar_epi32, i, j);
    I(permutexvar_epi64, i, j);
    I(permutexvar_ps, i, t);
    I(permutex2var_epi64, i, j, l);
    I(maskz_permutex2var_ps, k16, s, j, u);
    I(mask_shuffle_epi8, l, k64, i, j);
    I(shuffle_ps, s, t, 0x88);
    I(shuffle_ps, s, t, 0x1e);
    I(permute_ps, s, 0x4e);
    I(permute_ps, s, 0x2d);
    I(shuffle_pd, d, e, 0x55);
    I(shuffle_pd, d, e, 0x2d);
    I(shuffle_i64x2, i, j, 0x4e);
    I(shuffle_i64x2, i, j, 0x2d);
    I(shuffle_f32x4, s, t, 0xdd);
    I(shuffle_f32x4, s, t, 0x63);
    I(unpacklo_epi16, i, j);
    I(unpackhi_epi16, i, j);
    I(unpacklo_epi32, i, j);
    I(unpackhi_epi32, i, j);
    I(unpacklo_epi64, i, j);
    I(unpackhi_epi64, i, j);

    I(cvtepu8_epi32, _mm256_castsi256_si128(high));
    I(cvtepu16_epi32, high);
    I(cvtepi32_epi16, i);
    I(cvtepi32_epi8, i);
    I(cvtps_ph, s, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    I(reduce_min_epi32, i);
    return (size_t)(to - results);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Emulates the AVX-512 intrinsics that src/avx512 uses, for CPUs with AVX2 and FMA. Tests only.
 *
 * The build with -Demulate_avx512=true includes this file before everything else in the kernels of src/avx512. It
 * replaces <immintrin.h>. Floating-point operations run on two AVX halves, so rounding, NaN and denormals are those
 * of the CPU. All else runs lane by lane, as Intel's Intrinsics Guide defines it. Undefined lanes hold garbage, and
 * an unaligned address of an aligned access ends the process. An intrinsic that is missing here does not compile;
 * `results.c` needs a line for each one that is added. SIMDe 0.7.4 does not stand in for it: it lacks intrinsics
 * such as _mm512_cvtps_epi32 and _mm512_srai_epi32. */
#ifndef QOBS_EMULATED_AVX512_H
#define QOBS_EMULATED_AVX512_H

/* The guards of gcc's and clang's <immintrin.h>, whose parts below ask for them. */
#define _IMMINTRIN_H_INCLUDED
#define __IMMINTRIN_H

#include <stddef.h>
#include <stdint.h>
#include <xmmintrin.h>
#include <emmintrin.h>
#include <pmmintrin.h>
#include <tmmintrin.h>
#include <smmintrin.h>

#include <avxintrin.h>

#include <avx2intrin.h>
#include <f16cintrin.h>
#include <fmaintrin.h>

/* Headers that the kernels include: <sleef.h> before __AVX512F__ is there, the others before __asm__ is a macro. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

#if defined(__AVX512F__)
#error "this file is for builds without AVX-512"
#endif
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1

/* The kernels' only assembly keeps a vector in a register, which no CPU without AVX-512 has. The second macro is for
 * `__asm__ volatile`. */
#define __asm__(...) __asm__("")
#define volatile(...) volatile("")

/* Each emulated intrinsic that is forced into a caller takes stack of its own, together hundreds of kilobytes. */
#define always_inline

typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef double __m512d __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef uint8_t __mmask8;
typedef uint16_t __mmask16;
typedef uint32_t __mmask32;
typedef uint64_t __mmask64;

/* A register: i, s and d are the whole, the arrays its lanes and its halves. */
typedef __m512i emulated_i;
typedef __m512 emulated_s;
typedef __m512d emulated_d;
union emulated {
    __m512i i;
    __m512 s;
    __m512d d;
    __m256i half_i[2];
    __m256 half_s[2];
    __m128i quarter_i[4];
    __m128 quarter_s[4];
    uint8_t u8[64];
    int8_t i8[64];
    int16_t i16[32];
    uint16_t u16[32];
    int32_t i32[16];
    uint32_t u32[16];
    int64_t i64[8];
    uint64_t u64[8];
    float f32[16];
};

#define EACH(lanes) for (unsigned n = 0; n < (lanes); n++)
#define BIT(mask) ((mask) >> n & 1)

/* Lanes that are undefined: no number a test expects. */
static inline union emulated emulated_garbage(void)
{
    union emulated r;
    EACH(8) r.u64[n] = UINT64_C(0xa5c3a5c3a5c3a5c3);
    return r;
}

/* Memory */

static inline __m512i _mm512_loadu_si512(const void *p)
{
    __m512i r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline void _mm512_storeu_si512(void *p, __m512i a) { memcpy(p, &a, sizeof a); }
static inline void _mm512_storeu_ps(void *p, __m512 a) { _mm512_storeu_si512(p, (__m512i)a); }

/* Nothing outside the mask is touched. */
static inline __m512i _mm512_maskz_loadu_epi16(__mmask32 k, const void *p)
{
    union emulated r = {.i = {0}};
    EACH(32) if (BIT(k)) memcpy(&r.i16[n], (const char *)p + 2 * n, 2);
    return r.i;
}

static inline void _mm512_mask_storeu_epi16(void *p, __mmask32 k, __m512i x)
{
    const union emulated a = {.i = x};
    EACH(32) if (BIT(k)) memcpy((char *)p + 2 * n, &a.i16[n], 2);
}

/* Constants, casts and parts */

#define SET1(name, tag, type, lane, lanes)                                                                             \
    static inline emulated_##tag name(type x)                                                                          \
    {                                                                                                                  \
        union emulated r;                                                                                              \
        EACH(lanes) r.lane[n] = x;                                                                                     \
        return r.tag;                                                                                                  \
    }
SET1(_mm512_set1_epi8, i, int8_t, i8, 64)
SET1(_mm512_set1_epi16, i, int16_t, i16, 32)
SET1(_mm512_set1_epi32, i, int32_t, i32, 16)
SET1(_mm512_set1_ps, s, float, f32, 16)
#undef SET1

/* The lanes in the order of the arguments, the first one lowest or highest. */
#define EMULATED_SET(type, lane, lanes, from, ...)                                                                     \
    __extension__({                                                                                                    \
        const type all[] = {__VA_ARGS__};                                                                              \
        _Static_assert(sizeof all == 64, "lanes");                                                                     \
        union emulated r;                                                                                              \
        for (unsigned n = 0; n < (lanes); n++)                                                                         \
            r.lane[n] = all[from];                                                                                     \
        r.i;                                                                                                           \
    })
#define _mm512_set_epi16(...) EMULATED_SET(int16_t, i16, 32, 31 - n, __VA_ARGS__)
#define _mm512_set_epi32(...) EMULATED_SET(int32_t, i32, 16, 15 - n, __VA_ARGS__)
#define _mm512_set_epi64(...) EMULATED_SET(int64_t, i64, 8, 7 - n, __VA_ARGS__)
#define _mm512_setr_epi32(...) EMULATED_SET(int32_t, i32, 16, n, __VA_ARGS__)
#define _mm512_setr_epi64(...) EMULATED_SET(int64_t, i64, 8, n, __VA_ARGS__)

static inline __m512i _mm512_castps_si512(__m512 a) { return (__m512i)a; }
static inline __m512i _mm512_castpd_si512(__m512d a) { return (__m512i)a; }
static inline __m512 _mm512_castsi512_ps(__m512i a) { return (__m512)a; }
static inline __m512d _mm512_castsi512_pd(__m512i a) { return (__m512d)a; }
static inline __m256i _mm512_castsi512_si256(__m512i a) { return (union emulated){.i = a}.half_i[0]; }
static inline __m128 _mm512_castps512_ps128(__m512 a) { return (union emulated){.s = a}.quarter_s[0]; }

static inline __m256i _mm512_extracti64x4_epi64(__m512i a, int half)
{
    return (union emulated){.i = a}.half_i[half & 1];
}

static inline __m512i _mm512_castsi128_si512(__m128i a)
{
    union emulated r = emulated_garbage();
    r.quarter_i[0] = a;
    return r.i;
}

static inline __m512i _mm512_inserti64x4(__m512i a, __m256i b, int half)
{
    union emulated r = {.i = a};
    r.half_i[half & 1] = b;
    return r.i;
}

static inline __m512 _mm512_broadcast_f32x8(__m256 a) { return (union emulated){.half_s = {a, a}}.s; }
static inline __m512i _mm512_broadcast_i32x4(__m128i a) { return (union emulated){.quarter_i = {a, a, a, a}}.i; }

/* Floating point, by the CPU's AVX */

#define HALVES2(name, tag, half, avx)                                                                                  \
    static inline emulated_##tag name(emulated_##tag x, emulated_##tag y)                                              \
    {                                                                                                                  \
        const union emulated a = {.tag = x}, b = {.tag = y};                                                           \
        return (union emulated){.half = {avx(a.half[0], b.half[0]), avx(a.half[1], b.half[1])}}.tag;                   \
    }
HALVES2(_mm512_add_ps, s, half_s, _mm256_add_ps)
HALVES2(_mm512_sub_ps, s, half_s, _mm256_sub_ps)
HALVES2(_mm512_mul_ps, s, half_s, _mm256_mul_ps)
HALVES2(_mm512_div_ps, s, half_s, _mm256_div_ps)
HALVES2(_mm512_min_ps, s, half_s, _mm256_min_ps)
HALVES2(_mm512_max_ps, s, half_s, _mm256_max_ps)
#undef HALVES2

#define HALVES3(name, avx)                                                                                             \
    static inline __m512 name(__m512 x, __m512 y, __m512 z)                                                            \
    {                                                                                                                  \
        const union emulated a = {.s = x}, b = {.s = y}, c = {.s = z};                                                 \
        return (union emulated){                                                                                       \
            .half_s = {avx(a.half_s[0], b.half_s[0], c.half_s[0]), avx(a.half_s[1], b.half_s[1], c.half_s[1])}}        \
            .s;                                                                                                        \
    }
HALVES3(_mm512_fmadd_ps, _mm256_fmadd_ps)
HALVES3(_mm512_fnmadd_ps, _mm256_fnmadd_ps)
#undef HALVES3

static inline __m512 _mm512_sqrt_ps(__m512 x)
{
    const union emulated a = {.s = x};
    return (union emulated){.half_s = {_mm256_sqrt_ps(a.half_s[0]), _mm256_sqrt_ps(a.half_s[1])}}.s;
}

static inline __m512i _mm512_cvttps_epi32(__m512 x)
{
    const union emulated a = {.s = x};
    return (union emulated){.half_i = {_mm256_cvttps_epi32(a.half_s[0]), _mm256_cvttps_epi32(a.half_s[1])}}.i;
}

static inline __m512i _mm512_cvtps_epi32(__m512 x)
{
    const union emulated a = {.s = x};
    return (union emulated){.half_i = {_mm256_cvtps_epi32(a.half_s[0]), _mm256_cvtps_epi32(a.half_s[1])}}.i;
}

static inline __m512 _mm512_cvtph_ps(__m256i x)
{
    const __m128i low = _mm256_castsi256_si128(x), high = _mm256_extracti128_si256(x, 1);
    return (union emulated){.half_s = {_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)}}.s;
}

/* A macro: AVX wants its rounding constant. */
#define _mm512_cvtps_ph(x, rounding)                                                                                   \
    __extension__({                                                                                                    \
        const union emulated emulated_a = {.s = (x)};                                                                  \
        _mm256_insertf128_si256(_mm256_castsi128_si256(_mm256_cvtps_ph(emulated_a.half_s[0], rounding)),               \
                                _mm256_cvtps_ph(emulated_a.half_s[1], rounding), 1);                                   \
    })

/* A macro: AVX wants its predicates constant. */
#define _mm512_cmp_ps_mask(x, y, predicate)                                                                            \
    __extension__({                                                                                                    \
        const union emulated a_ = {.s = (x)}, b_ = {.s = (y)};                                                         \
        const int low_ = _mm256_movemask_ps(_mm256_cmp_ps(a_.half_s[0], b_.half_s[0], predicate));                     \
        const int high_ = _mm256_movemask_ps(_mm256_cmp_ps(a_.half_s[1], b_.half_s[1], predicate));                    \
        (__mmask16)(high_ << 8 | low_);                                                                                \
    })

#ifdef QOBS_SLEEF
/* SLEEF's own AVX-512 code cannot run; its functions named cinz give the same bits on every CPU. */
static inline __m512 emulated_powf16(__m512 x, __m512 y)
{
    const union emulated a = {.s = x}, b = {.s = y};
    return (union emulated){.half_s = {Sleef_cinz_powf8_u10avx(a.half_s[0], b.half_s[0]),
                                       Sleef_cinz_powf8_u10avx(a.half_s[1], b.half_s[1])}}
        .s;
}
#define Sleef_cinz_powf16_u10avx512fnofma emulated_powf16
#endif

/* Lane by lane: `a` and `b` are the operands, n the lane. */

#define UNARY(name, tag, lane, lanes, expression)                                                                      \
    static inline emulated_##tag name(emulated_##tag x)                                                                \
    {                                                                                                                  \
        const union emulated a = {.tag = x};                                                                           \
        union emulated r;                                                                                              \
        EACH(lanes) r.lane[n] = expression;                                                                            \
        return r.tag;                                                                                                  \
    }
#define BINARY(name, tag, lane, lanes, expression)                                                                     \
    static inline emulated_##tag name(emulated_##tag x, emulated_##tag y)                                              \
    {                                                                                                                  \
        const union emulated a = {.tag = x}, b = {.tag = y};                                                           \
        union emulated r;                                                                                              \
        EACH(lanes) r.lane[n] = expression;                                                                            \
        return r.tag;                                                                                                  \
    }
#define SHIFT(name, lane, lanes, expression)                                                                           \
    static inline __m512i name(__m512i x, unsigned count)                                                              \
    {                                                                                                                  \
        const union emulated a = {.i = x};                                                                             \
        union emulated r;                                                                                              \
        EACH(lanes) r.lane[n] = expression;                                                                            \
        return r.i;                                                                                                    \
    }
#define MIN(lane) a.lane[n] < b.lane[n] ? a.lane[n] : b.lane[n]
#define MAX(lane) a.lane[n] > b.lane[n] ? a.lane[n] : b.lane[n]

BINARY(_mm512_or_si512, i, u64, 8, a.u64[n] | b.u64[n])
BINARY(_mm512_subs_epu16, i, u16, 32, (uint16_t)(a.u16[n] > b.u16[n] ? a.u16[n] - b.u16[n] : 0))
BINARY(_mm512_min_epi8, i, i8, 64, MIN(i8))
BINARY(_mm512_max_epi8, i, i8, 64, MAX(i8))
BINARY(_mm512_min_epi16, i, i16, 32, MIN(i16))
BINARY(_mm512_max_epi16, i, i16, 32, MAX(i16))
BINARY(_mm512_min_epi32, i, i32, 16, MIN(i32))
BINARY(_mm512_max_epi32, i, i32, 16, MAX(i32))
BINARY(_mm512_min_epu16, i, u16, 32, MIN(u16))
BINARY(_mm512_max_epu16, i, u16, 32, MAX(u16))
BINARY(_mm512_min_epu32, i, u32, 16, MIN(u32))
BINARY(_mm512_max_epu32, i, u32, 16, MAX(u32))
BINARY(_mm512_add_epi32, i, u32, 16, a.u32[n] + b.u32[n])
BINARY(_mm512_sub_epi32, i, u32, 16, a.u32[n] - b.u32[n])
SHIFT(_mm512_srli_epi16, u16, 32, (uint16_t)(count < 16 ? a.u16[n] >> count : 0))
SHIFT(_mm512_slli_epi32, u32, 16, count < 32 ? a.u32[n] << count : 0)
SHIFT(_mm512_srli_epi32, u32, 16, count < 32 ? a.u32[n] >> count : 0)
SHIFT(_mm512_srai_epi16, i16, 32, (int16_t)(a.i16[n] >> (count < 16 ? count : 15)))
SHIFT(_mm512_srai_epi32, i32, 16, a.i32[n] >> (count < 32 ? count : 31))

/* The bit of `table` at the number that the bits of a, b and c form. */
static inline __m512i _mm512_ternarylogic_epi64(__m512i a, __m512i b, __m512i c, int table)
{
    __m512i r = a ^ a;
    for (int i = 0; i < 8; i++)
        if (table >> i & 1)
            r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return r;
}
#define _mm512_ternarylogic_epi32 _mm512_ternarylogic_epi64

/* Masks */

#define COMPARE(name, mask, lanes, expression)                                                                         \
    static inline mask name(__m512i x, __m512i y)                                                                      \
    {                                                                                                                  \
        const union emulated a = {.i = x}, b = {.i = y};                                                               \
        uint32_t k = 0;                                                                                                \
        EACH(lanes) k |= (uint32_t)(expression) << n;                                                                  \
        return (mask)k;                                                                                                \
    }
COMPARE(_mm512_cmpge_epi16_mask, __mmask32, 32, a.i16[n] >= b.i16[n])
COMPARE(_mm512_cmpge_epi32_mask, __mmask16, 16, a.i32[n] >= b.i32[n])
COMPARE(_mm512_cmple_epu16_mask, __mmask32, 32, a.u16[n] <= b.u16[n])
COMPARE(_mm512_cmplt_epu16_mask, __mmask32, 32, a.u16[n] < b.u16[n])
COMPARE(_mm512_cmplt_epu32_mask, __mmask16, 16, a.u32[n] < b.u32[n])
COMPARE(_mm512_cmpeq_epi16_mask, __mmask32, 32, a.i16[n] == b.i16[n])
COMPARE(_mm512_cmpneq_epi32_mask, __mmask16, 16, a.i32[n] != b.i32[n])
COMPARE(_mm512_test_epi32_mask, __mmask16, 16, (a.u32[n] & b.u32[n]) != 0)

static inline __mmask32 _mm512_movepi16_mask(__m512i x)
{
    const union emulated a = {.i = x};
    uint32_t k = 0;
    EACH(32) k |= (uint32_t)a.u16[n] >> 15 << n;
    return k;
}

static inline __mmask16 _mm512_movepi32_mask(__m512i x)
{
    const union emulated a = {.i = x};
    uint32_t k = 0;
    EACH(16) k |= a.u32[n] >> 31 << n;
    return (__mmask16)k;
}

/* y where the mask is set, x elsewhere. */
#define BLEND(name, tag, lane, lanes, mask)                                                                            \
    static inline emulated_##tag name(mask k, emulated_##tag x, emulated_##tag y)                                      \
    {                                                                                                                  \
        const union emulated a = {.tag = x}, b = {.tag = y};                                                           \
        union emulated r;                                                                                              \
        EACH(lanes) r.lane[n] = BIT(k) ? b.lane[n] : a.lane[n];                                                        \
        return r.tag;                                                                                                  \
    }
BLEND(_mm512_mask_blend_epi8, i, u8, 64, __mmask64)
BLEND(_mm512_mask_blend_epi16, i, u16, 32, __mmask32)
BLEND(_mm512_mask_blend_epi32, i, u32, 16, __mmask16)
BLEND(_mm512_mask_blend_epi64, i, u64, 8, __mmask8)
BLEND(_mm512_mask_blend_ps, s, u32, 16, __mmask16)

static inline __m512i _mm512_mask_mov_epi16(__m512i old, __mmask32 k, __m512i a)
{
    return _mm512_mask_blend_epi16(k, old, a);
}

static inline __m512i _mm512_mask_add_epi32(__m512i old, __mmask16 k, __m512i a, __m512i b)
{
    return _mm512_mask_blend_epi32(k, old, _mm512_add_epi32(a, b));
}
static inline __m512i _mm512_maskz_mov_epi16(__mmask32 k, __m512i a) { return _mm512_mask_blend_epi16(k, a ^ a, a); }
static inline __m512 _mm512_maskz_mov_ps(__mmask16 k, __m512 a) { return _mm512_mask_blend_ps(k, (__m512){0}, a); }

static inline __m512i _mm512_mask_add_epi16(__m512i old, __mmask32 k, __m512i x, __m512i y)
{
    union emulated a = {.i = x}, b = {.i = y};
    EACH(32) a.u16[n] = (uint16_t)(a.u16[n] + b.u16[n]);
    return _mm512_mask_blend_epi16(k, old, a.i);
}

static inline __m512i _mm512_mask_sub_epi16(__m512i old, __mmask32 k, __m512i x, __m512i y)
{
    union emulated a = {.i = x}, b = {.i = y};
    EACH(32) a.u16[n] = (uint16_t)(a.u16[n] - b.u16[n]);
    return _mm512_mask_blend_epi16(k, old, a.i);
}

static inline __m512i _mm512_mask_min_epi16(__m512i old, __mmask32 k, __m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(k, old, _mm512_min_epi16(a, b));
}

static inline __m512i _mm512_mask_max_epi16(__m512i old, __mmask32 k, __m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(k, old, _mm512_max_epi16(a, b));
}

/* Lanes that change places */

/* The lanes of the mask, lowest first, then zeros. */
static inline __m512i _mm512_maskz_compress_epi32(__mmask16 k, __m512i x)
{
    const union emulated a = {.i = x};
    union emulated r = {.i = {0}};
    unsigned used = 0;
    EACH(16) if (BIT(k)) r.u32[used++] = a.u32[n];
    return r.i;
}

static inline __m512 _mm512_maskz_compress_ps(__mmask16 k, __m512 a)
{
    return (__m512)_mm512_maskz_compress_epi32(k, (__m512i)a);
}

/* The indices come first; of each only the low bits count. */
BINARY(_mm512_permutexvar_epi16, i, u16, 32, b.u16[a.u16[n] % 32])
BINARY(_mm512_permutexvar_epi32, i, u32, 16, b.u32[a.u32[n] % 16])
BINARY(_mm512_permutexvar_epi64, i, u64, 8, b.u64[a.u64[n] % 8])

static inline __m512 _mm512_permutexvar_ps(__m512i index, __m512 a)
{
    return (__m512)_mm512_permutexvar_epi32(index, (__m512i)a);
}

static inline __m512i _mm512_permutex2var_epi64(__m512i x, __m512i index, __m512i y)
{
    const union emulated a = {.i = x}, b = {.i = y}, from = {.i = index};
    union emulated r;
    EACH(8) r.u64[n] = from.u64[n] & 8 ? b.u64[from.u64[n] % 8] : a.u64[from.u64[n] % 8];
    return r.i;
}

static inline __m512 _mm512_maskz_permutex2var_ps(__mmask16 k, __m512 x, __m512i index, __m512 y)
{
    const union emulated a = {.s = x}, b = {.s = y}, from = {.i = index};
    union emulated r;
    EACH(16) r.u32[n] = !BIT(k) ? 0 : from.u32[n] & 16 ? b.u32[from.u32[n] % 16] : a.u32[from.u32[n] % 16];
    return r.s;
}

/* Within lanes of 128 bits: 16-byte shuffles by an index whose top bit makes 0, and by two bits of a constant for
 * each lane of 32 bits. */
static inline __m512i _mm512_shuffle_epi8(__m512i x, __m512i y)
{
    const union emulated a = {.i = x}, b = {.i = y};
    union emulated r;
    EACH(64) r.u8[n] = b.u8[n] & 0x80 ? 0 : a.u8[n / 16 * 16 + b.u8[n] % 16];
    return r.i;
}

static inline __m512i _mm512_mask_shuffle_epi8(__m512i old, __mmask64 k, __m512i x, __m512i y)
{
    return _mm512_mask_blend_epi8(k, old, _mm512_shuffle_epi8(x, y));
}

static inline __m512 _mm512_shuffle_ps(__m512 x, __m512 y, int order)
{
    const union emulated a = {.s = x}, b = {.s = y};
    union emulated r;
    EACH(16) r.u32[n] = (n % 4 < 2 ? a : b).u32[n / 4 * 4 + ((unsigned)order >> 2 * (n % 4) & 3)];
    return r.s;
}

static inline __m512 _mm512_permute_ps(__m512 a, int order) { return _mm512_shuffle_ps(a, a, order); }

/* One bit of the constant for each lane of 64 bits. */
static inline __m512d _mm512_shuffle_pd(__m512d x, __m512d y, int order)
{
    const union emulated a = {.d = x}, b = {.d = y};
    union emulated r;
    EACH(8) r.u64[n] = (n % 2 ? b : a).u64[n / 2 * 2 + ((unsigned)order >> n & 1)];
    return r.d;
}

/* Two bits of the constant for each lane of 128 bits. */
static inline __m512i _mm512_shuffle_i64x2(__m512i x, __m512i y, int order)
{
    const union emulated a = {.i = x}, b = {.i = y};
    union emulated r;
    EACH(4) r.quarter_i[n] = (n < 2 ? a : b).quarter_i[(unsigned)order >> 2 * n & 3];
    return r.i;
}

static inline __m512 _mm512_shuffle_f32x4(__m512 a, __m512 b, int order)
{
    return (__m512)_mm512_shuffle_i64x2((__m512i)a, (__m512i)b, order);
}

/* The lower or upper halves of lanes of 128 bits, which hold `in` elements, interleaved. */
#define UNPACKED(lane, in, upper) (n % 2 ? b : a).lane[n / (in) * (in) + (upper) * (in) / 2 + n % (in) / 2]
BINARY(_mm512_unpacklo_epi16, i, u16, 32, UNPACKED(u16, 8, 0))
BINARY(_mm512_unpackhi_epi16, i, u16, 32, UNPACKED(u16, 8, 1))
BINARY(_mm512_unpacklo_epi32, i, u32, 16, UNPACKED(u32, 4, 0))
BINARY(_mm512_unpackhi_epi32, i, u32, 16, UNPACKED(u32, 4, 1))
BINARY(_mm512_unpacklo_epi64, i, u64, 8, UNPACKED(u64, 2, 0))
BINARY(_mm512_unpackhi_epi64, i, u64, 8, UNPACKED(u64, 2, 1))

/* Widths and reductions */

/* Eight words of a and then eight of b in each lane of 128 bits, as bytes with or without a sign. */
static inline __m512i _mm512_packs_epi32(__m512i x, __m512i y)
{
    const union emulated a = {.i = x}, b = {.i = y};
    union emulated r;
    EACH(32)
    {
        const int32_t number = (n % 8 < 4 ? a : b).i32[n / 8 * 4 + n % 4];
        r.i16[n] = (int16_t)(number < INT16_MIN ? INT16_MIN : number > INT16_MAX ? INT16_MAX : number);
    }
    return r.i;
}

static inline __m512i _mm512_packs_epi16(__m512i x, __m512i y)
{
    const union emulated a = {.i = x}, b = {.i = y};
    union emulated r;
    EACH(64)
    {
        const int16_t word = (n % 16 < 8 ? a : b).i16[n / 16 * 8 + n % 8];
        r.i8[n] = (int8_t)(word < -128 ? -128 : word > 127 ? 127 : word);
    }
    return r.i;
}

static inline __m512i _mm512_packus_epi16(__m512i x, __m512i y)
{
    const union emulated a = {.i = x}, b = {.i = y};
    union emulated r;
    EACH(64)
    {
        const int16_t word = (n % 16 < 8 ? a : b).i16[n / 16 * 8 + n % 8];
        r.u8[n] = (uint8_t)(word < 0 ? 0 : word > 255 ? 255 : word);
    }
    return r.i;
}

static inline __m512i _mm512_cvtepu8_epi32(__m128i x)
{
    const union emulated a = {.quarter_i = {x}};
    union emulated r;
    EACH(16) r.u32[n] = a.u8[n];
    return r.i;
}

static inline __m512i _mm512_cvtepu16_epi32(__m256i x)
{
    const union emulated a = {.half_i = {x, x}};
    union emulated r;
    EACH(16) r.u32[n] = a.u16[n];
    return r.i;
}

static inline __m256i _mm512_cvtepi32_epi16(__m512i x)
{
    const union emulated a = {.i = x};
    union emulated r;
    EACH(16) r.u16[n] = (uint16_t)a.u32[n];
    return r.half_i[0];
}

static inline __m128i _mm512_cvtepi32_epi8(__m512i x)
{
    const union emulated a = {.i = x};
    union emulated r;
    EACH(16) r.u8[n] = (uint8_t)a.u32[n];
    return r.quarter_i[0];
}

static inline int32_t _mm512_reduce_min_epi32(__m512i x)
{
    const union emulated a = {.i = x};
    int32_t min = a.i32[0];
    EACH(16) min = a.i32[n] < min ? a.i32[n] : min;
    return min;
}

#undef BINARY
#undef BIT
#undef BLEND
#undef COMPARE
#undef EACH
#undef MAX
#undef MIN
#undef SHIFT
#undef UNARY
#undef UNPACKED

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantizes BF16 by the tables of number/code_tables.h, for templates/codes_lanes.inl.h, whose contract holds.
 *
 * Limits: int4 is -8 to 7 and e4m3 -448 to 448; BF16 scales from 2^-100 to 2^100, for e4m3 to 1; quotients are rounded
 * to BF16; there are no zero points. */
#pragma once

#include "avx512/simd.h"
#include "kernels/kernel_quantize.h"
#include "number/code_tables.h"
#include "number/number.h"

#define CODE_LOOKUP

enum {
    TABLE_PAIRS_STEP = 128,     /* elements */
    TABLE_PREFETCH_BYTES = 8192 /* into L2; the hardware prefetches too little between loads of tables */
};

/* The tables for codes between the limits. NULL: there are none, or another thread is still making them. */
ALWAYS_INLINE const struct code_tables *tables_of(int kind, float quant_min, float quant_max)
{
    const float max = kind == QOBS_CODE_INTEGER ? 7 : 448, min = kind == QOBS_CODE_INTEGER ? -8 : -448;
    return kind != QOBS_CODE_E2M1 && quant_min == min && quant_max == max ? qobs_code_tables() : NULL;
}

/* True if there is a table for the scale. */
ALWAYS_INLINE bool may_look_up(int kind, float scale)
{
    const float max = kind == QOBS_CODE_INTEGER ? 0x1p100f : 1;
    return scale >= 0x1p-100f && scale <= max;
}

/* Constants of a loop over scales. */
struct table_constants {
    const struct code_tables *tables;
    i16x32 magnitude, nan, small_last, fraction, offset;
};

ALWAYS_INLINE struct table_constants table_constants(const struct code_tables *tables)
{
    return (struct table_constants){
        .tables = tables,
        .magnitude = i16x32_constant(0x7fff),
        .nan = i16x32_constant(0x7f81), /* the first NaN */
        .small_last = i16x32_constant(SMALL_LAST),
        .fraction = i16x32_constant(15),
        .offset = i16x32_constant(8 * 16),
    };
}

/* The tables of one scale. e4m3 has `small` for its subnormal numbers. */
struct code_lookup {
    struct table_constants c;
    i16x32 small, small_origin, normal, normal_origin, most;
};

ALWAYS_INLINE struct code_lookup code_lookup_of(const struct table_constants *c, int kind, float scale)
{
    const uint32_t bits = bits_of_float(scale) >> 16;
    const struct code_tables *t = c->tables;
    const uint32_t i = bits % CODE_TABLES;
    const int binades = (int)(bits / CODE_BINADE * CODE_BINADE) - 127 * CODE_BINADE;
    return (struct code_lookup){
        .c = *c,
        .small = i16x32_load(t->small[i]),
        .small_origin =
            i16x32_splat((int16_t)(t->small_origin[i] + binades - (kind == QOBS_CODE_E4M3 ? 9 * CODE_BINADE : 0))),
        .normal = i16x32_load(t->e4m3[i]),
        .normal_origin = i16x32_splat((int16_t)(t->e4m3_origin[i] + binades)),
        .most = i16x32_splat(t->e4m3_most[i]),
    };
}

/* The sum of entry and distance. */
ALWAYS_INLINE i16x32 small_sum(const struct code_lookup *t, i16x32 magnitude)
{
    const i16x32 distance = i16x32_min(i16x32_excess(magnitude, t->small_origin), t->c.small_last);
    return i16x32_permute(t->small, i16x32_shift_right(distance, SMALL_BUCKET)) + distance;
}

/* (15 - sum) >> 4 is -(sum >> 4). */
ALWAYS_INLINE i16x32 int4_codes(const struct code_lookup *t, i16x32 x)
{
    const i16x32 magnitude = x & t->c.magnitude, sum = small_sum(t, magnitude);
    const i16x32 signed_sum = i16x32_sub_if(i16x32_negative(x), sum, t->c.fraction, sum);
    const i16x32_mask number = i16x32_above(t->c.nan, magnitude);
    return i16x32_min(i16x32_if(number, signed_sum >> 4), i16x32_splat(7));
}

/* Codes without signs. *missing: lanes that are NaN or below all normal numbers. */
ALWAYS_INLINE i16x32 e4m3_normal_codes(const struct code_lookup *t, i16x32 x, i16x32_mask *missing)
{
    const i16x32 distance = (x & t->c.magnitude) - t->normal_origin; /* without sign: also large if x is too small */
    *missing = i16x32_above(distance, i16x32_splat(0x7f80) - t->normal_origin);
    const i16x32 limited = i16x32_min(distance, t->most);
    return i16x32_shift_right(i16x32_permute(t->normal, i16x32_shift_right(limited, E4M3_BUCKET)) + limited, 4);
}

/* The codes of the missing lanes, the others as they are. The sign of NaN is cleared. */
ALWAYS_INLINE i16x32 e4m3_other_codes(const struct code_lookup *t, i16x32 *x, i16x32_mask missing, i16x32 code)
{
    const i16x32 magnitude = *x & t->c.magnitude;
    const i16x32_mask number = i16x32_above(t->c.nan, magnitude);
    code = i16x32_choose(~missing, code, i16x32_shift_right(small_sum(t, magnitude), 4));
    *x = i16x32_if(number, *x);
    return i16x32_choose(number, code, i16x32_splat(0x7f));
}

/* The codes of 64 elements; each half has its tables. */
ALWAYS_INLINE void table_codes(const struct code_lookup *t0, const struct code_lookup *t1, int kind,
                               const unsigned char *from, unsigned char *to)
{
    i16x32 x0 = i16x32_load(from), x1 = i16x32_load(from + sizeof x0);
    if (kind == QOBS_CODE_INTEGER) {
        i16x32_store_signed(to, int4_codes(t0, x0), int4_codes(t1, x1));
        return;
    }
    i16x32_mask missing0, missing1;
    i16x32 code0 = e4m3_normal_codes(t0, x0, &missing0), code1 = e4m3_normal_codes(t1, x1, &missing1);
    if (missing0 | missing1) {
        code0 = e4m3_other_codes(t0, &x0, missing0, code0);
        code1 = e4m3_other_codes(t1, &x1, missing1, code1);
    }
    i16x32_store_with_signs(to, code0, code1, x0, x1);
}

/* Int4 codes and 8 as words whose high 12 bits they are; 16 stands for 15, to which storing as bytes limits it. */
ALWAYS_INLINE i16x32 int4_words(const struct code_lookup *t, i16x32 x)
{
    const i16x32 magnitude = x & t->c.magnitude, sum = small_sum(t, magnitude);
    const i16x32 signed_sum = i16x32_sub_if(i16x32_negative(x), sum, t->c.fraction, sum);
    return i16x32_add_if(i16x32_above(t->c.nan, magnitude), t->c.offset, signed_sum);
}

/* Int4 codes in pairs, each plus 8, as QOBS_QUANTIZE_PAIRS has them; length is a multiple of TABLE_PAIRS_STEP. Returns
 * the number of runs that it has quantized: it stops at a scale that has no table. */
static __attribute__((noinline)) size_t table_pairs(const struct code_tables *tables, const unsigned char *x,
                                                    ptrdiff_t x_stride, unsigned char *codes, ptrdiff_t code_stride,
                                                    size_t runs, size_t length, const float *scale,
                                                    ptrdiff_t qparam_stride)
{
    const struct table_constants c = table_constants(tables);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++) {
        if (!may_look_up(QOBS_CODE_INTEGER, scale[i * qparam_stride]))
            return (size_t)i;
        const struct code_lookup t = code_lookup_of(&c, QOBS_CODE_INTEGER, scale[i * qparam_stride]);
        for (size_t j = 0; j < length; j += TABLE_PAIRS_STEP) {
            i16x32 words[4];
            for (size_t k = 0; k < 4; k++) {
                const unsigned char *from = x + i * x_stride + 2 * j + k * sizeof *words;
                __builtin_prefetch(from + TABLE_PREFETCH_BYTES, 0, 2);
                words[k] = int4_words(&t, i16x32_load(from));
            }
            i16x32_store_high_halves(codes + i * code_stride + j / 2, words);
        }
    }
    return runs;
}

/* ---- Numbers of codes -------------------------------------------------------------------------------------------- */

/* The numbers of int4 codes in the order of their low 4 bits. */
ALWAYS_INLINE f32x16 int4_numbers(void) { return (f32x16){0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1}; }

/* The numbers of 16 e4m3, divided by E4M3_NUMBER_SCALE: as F16 they have the same digits and another bias. A code of
 * NaN counts as a number. */
#define E4M3_NUMBER_SCALE 256
ALWAYS_INLINE f32x16 e4m3_numbers(const unsigned char *codes)
{
    const __m256i words = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)codes)), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(words, _mm256_set1_epi16((short)0xbfff)));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of quantize.inl.h. Every function with a parameter `how` is inlined with a constant. */

#define element NATIVE(element)
#define store_quiet NATIVE(store_quiet)
#define round_dtype NATIVE(round)

/* Constants that remove code a dtype does not need. */
#define IS_DOUBLE (sizeof(stored) == 8)
#define IS_SINGLE (sizeof(stored) == 4)
#define IS_HALF (sizeof(stored) == 2)

struct NATIVE(quantizer) {
    real quant_min, quant_max;
    double exact_min, exact_max;
    struct grid_float grid;
    struct grid_double wide;
    bool through_float;
    bool saturates; /* bytes limit the codes, and elements are bounded */
    bool next_rows; /* as in struct quantizer */
};

ALWAYS_INLINE real NATIVE(round_if_native)(int how, real v) { return how & IN_FLOAT ? v : round_dtype(v); }

ALWAYS_INLINE real NATIVE(grid)(const struct NATIVE(quantizer) * q, int how, real v)
{
    if (IS_DOUBLE) {
        const double x = q->through_float ? (double)(float)v : (double)v;
        return (real)(how & INTEGER_GRID ? grid_round_integer_double(x) : grid_round_double(q->wide, x));
    }
    if (how & INTEGER_GRID)
        return (real)grid_round_integer_float((float)v);
    if (how & IN_DOUBLE)
        return NATIVE(round_if_native)(how, (real)grid_round_double(q->wide, (double)v));
    return (real)grid_round_float(q->grid, (float)v);
}

/* x / scale + zero point, clamped to the limits of quantized numbers; compressed-tensors. */
ALWAYS_INLINE real NATIVE(scaled)(const struct NATIVE(quantizer) * q, int how, stored x, real scale,
                                  real zero_point_add)
{
    real v = NATIVE(round_if_native)(how, load(x) / scale);
    if (how & ZERO_POINT)
        v = NATIVE(round_if_native)(how, v + zero_point_add);
    v = v < q->quant_min ? q->quant_min : v;
    return v > q->quant_max ? q->quant_max : v;
}

/* (v - zero point) * scale, v on the grid. F64 with a scale in float comes back in float. */
ALWAYS_INLINE stored NATIVE(dequantize)(int how, real v, real scale, real zero_point_sub)
{
    if (IS_DOUBLE && how & IN_FLOAT)
        return store_quiet((real)(((float)v - (float)zero_point_sub) * (float)scale));
    if (how & ZERO_POINT)
        v = NATIVE(round_if_native)(how, v - zero_point_sub);
    return store_quiet(v * scale);
}

/* compressed-tensors: (round(clamp(x / scale + zero point)) - zero point) * scale. Numbers on the grid are numbers
 * of the dtype, so they need no rounding to it. */
ALWAYS_INLINE stored NATIVE(quantize)(const struct NATIVE(quantizer) * q, int how, stored x, real scale,
                                      real zero_point_add, real zero_point_sub)
{
    const real v = NATIVE(grid)(q, how, NATIVE(scaled)(q, how, x, scale, zero_point_add));
    return NATIVE(dequantize)(how, v, scale, zero_point_sub);
}

/* torch: (clamp(zero point + rint(x * (1 / scale))) - zero point) * scale in float, as F64 in double but for 1 /
 * scale and the last product. Clamping before rounding is the same, the limits being integers, and leaves only
 * numbers that adding 1.5 * 2^23 rounds to integers. NaN is not above the lower limit and becomes it; zero has no
 * sign: it was an integer. */
ALWAYS_INLINE stored NATIVE(quantize_torch)(const struct NATIVE(quantizer) * q, int how, stored x, real scale,
                                            real zero_point)
{
    const float inverse = 1.0f / (float)scale;
    const real t = load(x) * inverse;
    if (!IS_DOUBLE && how & IN_DOUBLE) { /* the sum with the zero point may round */
        const float sum = (float)zero_point + (float)grid_round_double(q->wide, (double)t);
        double v = (double)sum > q->exact_min ? (double)sum : q->exact_min;
        v = v < q->exact_max ? v : q->exact_max;
        return store_quiet((float)(v - (double)zero_point) * (float)scale);
    }
    const real quant_min = (real)(q->exact_min - (double)zero_point),
               quant_max = (real)(q->exact_max - (double)zero_point);
    const real shift = IS_DOUBLE ? (real)0x1.8p52 : (real)0x1.8p23f;
    real v = t > quant_min ? t : quant_min;
    v = v < quant_max ? v : quant_max;
    v = (v + shift) - shift;
    return store_quiet((real)((float)v * (float)scale));
}

ALWAYS_INLINE stored NATIVE(one)(const struct NATIVE(quantizer) * q, int how, stored x, real scale, real zero_point_add,
                                 real zero_point_sub)
{
    return how & TORCH ? NATIVE(quantize_torch)(q, how, x, scale, zero_point_sub)
                       : NATIVE(quantize)(q, how, x, scale, zero_point_add, zero_point_sub);
}

ALWAYS_INLINE void NATIVE(rows)(const struct NATIVE(quantizer) * q, int how, const unsigned char *x, ptrdiff_t x_stride,
                                unsigned char *out, ptrdiff_t out_stride, size_t runs, size_t length,
                                const struct qparam_pair *qparams, ptrdiff_t qparam_stride)
{
    const real *scale = qparams->scale, *zero_point_add = qparams->zero_point_add,
               *zero_point_sub = qparams->zero_point_sub;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++) {
        const element *from = (const element *)(x + i * x_stride);
        element *to = (element *)(out + i * out_stride);
        /* -0 added and +0 taken away change nothing, not even the sign of a zero. */
        const real s = scale[i * qparam_stride], a = zero_point_add ? zero_point_add[i * qparam_stride] : (real)-0.0,
                   r = zero_point_sub ? zero_point_sub[i * qparam_stride] : 0;
        NO_DEPENDENCE
        for (size_t j = 0; j < length; j++)
            to[j] = NATIVE(one)(q, how, from[j], s, a, r);
    }
}

ALWAYS_INLINE void NATIVE(columns)(const struct NATIVE(quantizer) * q, int how, const unsigned char *x,
                                   ptrdiff_t x_stride, unsigned char *out, ptrdiff_t out_stride, size_t rows,
                                   size_t columns, const struct qparam_pair *qparams)
{
    const real *scale = qparams->scale, *zero_point_add = qparams->zero_point_add,
               *zero_point_sub = qparams->zero_point_sub;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)rows; i++) {
        const element *from = (const element *)(x + i * x_stride);
        element *to = (element *)(out + i * out_stride);
        NO_DEPENDENCE
        for (size_t j = 0; j < columns; j++)
            to[j] = NATIVE(one)(q, how, from[j], scale[j], zero_point_add[j], zero_point_sub[j]);
    }
}

/* Fills q and returns the variant for this dtype: F32 is computed in float in any case, F64 in double. */
static int NATIVE(prepare)(struct NATIVE(quantizer) * q, const struct quantizer *quantizer, bool has_zero_point)
{
    const bool native = !quantizer->in_float && !quantizer->torch;
    *q = (struct NATIVE(quantizer)){
        .quant_min = native ? round_dtype((real)quantizer->quant_min) : (real)quantizer->quant_min,
        .quant_max = native ? round_dtype((real)quantizer->quant_max) : (real)quantizer->quant_max,
        .exact_min = quantizer->quant_min,
        .exact_max = quantizer->quant_max,
        .grid = {quantizer->min_normal, quantizer->shifter},
        .wide = {quantizer->wide_min_normal, quantizer->wide_shifter},
        .through_float = quantizer->through_float};
    const bool in_double = !IS_DOUBLE && (quantizer->in_double || isinf(q->quant_max));
    const double floor = IS_DOUBLE ? quantizer->wide_min_normal : (double)quantizer->min_normal;
    const bool integers = !in_double && floor >= fmax(quantizer->quant_max, -quantizer->quant_min);
    if (quantizer->torch)
        return TORCH | ZERO_POINT | (in_double ? IN_DOUBLE : 0);
    return (has_zero_point || in_double ? ZERO_POINT : 0) | (in_double ? IN_DOUBLE : 0) |
           (quantizer->in_float && !IS_SINGLE ? IN_FLOAT : 0) | (integers ? INTEGER_GRID : 0);
}

/* Little work an element: F32 to integers. */
#define IS_LIGHT(how) (IS_SINGLE && ((how) & INTEGER_GRID || (how) == (TORCH | ZERO_POINT)))

/* All variants of prepare() for the dtypes that have them. */
#define EACH_VARIANT(VARIANT)                                                                                          \
    VARIANT(true, 0)                                                                                                   \
    VARIANT(true, ZERO_POINT)                                                                                          \
    VARIANT(true, TORCH | ZERO_POINT)                                                                                  \
    VARIANT(!IS_DOUBLE, ZERO_POINT | IN_DOUBLE)                                                                        \
    VARIANT(!IS_DOUBLE, TORCH | ZERO_POINT | IN_DOUBLE)                                                                \
    VARIANT(true, INTEGER_GRID)                                                                                        \
    VARIANT(true, INTEGER_GRID | ZERO_POINT)                                                                           \
    VARIANT(!IS_SINGLE, INTEGER_GRID | IN_FLOAT)                                                                       \
    VARIANT(!IS_SINGLE, INTEGER_GRID | IN_FLOAT | ZERO_POINT)                                                          \
    VARIANT(!IS_SINGLE, IN_FLOAT)                                                                                      \
    VARIANT(!IS_SINGLE, IN_FLOAT | ZERO_POINT)                                                                         \
    VARIANT(IS_HALF, IN_FLOAT | ZERO_POINT | IN_DOUBLE)

QOBS_FAKE_QUANTIZE_ROWS(ENTRY(NATIVE(qobs_fake_quantize_rows)))
{
    CLEARS_UPPER_HALVES
    struct NATIVE(quantizer) q;
    const int how = NATIVE(prepare)(&q, quantizer, qparams->zero_point_add != NULL);
    DELEGATE_TO_AVX2(prefer_avx2_for_aliased(IS_LIGHT(how), x, out), NATIVE(qobs_fake_quantize_rows), quantizer, x,
                     x_stride, out, out_stride, runs, length, qparams, qparam_stride)
#define VARIANT(exists, variant)                                                                                       \
    if ((exists) && how == (variant))                                                                                  \
        NATIVE(rows)(&q, variant, x, x_stride, out, out_stride, runs, length, qparams, qparam_stride);                 \
    else
    EACH_VARIANT(VARIANT) NO_VARIANT;
#undef VARIANT
}

QOBS_FAKE_QUANTIZE_COLUMNS(ENTRY(NATIVE(qobs_fake_quantize_columns)))
{
    CLEARS_UPPER_HALVES
    struct NATIVE(quantizer) q;
    const int how = NATIVE(prepare)(&q, quantizer, true);
    DELEGATE_TO_AVX2(prefer_avx2_for_aliased(IS_LIGHT(how), x, out), NATIVE(qobs_fake_quantize_columns), quantizer, x,
                     x_stride, out, out_stride, rows, columns, qparams)
/* Columns always have a zero point. */
#define VARIANT(exists, variant)                                                                                       \
    if ((exists) && (variant) & ZERO_POINT && how == (variant))                                                        \
        NATIVE(columns)(&q, variant, x, x_stride, out, out_stride, rows, columns, qparams);                            \
    else
    EACH_VARIANT(VARIANT) NO_VARIANT;
#undef VARIANT
}

#include "templates/codes_native.inl.h"

#if MANTISSA_BITS != 52
#include "templates/codes_lanes.inl.h"
#include "templates/codes_product.inl.h"
#include "templates/q8_blocks.inl.h"
#undef lanes_load
#undef lanes_round
#endif

/* ---- Pairs ------------------------------------------------------------------------------------------------------- */

QOBS_QUANTIZE_PAIRS(ENTRY(NATIVE(qobs_quantize_pairs)))
{
    CLEARS_UPPER_HALVES
    unsigned char unpacked[QOBS_PAIR_CODES];
    size_t first = 0;
#if MANTISSA_BITS == 7 && defined CODE_LOOKUP
    const struct code_tables *tables = NULL;
    if (kind == QOBS_CODE_INTEGER && offset == 8 && !sum && !qparams->zero_point_add && !quantizer->in_float &&
        length % TABLE_PAIRS_STEP == 0)
        tables = tables_of(kind, (float)quantizer->quant_min, (float)quantizer->quant_max);
    if (tables)
        first = table_pairs(tables, x, x_stride, codes, code_stride, runs, length, qparams->scale, qparam_stride);
#endif
    const real *const arrays[] = {qparams->scale, qparams->zero_point_add, qparams->zero_point_sub};
    const ptrdiff_t at = (ptrdiff_t)first * qparam_stride;
    const struct qparam_pair remainder = {arrays[0] + at, arrays[1] ? arrays[1] + at : NULL,
                                          arrays[2] ? arrays[2] + at : NULL};
    if (first == runs)
        return;
    x = (const unsigned char *)x + (ptrdiff_t)first * x_stride;
#if MANTISSA_BITS != 52
    if (quantizer->product)
        ENTRY(NATIVE(qobs_product_rows))
        (quantizer, kind, x, x_stride, unpacked, (ptrdiff_t)length, runs - first, length, remainder.scale, NULL,
         qparam_stride);
    else
#endif
        ENTRY(NATIVE(qobs_quantize_rows))
        (quantizer, kind, x, x_stride, unpacked, (ptrdiff_t)length, runs - first, length, &remainder, qparam_stride,
         sum);
    codes += (ptrdiff_t)first * code_stride;
    if (code_stride == (ptrdiff_t)length / 2) {
        ENTRY(qobs_pack_pairs)(unpacked, (runs - first) * length / 2, offset, codes);
        return;
    }
    for (size_t i = 0; i < runs - first; i++)
        ENTRY(qobs_pack_pairs)(unpacked + i * length, length / 2, offset, codes + (ptrdiff_t)i * code_stride);
}

#undef IS_LIGHT
#undef EACH_VARIANT
#undef IS_HALF
#undef IS_SINGLE
#undef IS_DOUBLE
#undef element
#undef store_quiet
#undef round_dtype

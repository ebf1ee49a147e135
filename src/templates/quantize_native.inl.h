/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of quantize.inl.h. Every function with a parameter `how` is inlined with a constant one. */

#define element NATIVE(element)
#define store_quiet NATIVE(store_quiet)
#define round_dtype NATIVE(round)

/* What no dtype needs is constant false and leaves no code. */
#define IS_DOUBLE (sizeof(stored) == 8)
#define IS_SINGLE (sizeof(stored) == 4)
#define IS_HALF (sizeof(stored) == 2)

struct NATIVE(quantizer) {
    real quant_min, quant_max;
    double whole_least, whole_greatest;
    struct grid_float grid;
    struct grid_double wide;
    bool through_float;
};

ALWAYS_INLINE real NATIVE(round_if_native)(int how, real v)
{
    return how & IN_FLOAT ? v : round_dtype(v);
}

ALWAYS_INLINE real NATIVE(grid)(const struct NATIVE(quantizer) *q, int how, real v)
{
    if (IS_DOUBLE) {
        const double x = q->through_float ? (double)(float)v : (double)v;
        return (real)(how & WHOLE ? grid_round_integer_double(x) : grid_round_double(q->wide, x));
    }
    if (how & WHOLE)
        return (real)grid_round_integer_float((float)v);
    if (how & IN_DOUBLE)
        return NATIVE(round_if_native)(how, (real)grid_round_double(q->wide, (double)v));
    return (real)grid_round_float(q->grid, (float)v);
}

/* compressed-tensors: (round(clamp(x / scale + zero point)) - zero point) * scale. What is on the grid is a number of the
 * dtype, so it needs no rounding to it. F64 with a scale in float comes back in float. */
ALWAYS_INLINE stored NATIVE(quantize)(const struct NATIVE(quantizer) * q, int how, stored x, real scale, real zero_point_add,
                                      real zero_point_sub)
{
    real v = NATIVE(round_if_native)(how, load(x) / scale);
    if (how & ZERO_POINT)
        v = NATIVE(round_if_native)(how, v + zero_point_add);
    v = v < q->quant_min ? q->quant_min : v;
    v = v > q->quant_max ? q->quant_max : v;
    v = NATIVE(grid)(q, how, v);
    if (IS_DOUBLE && how & IN_FLOAT)
        return store_quiet((real)(((float)v - (float)zero_point_sub) * (float)scale));
    if (how & ZERO_POINT)
        v = NATIVE(round_if_native)(how, v - zero_point_sub);
    return store_quiet(v * scale);
}

/* torch: (clamp(zero point + rint(x * (1 / scale))) - zero point) * scale in float, as F64 in double but for 1 / scale and
 * the last product. Clamping before rounding is the same, the limits being integers, and leaves only numbers that adding
 * 1.5 * 2^23 rounds to integers. NaN is not above the lower limit and becomes it; zero has no sign: it was an integer. */
ALWAYS_INLINE stored NATIVE(quantize_torch)(const struct NATIVE(quantizer) * q, int how, stored x, real scale,
                                            real zero_point)
{
    const float inverse = 1.0f / (float)scale;
    const real t = load(x) * inverse;
    if (!IS_DOUBLE && how & IN_DOUBLE) { /* the sum with the zero point may round */
        const float sum = (float)zero_point + (float)grid_round_double(q->wide, (double)t);
        double v = (double)sum > q->whole_least ? (double)sum : q->whole_least;
        v = v < q->whole_greatest ? v : q->whole_greatest;
        return store_quiet((float)(v - (double)zero_point) * (float)scale);
    }
    const real quant_min = (real)(q->whole_least - (double)zero_point),
               quant_max = (real)(q->whole_greatest - (double)zero_point);
    const real shift = IS_DOUBLE ? (real)0x1.8p52 : (real)0x1.8p23f;
    real v = t > quant_min ? t : quant_min;
    v = v < quant_max ? v : quant_max;
    v = (v + shift) - shift;
    return store_quiet((real)((float)v * (float)scale));
}

ALWAYS_INLINE stored NATIVE(one)(const struct NATIVE(quantizer) *q, int how, stored x, real scale, real zero_point_add, real zero_point_sub)
{
    return how & TORCH ? NATIVE(quantize_torch)(q, how, x, scale, zero_point_sub)
                       : NATIVE(quantize)(q, how, x, scale, zero_point_add, zero_point_sub);
}

ALWAYS_INLINE void NATIVE(rows)(const struct NATIVE(quantizer) *q, int how, const unsigned char *x, ptrdiff_t x_stride,
                                unsigned char *out, ptrdiff_t out_stride, size_t runs, size_t length,
                                const struct qobs_qparams *qparams, ptrdiff_t qparam_stride)
{
    const real *scale = qparams->scale, *zero_point_add = qparams->zero_point_add, *zero_point_sub = qparams->zero_point_sub;
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

ALWAYS_INLINE void NATIVE(columns)(const struct NATIVE(quantizer) *q, int how, const unsigned char *x, ptrdiff_t x_stride,
                                   unsigned char *out, ptrdiff_t out_stride, size_t rows, size_t columns,
                                   const struct qobs_qparams *qparams)
{
    const real *scale = qparams->scale, *zero_point_add = qparams->zero_point_add, *zero_point_sub = qparams->zero_point_sub;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)rows; i++) {
        const element *from = (const element *)(x + i * x_stride);
        element *to = (element *)(out + i * out_stride);
        NO_DEPENDENCE
        for (size_t j = 0; j < columns; j++)
            to[j] = NATIVE(one)(q, how, from[j], scale[j], zero_point_add[j], zero_point_sub[j]);
    }
}

/* The kind of loop for this dtype: F32 is in float as it is, F64 in double. */
static int NATIVE(prepare)(struct NATIVE(quantizer) *q, const struct qobs_quantizer *given, bool has_zero_point)
{
    const bool native = !given->in_float && !given->torch;
    *q = (struct NATIVE(quantizer)){.quant_min = native ? round_dtype((real)given->quant_min) : (real)given->quant_min,
                                    .quant_max = native ? round_dtype((real)given->quant_max) : (real)given->quant_max,
                                    .whole_least = given->quant_min,
                                    .whole_greatest = given->quant_max,
                                    .grid = {given->min_normal, given->shifter},
                                    .wide = {given->wide_min_normal, given->wide_shifter},
                                    .through_float = given->through_float};
    const bool in_double = !IS_DOUBLE && (given->in_double || isinf(q->quant_max));
    const double min_normal = IS_DOUBLE ? given->wide_min_normal : (double)given->min_normal;
    const bool whole = !in_double && min_normal >= fmax(given->quant_max, -given->quant_min);
    if (given->torch)
        return TORCH | ZERO_POINT | (in_double ? IN_DOUBLE : 0);
    return (has_zero_point || in_double ? ZERO_POINT : 0) | (in_double ? IN_DOUBLE : 0) |
           (given->in_float && !IS_SINGLE ? IN_FLOAT : 0) | (whole ? WHOLE : 0);
}

/* F32 and F64 to integers. */
#define IS_LIGHT(how) (!IS_HALF && ((how) & WHOLE || (how) == (TORCH | ZERO_POINT)))

#define ROWS(how) NATIVE(rows)(&q, how, x, x_stride, out, out_stride, runs, length, qparams, qparam_stride)
#define COLUMNS(how) NATIVE(columns)(&q, how, x, x_stride, out, out_stride, rows, columns, qparams)

QOBS_FAKE_QUANTIZE_ROWS(ENTRY(NATIVE(qobs_fake_quantize_rows)))
{
    struct NATIVE(quantizer) q;
    const int how = NATIVE(prepare)(&q, quantizer, qparams->zero_point_add != NULL);
    DELEGATE_TO_AVX2(prefer_avx2_for_aliased(IS_LIGHT(how), x, out), NATIVE(qobs_fake_quantize_rows), quantizer, x, x_stride, out, out_stride, runs, length, qparams,
              qparam_stride)
    if (how == 0)
        ROWS(0);
    else if (how == ZERO_POINT)
        ROWS(ZERO_POINT);
    else if (how == (TORCH | ZERO_POINT))
        ROWS(TORCH | ZERO_POINT);
    else if (!IS_DOUBLE && how == (ZERO_POINT | IN_DOUBLE))
        ROWS(ZERO_POINT | IN_DOUBLE);
    else if (!IS_DOUBLE && how == (TORCH | ZERO_POINT | IN_DOUBLE))
        ROWS(TORCH | ZERO_POINT | IN_DOUBLE);
    else if (how == WHOLE)
        ROWS(WHOLE);
    else if (how == (WHOLE | ZERO_POINT))
        ROWS(WHOLE | ZERO_POINT);
    else if (!IS_SINGLE && how == (WHOLE | IN_FLOAT))
        ROWS(WHOLE | IN_FLOAT);
    else if (!IS_SINGLE && how == (WHOLE | IN_FLOAT | ZERO_POINT))
        ROWS(WHOLE | IN_FLOAT | ZERO_POINT);
    else if (!IS_SINGLE && how == IN_FLOAT)
        ROWS(IN_FLOAT);
    else if (!IS_SINGLE && how == (IN_FLOAT | ZERO_POINT))
        ROWS(IN_FLOAT | ZERO_POINT);
    else if (IS_HALF)
        ROWS(IN_FLOAT | ZERO_POINT | IN_DOUBLE);
}

QOBS_FAKE_QUANTIZE_COLUMNS(ENTRY(NATIVE(qobs_fake_quantize_columns)))
{
    struct NATIVE(quantizer) q;
    const int how = NATIVE(prepare)(&q, quantizer, true);
    DELEGATE_TO_AVX2(prefer_avx2_for_aliased(IS_LIGHT(how), x, out), NATIVE(qobs_fake_quantize_columns), quantizer, x, x_stride, out, out_stride, rows, columns, qparams)
    if (how == ZERO_POINT)
        COLUMNS(ZERO_POINT);
    else if (how == (TORCH | ZERO_POINT))
        COLUMNS(TORCH | ZERO_POINT);
    else if (!IS_DOUBLE && how == (ZERO_POINT | IN_DOUBLE))
        COLUMNS(ZERO_POINT | IN_DOUBLE);
    else if (!IS_DOUBLE && how == (TORCH | ZERO_POINT | IN_DOUBLE))
        COLUMNS(TORCH | ZERO_POINT | IN_DOUBLE);
    else if (how == (WHOLE | ZERO_POINT))
        COLUMNS(WHOLE | ZERO_POINT);
    else if (!IS_SINGLE && how == (WHOLE | IN_FLOAT | ZERO_POINT))
        COLUMNS(WHOLE | IN_FLOAT | ZERO_POINT);
    else if (!IS_SINGLE && how == (IN_FLOAT | ZERO_POINT))
        COLUMNS(IN_FLOAT | ZERO_POINT);
    else if (IS_HALF)
        COLUMNS(IN_FLOAT | ZERO_POINT | IN_DOUBLE);
}

#undef IS_LIGHT
#undef ROWS
#undef COLUMNS
#undef IS_HALF
#undef IS_SINGLE
#undef IS_DOUBLE
#undef element
#undef store_quiet
#undef round_dtype

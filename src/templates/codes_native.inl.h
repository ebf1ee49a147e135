/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of the kernels that dequantize codes, and for F64 of those that quantize to codes; included by
 * quantize_native.inl.h, whose contract holds. The numbers on the grid are exact in float. */

#if MANTISSA_BITS == 52

/* 1 for numbers below 0. A double that is 0 as a float counts. */
ALWAYS_INLINE uint32_t NATIVE(is_negative)(double y)
{
    const uint64_t bits = bits_of_double(y);
    return (uint32_t)(bits >> 63) & (uint32_t)(bits << 1 != 0);
}

/* The code of v, y rounded to float. Sums with a power of two round to the steps that its last bit has; sums of bits
 * round normal numbers. */
ALWAYS_INLINE uint32_t NATIVE(code)(int kind, float v, double y)
{
    const uint32_t bits = bits_of_float(v), magnitude = bits & 0x7fffffff;
    const bool number = magnitude <= 0x7f800000;
    if (kind == QOBS_CODE_INTEGER)
        return number ? bits_of_float(v + 0x1.8p23f) & 0xff : 0;
    const struct code_layout layout = code_layout(kind);
    const int shift = 23 - layout.mantissa;
    const uint32_t least_normal = (layout.least + 1) << 23, steps = (2u << layout.mantissa) - 1;
    const float shifter = float_of_bits(least_normal + ((uint32_t)shift << 23)); /* its last bit is a subnormal step */
    const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + shifter) & steps;
    const uint32_t half = (1u << (shift - 1)) - 1 + (magnitude >> shift & 1);
    const uint32_t normal = ((magnitude + half) >> shift) - (layout.least << layout.mantissa);
    const bool negative = kind == QOBS_CODE_E2M1 ? NATIVE(is_negative)(y) != 0 : bits >> 31 != 0;
    return number ? (magnitude < least_normal ? subnormal : normal) | (negative ? layout.sign : 0) : layout.nan;
}

/* One run or row. Element j has entry j * step of the qparams. */
ALWAYS_INLINE void NATIVE(code_run)(const struct NATIVE(quantizer) * q, int how, int kind, const element *from,
                                    unsigned char *to, size_t length, const struct qparam_pair *qparams, size_t first,
                                    size_t step, struct code_sums_wide *sums)
{
    const double *scale = qparams->scale, *add = qparams->zero_point_add, *sub = qparams->zero_point_sub;
    for (size_t j = 0; j < length; j++) {
        const size_t at = first + j * step;
        const double y = NATIVE(scaled)(q, how, from[j], scale[at], how & ZERO_POINT ? add[at] : -0.0);
        const double number = NATIVE(grid)(q, how, y);
        to[j] = (unsigned char)NATIVE(code)(kind, (float)number, y);
        if (!(how & WITH_SUM))
            continue;
        const double back = NATIVE(dequantize)(how, number, scale[at], how & ZERO_POINT ? sub[at] : 0);
        code_sums_add_wide(sums, j, length, from[j] - back, from[j]);
    }
}

QOBS_QUANTIZE_ROWS(ENTRY(NATIVE(qobs_quantize_rows)))
{
    CLEARS_UPPER_HALVES
    struct NATIVE(quantizer) q;
    struct code_sums_wide sums = {.sum = sum};
    const int how = NATIVE(prepare)(&q, quantizer, qparams->zero_point_add != NULL) | (sum ? WITH_SUM : 0);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++) {
        const element *from = (const element *)((const unsigned char *)x + i * x_stride);
        unsigned char *to = codes + i * code_stride;
        const size_t first = (size_t)(i * qparam_stride);
        NATIVE(code_run)(&q, how, (int)kind, from, to, length, qparams, first, 0, &sums);
    }
    if (sum)
        code_sums_flush_wide(&sums);
}

QOBS_QUANTIZE_COLUMNS(ENTRY(NATIVE(qobs_quantize_columns)))
{
    CLEARS_UPPER_HALVES
    struct NATIVE(quantizer) q;
    struct code_sums_wide sums = {.sum = sum};
    const int how = NATIVE(prepare)(&q, quantizer, true) | (sum ? WITH_SUM : 0);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)rows; i++) {
        const element *from = (const element *)((const unsigned char *)x + i * x_stride);
        unsigned char *to = codes + i * code_stride;
        NATIVE(code_run)(&q, how, (int)kind, from, to, columns, qparams, 0, 1, &sums); /* they have a zero point */
    }
    if (sum)
        code_sums_flush_wide(&sums);
}

#endif /* F64 */

/* ---- Dequantize -------------------------------------------------------------------------------------------------- */

/* Element j has entry j * step of the qparams. */
REFERENCE_INLINE void NATIVE(elements_of)(int how, const float *number, element *to, size_t count, const real *scale,
                                          const real *zero_point, size_t step)
{
    NO_DEPENDENCE
    for (size_t j = 0; j < count; j++)
        to[j] = NATIVE(dequantize)(how, number[j], scale[j * step], zero_point[j * step]);
}

/* The same of integers without a buffer, which would cost F32 a quarter of its time. */
REFERENCE_INLINE void NATIVE(elements_of_integers)(const unsigned char *codes, element *to, size_t count,
                                                   const real *scale, const real *zero_point, size_t step)
{
    NO_DEPENDENCE
    for (size_t j = 0; j < count; j++)
        to[j] = NATIVE(dequantize)(ZERO_POINT, number_of_code(QOBS_CODE_INTEGER, codes[j]), scale[j * step],
                                   zero_point[j * step]);
}

/* Without zero points 0 is taken away, which changes nothing. Codes are numbers of the dtype, so that the difference
 * needs no rounding to it then. */
static int NATIVE(how_back)(const struct quantizer *quantizer, const struct qparam_pair *qparams)
{
    const bool in_float = quantizer->in_float ? !IS_SINGLE : IS_HALF && !qparams->zero_point_sub;
    return ZERO_POINT | (in_float ? IN_FLOAT : 0);
}

QOBS_DEQUANTIZE_ROWS(ENTRY(NATIVE(qobs_dequantize_rows)))
{
    CLEARS_UPPER_HALVES
    const int how = NATIVE(how_back)(quantizer, qparams);
    const real *scale = qparams->scale, *zero_point = qparams->zero_point_sub;
    struct code_numbers n;
    n.left = 0;
    for (size_t i = 0; i < runs; i++) {
        const ptrdiff_t at = (ptrdiff_t)i;
        const unsigned char *from = codes + at * code_stride;
        element *to = (element *)((unsigned char *)out + at * out_stride);
        const real s = scale[at * qparam_stride], z = zero_point ? zero_point[at * qparam_stride] : 0;
        if (IS_SINGLE && kind == QOBS_CODE_INTEGER) {
            NATIVE(elements_of_integers)(from, to, length, &s, &z, 0);
            continue;
        }
        const size_t in_line = code_stride == (ptrdiff_t)length ? (runs - i) * length : length;
        for (size_t first = 0, count; first < length; first += count) {
            const float *number = code_numbers(&n, kind, from + first, in_line - first, length - first, &count);
            if (!IS_SINGLE && how & IN_FLOAT)
                NATIVE(elements_of)(ZERO_POINT | IN_FLOAT, number, to + first, count, &s, &z, 0);
            else
                NATIVE(elements_of)(ZERO_POINT, number, to + first, count, &s, &z, 0);
        }
    }
}

QOBS_DEQUANTIZE_COLUMNS(ENTRY(NATIVE(qobs_dequantize_columns)))
{
    CLEARS_UPPER_HALVES
    const int how = NATIVE(how_back)(quantizer, qparams);
    const real none[CODE_NUMBERS] = {0}, *scale = qparams->scale, *zero_point = qparams->zero_point_sub;
    struct code_numbers n;
    n.left = 0;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)rows; i++) {
        const unsigned char *from = codes + i * code_stride;
        element *to = (element *)((unsigned char *)out + i * out_stride);
        if (IS_SINGLE && kind == QOBS_CODE_INTEGER && zero_point) {
            NATIVE(elements_of_integers)(from, to, columns, scale, zero_point, 1);
            continue;
        }
        for (size_t first = 0, count; first < columns; first += count) {
            const float *number = code_numbers(&n, kind, from + first, columns - first, columns - first, &count);
            const real *z = zero_point ? zero_point + first : none;
            if (!IS_SINGLE && how & IN_FLOAT)
                NATIVE(elements_of)(ZERO_POINT | IN_FLOAT, number, to + first, count, scale + first, z, 1);
            else
                NATIVE(elements_of)(ZERO_POINT, number, to + first, count, scale + first, z, 1);
        }
    }
}

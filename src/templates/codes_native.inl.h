/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of the kernels that dequantize codes, and for F64 of those that quantize to codes; included by
 * quantize_native.inl.h, whose contract holds. The numbers on the grid are exact in float. */

/* The number of a code. The bits of magnitude become those of a float with another exponent. The exponent 0 means
 * subnormal numbers, whose first digit is 0; as floats they are normal, because subnormal floats cost many cycles. */
ALWAYS_INLINE float NATIVE(number)(int kind, uint32_t code)
{
    if (kind == QOBS_CODE_INTEGER)
        return (float)(int8_t)code;
    const bool is_e4m3 = kind == QOBS_CODE_E4M3;
    const uint32_t magnitude = code & (is_e4m3 ? 0x7f : 7), sign = code << (is_e4m3 ? 24 : 28) & 0x80000000;
    const uint32_t nan = is_e4m3 ? -(uint32_t)(magnitude == 0x7f) & 0x7fc00000 : 0;
    const float normal =
        is_e4m3 ? float_of_bits((magnitude << 20) + (120u << 23)) : float_of_bits((magnitude << 22) + (126u << 23));
    const float subnormal = normal + normal - (is_e4m3 ? 0x1p-6f : 1);
    const uint32_t small = -(uint32_t)(magnitude < (is_e4m3 ? 8 : 2));
    return float_of_bits((bits_of_float(subnormal) & small) | (bits_of_float(normal) & ~small) | sign | nan);
}

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
    if (kind == QOBS_CODE_E4M3) {
        const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0x1p14f) & 15; /* steps are 2^-9 */
        const uint32_t normal = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120 << 3);
        return number ? (magnitude < 0x3c800000 ? subnormal : normal) | (bits >> 24 & 0x80) : 0x7f;
    }
    const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0x1p22f) & 3; /* steps are 0.5 */
    const uint32_t normal = ((magnitude + 0x1fffff + (magnitude >> 22 & 1)) >> 22) - 252;
    return number ? (magnitude < 0x3f800000 ? subnormal : normal) | NATIVE(is_negative)(y) << 3 : 0;
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

/* Kind and arithmetic. Integers have the grid of integers, the other kinds that of their format. */
#define EACH_CODE_HOW(CODE, kind, grid)                                                                                \
    CODE(kind, grid)                                                                                                   \
    CODE(kind, (grid) | ZERO_POINT)                                                                                    \
    CODE(kind, (grid) | IN_FLOAT)                                                                                      \
    CODE(kind, (grid) | IN_FLOAT | ZERO_POINT)
#define EACH_CODE(CODE)                                                                                                \
    EACH_CODE_HOW(CODE, QOBS_CODE_INTEGER, INTEGER_GRID)                                                               \
    EACH_CODE_HOW(CODE, QOBS_CODE_E4M3, 0)                                                                             \
    EACH_CODE_HOW(CODE, QOBS_CODE_E2M1, 0)

QOBS_QUANTIZE_ROWS(ENTRY(NATIVE(qobs_quantize_rows)))
{
    CLEARS_UPPER_HALVES
    struct NATIVE(quantizer) q;
    struct code_sums_wide sums = {.sum = sum};
    const int how = NATIVE(prepare)(&q, quantizer, qparams->zero_point_add != NULL), with_sum = sum ? WITH_SUM : 0;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++) {
        const element *from = (const element *)((const unsigned char *)x + i * x_stride);
        unsigned char *to = codes + i * code_stride;
        const size_t first = (size_t)(i * qparam_stride);
#define CODE(wanted, variant)                                                                                          \
    if (kind == (wanted) && how == (variant))                                                                          \
        NATIVE(code_run)(&q, (variant) | with_sum, wanted, from, to, length, qparams, first, 0, &sums);                \
    else
        EACH_CODE(CODE) NO_VARIANT;
#undef CODE
    }
    if (sum)
        code_sums_flush_wide(&sums);
}

QOBS_QUANTIZE_COLUMNS(ENTRY(NATIVE(qobs_quantize_columns)))
{
    CLEARS_UPPER_HALVES
    struct NATIVE(quantizer) q;
    struct code_sums_wide sums = {.sum = sum};
    const int how = NATIVE(prepare)(&q, quantizer, true), with_sum = sum ? WITH_SUM : 0;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)rows; i++) {
        const element *from = (const element *)((const unsigned char *)x + i * x_stride);
        unsigned char *to = codes + i * code_stride;
/* Columns always have a zero point. */
#define CODE(wanted, variant)                                                                                          \
    if ((variant) & ZERO_POINT && kind == (wanted) && how == (variant))                                                \
        NATIVE(code_run)(&q, (variant) | with_sum, wanted, from, to, columns, qparams, 0, 1, &sums);                   \
    else
        EACH_CODE(CODE) NO_VARIANT;
#undef CODE
    }
    if (sum)
        code_sums_flush_wide(&sums);
}

#undef EACH_CODE
#undef EACH_CODE_HOW

#endif /* F64 */

/* ---- Dequantize -------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE void NATIVE(number_rows)(int how, int kind, const unsigned char *codes, ptrdiff_t code_stride,
                                       unsigned char *out, ptrdiff_t out_stride, size_t runs, size_t length,
                                       const struct qparam_pair *qparams, ptrdiff_t qparam_stride)
{
    const real *scale = qparams->scale, *zero_point = qparams->zero_point_sub;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++) {
        const unsigned char *from = codes + i * code_stride;
        element *to = (element *)(out + i * out_stride);
        const real s = scale[i * qparam_stride], z = how & ZERO_POINT ? zero_point[i * qparam_stride] : 0;
        NO_DEPENDENCE
        for (size_t j = 0; j < length; j++)
            to[j] = NATIVE(dequantize)(how, NATIVE(number)(kind, from[j]), s, z);
    }
}

ALWAYS_INLINE void NATIVE(number_columns)(int how, int kind, const unsigned char *codes, ptrdiff_t code_stride,
                                          unsigned char *out, ptrdiff_t out_stride, size_t rows, size_t columns,
                                          const struct qparam_pair *qparams)
{
    const real *scale = qparams->scale, *zero_point = qparams->zero_point_sub;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)rows; i++) {
        const unsigned char *from = codes + i * code_stride;
        element *to = (element *)(out + i * out_stride);
        NO_DEPENDENCE
        for (size_t j = 0; j < columns; j++)
            to[j] =
                NATIVE(dequantize)(how, NATIVE(number)(kind, from[j]), scale[j], how & ZERO_POINT ? zero_point[j] : 0);
    }
}

/* Kind and arithmetic; F32 is computed in float in any case. */
#define EACH_NUMBER(NUMBER)                                                                                            \
    NUMBER(QOBS_CODE_INTEGER, 0)                                                                                       \
    NUMBER(QOBS_CODE_INTEGER, ZERO_POINT)                                                                              \
    NUMBER(QOBS_CODE_INTEGER, IN_FLOAT)                                                                                \
    NUMBER(QOBS_CODE_INTEGER, IN_FLOAT | ZERO_POINT)                                                                   \
    NUMBER(QOBS_CODE_E4M3, 0)                                                                                          \
    NUMBER(QOBS_CODE_E4M3, ZERO_POINT)                                                                                 \
    NUMBER(QOBS_CODE_E4M3, IN_FLOAT)                                                                                   \
    NUMBER(QOBS_CODE_E4M3, IN_FLOAT | ZERO_POINT)                                                                      \
    NUMBER(QOBS_CODE_E2M1, 0)                                                                                          \
    NUMBER(QOBS_CODE_E2M1, ZERO_POINT)                                                                                 \
    NUMBER(QOBS_CODE_E2M1, IN_FLOAT)                                                                                   \
    NUMBER(QOBS_CODE_E2M1, IN_FLOAT | ZERO_POINT)

static int NATIVE(how_back)(const struct quantizer *quantizer, const struct qparam_pair *qparams)
{
    return (quantizer->in_float && !IS_SINGLE ? IN_FLOAT : 0) | (qparams->zero_point_sub ? ZERO_POINT : 0);
}

QOBS_DEQUANTIZE_ROWS(ENTRY(NATIVE(qobs_dequantize_rows)))
{
    CLEARS_UPPER_HALVES
    const int how = NATIVE(how_back)(quantizer, qparams);
#define NUMBER(wanted, variant)                                                                                        \
    if (!(IS_SINGLE && (variant) & IN_FLOAT) && kind == (wanted) && how == (variant))                                  \
        NATIVE(number_rows)                                                                                            \
    (variant, wanted, codes, code_stride, out, out_stride, runs, length, qparams, qparam_stride);                      \
    else
    EACH_NUMBER(NUMBER) NO_VARIANT;
#undef NUMBER
}

QOBS_DEQUANTIZE_COLUMNS(ENTRY(NATIVE(qobs_dequantize_columns)))
{
    CLEARS_UPPER_HALVES
    const int how = NATIVE(how_back)(quantizer, qparams);
#define NUMBER(wanted, variant)                                                                                        \
    if (!(IS_SINGLE && (variant) & IN_FLOAT) && kind == (wanted) && how == (variant))                                  \
        NATIVE(number_columns)(variant, wanted, codes, code_stride, out, out_stride, rows, columns, qparams);          \
    else
    EACH_NUMBER(NUMBER) NO_VARIANT;
#undef NUMBER
}

#undef EACH_NUMBER

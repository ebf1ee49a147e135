/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of the kernels that quantize to codes, and back; included by quantize_native.inl.h, whose contract holds.
 * The numbers on the grid are exact in float. */

/* 1 for numbers below 0. A double that is 0 as a float counts. */
ALWAYS_INLINE uint32_t NATIVE(is_negative)(real y)
{
    if (IS_DOUBLE) {
        const uint64_t wide = bits_of_double((double)y);
        return (uint32_t)(wide >> 63) & (uint32_t)(wide << 1 != 0);
    }
    const uint32_t bits = bits_of_float((float)y);
    return bits >> 31 & (uint32_t)(bits << 1 != 0);
}

/* The code of v, y rounded to float. Sums with a power of two round to the steps that its last bit has; sums of bits
 * round normal numbers. Masks instead of conditions, so that loops become vectors: a comparison of floats may trap, and
 * compilers keep it where it is. */
ALWAYS_INLINE uint32_t NATIVE(code)(int kind, float v, real y)
{
    const uint32_t bits = bits_of_float(v), magnitude = bits & 0x7fffffff;
    const uint32_t number = -(uint32_t)(magnitude <= 0x7f800000);
    if (kind == QOBS_CODE_INTEGER)
        return bits_of_float(v + 0x1.8p23f) & number & 0xff;
    if (kind == QOBS_CODE_E4M3) {
        const uint32_t small = -(uint32_t)(magnitude < 0x3c800000); /* below 2^-6 steps are 2^-9 */
        const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0x1p14f) & 15;
        const uint32_t normal = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120 << 3);
        const uint32_t code = (subnormal & small) | (normal & ~small);
        return ((code | (bits >> 24 & 0x80)) & number) | (0x7f & ~number);
    }
    const uint32_t small = -(uint32_t)(magnitude < 0x3f800000); /* below 1 steps are 0.5 */
    const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0x1p22f) & 3;
    const uint32_t normal = ((magnitude + 0x1fffff + (magnitude >> 22 & 1)) >> 22) - 252;
    return ((subnormal & small) | (normal & ~small) | NATIVE(is_negative)(y) << 3) & number;
}

ALWAYS_INLINE uint32_t NATIVE(code_of)(const struct NATIVE(quantizer) * q, int how, int kind, stored x, real scale,
                                       real zero_point)
{
    const real y = NATIVE(scaled)(q, how, x, scale, zero_point);
    return NATIVE(code)(kind, (float)(IS_DOUBLE ? NATIVE(grid)(q, how, y) : y), y);
}

/* A bf16 quotient x / scale may be computed as x * (1 / scale) in float. Both have the same rounding to bf16: a
 * quotient of numbers of 8 digits is never in the middle of two numbers of 8 digits, because the middle has 9 digits
 * and so has its product with scale; it is at least 2^-17 away from it, and the error of the product is below 2^-22.
 * Quotients that are subnormal are exempt; their codes depend on the sign alone, which must not become that of 0. */
ALWAYS_INLINE bool NATIVE(may_multiply)(int how, int kind, real scale)
{
    const uint32_t magnitude = bits_of_float((float)scale) & 0x7fffffff;
    const uint32_t most = kind == QOBS_CODE_INTEGER ? (127 + 100) << 23 : 127 << 23;
    const bool in_range = magnitude >= (127 - 100) << 23 && magnitude <= most;
    return in_range && MANTISSA_BITS == 7 && !(how & IN_FLOAT);
}

ALWAYS_INLINE void NATIVE(code_run)(const struct NATIVE(quantizer) * q, int how, int kind, const element *from,
                                    unsigned char *to, size_t length, real scale, real zero_point)
{
    size_t j = 0;
    /* Blocks of a constant length become vectors also in groups of 16; a loop over bytes would have 64 lanes. */
    for (; j + CODE_BLOCK <= length; j += CODE_BLOCK) {
        uint32_t wide[CODE_BLOCK];
        KEEP_LOOP
        for (size_t k = 0; k < CODE_BLOCK; k++)
            wide[k] = NATIVE(code_of)(q, how, kind, from[j + k], scale, zero_point);
        KEEP_LOOP
        for (size_t k = 0; k < CODE_BLOCK; k++)
            to[j + k] = (unsigned char)wide[k];
    }
    for (; j < length; j++)
        to[j] = (unsigned char)NATIVE(code_of)(q, how, kind, from[j], scale, zero_point);
}

ALWAYS_INLINE void NATIVE(code_rows)(const struct NATIVE(quantizer) * q, int how, int kind, const unsigned char *x,
                                     ptrdiff_t x_stride, unsigned char *codes, ptrdiff_t code_stride, size_t runs,
                                     size_t length, const struct qparam_pair *qparams, ptrdiff_t qparam_stride)
{
    const real *scale = qparams->scale, *zero_point = qparams->zero_point_add;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++) {
        const element *from = (const element *)(x + i * x_stride);
        unsigned char *to = codes + i * code_stride;
        const real s = scale[i * qparam_stride], z = zero_point ? zero_point[i * qparam_stride] : (real)-0.0;
        if (NATIVE(may_multiply)(how, kind, s))
            NATIVE(code_run)(q, how | BY_RECIPROCAL, kind, from, to, length, 1 / s, z);
        else
            NATIVE(code_run)(q, how, kind, from, to, length, s, z);
    }
}

ALWAYS_INLINE void NATIVE(code_columns)(const struct NATIVE(quantizer) * q, int how, int kind, const unsigned char *x,
                                        ptrdiff_t x_stride, unsigned char *codes, ptrdiff_t code_stride, size_t rows,
                                        size_t columns, const struct qparam_pair *qparams)
{
    const real *scale = qparams->scale, *zero_point = qparams->zero_point_add;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)rows; i++) {
        const element *from = (const element *)(x + i * x_stride);
        unsigned char *to = codes + i * code_stride;
        NO_DEPENDENCE
        for (size_t j = 0; j < columns; j++)
            to[j] = (unsigned char)NATIVE(code_of)(q, how, kind, from[j], scale[j], zero_point[j]);
    }
}

/* Kind and arithmetic. Integers have the grid of integers, the other kinds that of their format. */
#define EACH_CODE(CODE)                                                                                                \
    CODE(true, QOBS_CODE_INTEGER, INTEGER_GRID)                                                                        \
    CODE(true, QOBS_CODE_INTEGER, INTEGER_GRID | ZERO_POINT)                                                           \
    CODE(!IS_SINGLE, QOBS_CODE_INTEGER, INTEGER_GRID | IN_FLOAT)                                                       \
    CODE(!IS_SINGLE, QOBS_CODE_INTEGER, INTEGER_GRID | IN_FLOAT | ZERO_POINT)                                          \
    CODE(true, QOBS_CODE_E4M3, 0)                                                                                      \
    CODE(true, QOBS_CODE_E4M3, ZERO_POINT)                                                                             \
    CODE(!IS_SINGLE, QOBS_CODE_E4M3, IN_FLOAT)                                                                         \
    CODE(!IS_SINGLE, QOBS_CODE_E4M3, IN_FLOAT | ZERO_POINT)                                                            \
    CODE(true, QOBS_CODE_E2M1, 0)                                                                                      \
    CODE(true, QOBS_CODE_E2M1, ZERO_POINT)                                                                             \
    CODE(!IS_SINGLE, QOBS_CODE_E2M1, IN_FLOAT)                                                                         \
    CODE(!IS_SINGLE, QOBS_CODE_E2M1, IN_FLOAT | ZERO_POINT)

QOBS_QUANTIZE_ROWS(ENTRY(NATIVE(qobs_quantize_rows)))
{
    struct NATIVE(quantizer) q;
    const int how = NATIVE(prepare)(&q, quantizer, qparams->zero_point_add != NULL);
#define CODE(exists, wanted, variant)                                                                                  \
    if ((exists) && kind == (wanted) && how == (variant))                                                              \
        NATIVE(code_rows)(&q, variant, wanted, x, x_stride, codes, code_stride, runs, length, qparams, qparam_stride); \
    else
    EACH_CODE(CODE) NO_VARIANT;
#undef CODE
}

QOBS_QUANTIZE_COLUMNS(ENTRY(NATIVE(qobs_quantize_columns)))
{
    struct NATIVE(quantizer) q;
    const int how = NATIVE(prepare)(&q, quantizer, true);
/* Columns always have a zero point. */
#define CODE(exists, wanted, variant)                                                                                  \
    if ((exists) && (variant) & ZERO_POINT && kind == (wanted) && how == (variant))                                    \
        NATIVE(code_columns)(&q, variant, wanted, x, x_stride, codes, code_stride, rows, columns, qparams);            \
    else
    EACH_CODE(CODE) NO_VARIANT;
#undef CODE
}

#undef EACH_CODE

/* ---- Dequantize -------------------------------------------------------------------------------------------------- */

/* The number of a code. The bits of magnitude become those of a float with another exponent. The exponent 0 means
 * subnormal numbers, whose first digit is 0; as floats they are normal, because subnormal floats cost many cycles. */
ALWAYS_INLINE float NATIVE(number)(int kind, uint32_t code)
{
    if (kind == QOBS_CODE_INTEGER)
        return (float)(int8_t)code;
    const bool is_e4m3 = kind == QOBS_CODE_E4M3;
    const uint32_t magnitude = code & (is_e4m3 ? 0x7f : 7), sign = code << (is_e4m3 ? 24 : 28) & 0x80000000;
    const uint32_t nan = is_e4m3 ? -(uint32_t)(magnitude == 0x7f) & 0x7fc00000 : 0;
    const float normal = is_e4m3 ? float_of_bits((magnitude << 20) + (120u << 23))
                                 : float_of_bits((magnitude << 22) + (126u << 23));
    const float subnormal = normal + normal - (is_e4m3 ? 0x1p-6f : 1);
    const uint32_t small = -(uint32_t)(magnitude < (is_e4m3 ? 8 : 2));
    return float_of_bits((bits_of_float(subnormal) & small) | (bits_of_float(normal) & ~small) | sign | nan);
}

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
    const int how = NATIVE(how_back)(quantizer, qparams);
#define NUMBER(wanted, variant)                                                                                        \
    if (!(IS_SINGLE && (variant) & IN_FLOAT) && kind == (wanted) && how == (variant))                                  \
        NATIVE(number_columns)(variant, wanted, codes, code_stride, out, out_stride, rows, columns, qparams);          \
    else
    EACH_NUMBER(NUMBER) NO_VARIANT;
#undef NUMBER
}

#undef EACH_NUMBER

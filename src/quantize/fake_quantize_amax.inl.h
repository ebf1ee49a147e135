/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of fake_quantize_amax.c. Factors are real: float, for F64 double with the value of a float. */

#define element NATIVE(element)
#define store_quiet NATIVE(store_quiet)

static inline void NATIVE(amax_rows)(const struct amax_rule *rule, bool e4m3, const unsigned char *x,
                                     ptrdiff_t x_stride, unsigned char *out, ptrdiff_t out_stride, size_t runs,
                                     size_t length, const real *factors, ptrdiff_t qparam_stride)
{
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++) {
        const element *from = (const element *)(x + i * x_stride);
        element *to = (element *)(out + i * out_stride);
        const float factor = (float)factors[i * qparam_stride], inverse = inverse_of(e4m3, factor);
        for (size_t j = 0; j < length; j++)
            to[j] = store_quiet((real)fake_quantized(rule, e4m3, (float)load(from[j]), factor, inverse));
    }
}

static inline void NATIVE(amax_columns)(const struct amax_rule *rule, bool e4m3, const unsigned char *x,
                                        ptrdiff_t x_stride, unsigned char *out, ptrdiff_t out_stride, size_t rows,
                                        size_t columns, const real *factors)
{
    for (ptrdiff_t i = 0; i < (ptrdiff_t)rows; i++) {
        const element *from = (const element *)(x + i * x_stride);
        element *to = (element *)(out + i * out_stride);
        for (size_t j = 0; j < columns; j++) {
            const float factor = (float)factors[j];
            to[j] =
                store_quiet((real)fake_quantized(rule, e4m3, (float)load(from[j]), factor, inverse_of(e4m3, factor)));
        }
    }
}

static QOBS_FAKE_QUANTIZE_ROWS(NATIVE(rows_integer))
{
    const struct amax_rule rule = rule_of(quantizer);
    NATIVE(amax_rows)(&rule, false, x, x_stride, out, out_stride, runs, length, qparams->scale, qparam_stride);
}

static QOBS_FAKE_QUANTIZE_ROWS(NATIVE(rows_e4m3))
{
    const struct amax_rule rule = rule_of(quantizer);
    NATIVE(amax_rows)(&rule, true, x, x_stride, out, out_stride, runs, length, qparams->scale, qparam_stride);
}

static QOBS_FAKE_QUANTIZE_COLUMNS(NATIVE(columns_integer))
{
    const struct amax_rule rule = rule_of(quantizer);
    NATIVE(amax_columns)(&rule, false, x, x_stride, out, out_stride, rows, columns, qparams->scale);
}

static QOBS_FAKE_QUANTIZE_COLUMNS(NATIVE(columns_e4m3))
{
    const struct amax_rule rule = rule_of(quantizer);
    NATIVE(amax_columns)(&rule, true, x, x_stride, out, out_stride, rows, columns, qparams->scale);
}

#undef element
#undef store_quiet

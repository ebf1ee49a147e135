/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantizes to codes of 4 bits and packs them in pairs; included by quantize_native.inl.h, whose contract holds. */

#if MANTISSA_BITS == 7 && defined I16X32
/* Int4 by tables (codes_table.inl.h) in registers. Returns the number of runs that it has quantized: it stops at one
 * that has no table. */
static __attribute__((noinline)) size_t int4_table_pairs(const unsigned char *x, ptrdiff_t x_stride,
                                                         unsigned char *codes, ptrdiff_t code_stride, size_t runs,
                                                         size_t length, const float *scale, ptrdiff_t qparam_stride)
{
    const struct table_constants c = table_constants();
    size_t i = 0;
    for (; i < runs && may_look_up(QOBS_CODE_INTEGER, scale[(ptrdiff_t)i * qparam_stride]); i++)
        table_pairs(&c, (const uint16_t *)(x + (ptrdiff_t)i * x_stride), codes + (ptrdiff_t)i * code_stride, length,
                    scale[(ptrdiff_t)i * qparam_stride]);
    return i;
}
#endif

QOBS_QUANTIZE_PAIRS(ENTRY(NATIVE(qobs_quantize_pairs)))
{
    unsigned char unpacked[QOBS_PAIR_CODES];
    size_t first = 0;
#if MANTISSA_BITS == 7 && defined I16X32
    if (kind == QOBS_CODE_INTEGER && offset == 8 && !sum && !qparams->zero_point_add && !quantizer->in_float &&
        length % TABLE_PAIRS_STEP == 0 && has_table(kind, (float)quantizer->quant_min, (float)quantizer->quant_max))
        first = int4_table_pairs(x, x_stride, codes, code_stride, runs, length, qparams->scale, qparam_stride);
#endif
    const real *const arrays[] = {qparams->scale, qparams->zero_point_add, qparams->zero_point_sub};
    const ptrdiff_t at = (ptrdiff_t)first * qparam_stride;
    const struct qparam_pair rest = {arrays[0] + at, arrays[1] ? arrays[1] + at : NULL,
                                     arrays[2] ? arrays[2] + at : NULL};
    if (first == runs)
        return;
    ENTRY(NATIVE(qobs_quantize_rows))
    (quantizer, kind, (const unsigned char *)x + (ptrdiff_t)first * x_stride, x_stride, unpacked, (ptrdiff_t)length,
     runs - first, length, &rest, qparam_stride, sum);
    codes += (ptrdiff_t)first * code_stride;
    if (code_stride == (ptrdiff_t)length / 2) {
        ENTRY(qobs_pack_pairs)(unpacked, (runs - first) * length / 2, offset, codes);
        return;
    }
    for (size_t i = 0; i < runs - first; i++)
        ENTRY(qobs_pack_pairs)(unpacked + i * length, length / 2, offset, codes + (ptrdiff_t)i * code_stride);
}

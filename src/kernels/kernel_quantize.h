/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels of fake-quantize. They write every element. out may be x; otherwise the two must not overlap. NaN becomes
 * the quiet NaN without sign and payload; in torch's arithmetic it becomes quant_min. */
#pragma once

#include "kernels/slot.h"
#include "number/quantizer.h"

/* One entry per qparam, in float, for F64 in double. The zero point is there twice because upstream converts it
 * twice: to the dtype of x where it is added, to the dtype of scale where it is subtracted. In the row form both may
 * be NULL: no zero point, the same as adding -0 and subtracting +0. */
struct qparam_pair {
    const void *scale;
    const void *zero_point_add;
    const void *zero_point_sub;
};

/* Row form: `runs` runs of `length` contiguous elements, x_stride and out_stride bytes apart. Run i has qparam
 * i * qparam_stride. */
#define QOBS_FAKE_QUANTIZE_ROWS(name)                                                                                  \
    void name(const struct quantizer *quantizer, const void *x, ptrdiff_t x_stride, void *out, ptrdiff_t out_stride,   \
              size_t runs, size_t length, const struct qparam_pair *qparams, ptrdiff_t qparam_stride)

/* Column form: `rows` rows of `columns` contiguous elements; column j has qparam j. */
#define QOBS_FAKE_QUANTIZE_COLUMNS(name)                                                                               \
    void name(const struct quantizer *quantizer, const void *x, ptrdiff_t x_stride, void *out, ptrdiff_t out_stride,   \
              size_t rows, size_t columns, const struct qparam_pair *qparams)

/* The contents of a code. INTEGER: a signed integer of 8 bits. E4M3: the byte of the format. E2M3: the low 6 bits.
 * E2M1: sign and magnitude in the low 4 bits; the sign bit is set for numbers below 0, also if they round to 0, and not
 * for -0. NaN becomes 0, as e4m3 0x7f, as e2m3 the code of -0. */
enum code_kind { QOBS_CODE_INTEGER, QOBS_CODE_E4M3, QOBS_CODE_E2M3, QOBS_CODE_E2M1 };

/* As QOBS_FAKE_QUANTIZE_ROWS without the way back: each element becomes a code of one byte. The quantizer is not
 * torch's and its numbers are those of `kind`. codes must not overlap x. A qparam that is NaN has no payload.
 * sum: NULL, and zero_point_sub is not used, or two sums. The squares of x - fake-quantized x are added to sum[0],
 * those of x to sum[1]. Element j of a run or row is in vector j / 16. Up to QOBS_CODE_SUM_VECTORS vectors of a call,
 * the last of each run included, have 16 sums in float (F64: double), element j in sum j % 16. Sums 8 apart are added
 * first, then 4, 2 and 1 apart, and the last one is added to the double. */
enum { QOBS_CODE_SUM_VECTORS = 64 };
#define QOBS_QUANTIZE_ROWS(name)                                                                                       \
    void name(const struct quantizer *quantizer, enum code_kind kind, const void *x, ptrdiff_t x_stride,               \
              unsigned char *codes, ptrdiff_t code_stride, size_t runs, size_t length,                                 \
              const struct qparam_pair *qparams, ptrdiff_t qparam_stride, double *sum)

#define QOBS_QUANTIZE_COLUMNS(name)                                                                                    \
    void name(const struct quantizer *quantizer, enum code_kind kind, const void *x, ptrdiff_t x_stride,               \
              unsigned char *codes, ptrdiff_t code_stride, size_t rows, size_t columns,                                \
              const struct qparam_pair *qparams, double *sum)

/* Quantizes to codes of 4 bits like QOBS_QUANTIZE_ROWS and packs them like QOBS_PACK_PAIRS. code_stride is in bytes of
 * pairs, length is even, and runs * length is at most QOBS_PAIR_CODES. With quantizer->product codes are those of
 * QOBS_PRODUCT_ROWS, without zero points and sums. */
enum { QOBS_PAIR_CODES = 16384 }; /* they stay in L1 until they are pairs */
#define QOBS_QUANTIZE_PAIRS(name)                                                                                      \
    void name(const struct quantizer *quantizer, enum code_kind kind, unsigned offset, const void *x,                  \
              ptrdiff_t x_stride, unsigned char *codes, ptrdiff_t code_stride, size_t runs, size_t length,             \
              const struct qparam_pair *qparams, ptrdiff_t qparam_stride, double *sum)

/* Codes as runtimes make them: an element times 1 / scale in float, plus the zero point, limited and rounded to the
 * nearest number of `kind`, INTEGER, E4M3 or E2M1, ties to even. quantizer->fused: the sum has one rounding, that of
 * the product is left out. NaN becomes quantizer->nan, and 0x7f as E4M3. quantizer->bounded: elements are finite, and
 * no product with the reciprocal of a normal scale reaches 2^14. zero_point: NULL, or one float for each scale; floats
 * have none. codes must not overlap x. */
#define QOBS_PRODUCT_ROWS(name)                                                                                        \
    void name(const struct quantizer *quantizer, enum code_kind kind, const void *x, ptrdiff_t x_stride,               \
              unsigned char *codes, ptrdiff_t code_stride, size_t runs, size_t length, const float *scale,             \
              const float *zero_point, ptrdiff_t qparam_stride)

/* Blocks of ggml's activations of finite elements without gaps. peak: of each block the largest magnitude (q8_0) or the
 * first element that has it (q8_K); up to 15 more are read and not used. */
#define QOBS_Q8_BLOCKS(name)                                                                                           \
    void name(enum q8_block block, const void *x, size_t blocks, const void *peak, unsigned char *out)

/* The way back: each code of one byte becomes an element. Only zero_point_sub is used; it may be NULL in both forms.
 * The high 4 bits of E2M1 and 2 of E2M3 are ignored. codes must not overlap out. */
#define QOBS_DEQUANTIZE_ROWS(name)                                                                                     \
    void name(const struct quantizer *quantizer, enum code_kind kind, const unsigned char *codes,                      \
              ptrdiff_t code_stride, void *out, ptrdiff_t out_stride, size_t runs, size_t length,                      \
              const struct qparam_pair *qparams, ptrdiff_t qparam_stride)

#define QOBS_DEQUANTIZE_COLUMNS(name)                                                                                  \
    void name(const struct quantizer *quantizer, enum code_kind kind, const unsigned char *codes,                      \
              ptrdiff_t code_stride, void *out, ptrdiff_t out_stride, size_t rows, size_t columns,                     \
              const struct qparam_pair *qparams)

/* Codes of 4 bits, each plus `offset`, in pairs: the first of a pair in the low half of the byte. packed must not
 * overlap codes. */
#define QOBS_PACK_PAIRS(name)                                                                                          \
    void name(const unsigned char *codes, size_t pairs, unsigned offset, unsigned char *packed)

#define QOBS_FAKE_QUANTIZE_SLOTS(EACH, with)                                                                           \
    EACH(SCALAR_F64, fake_quantize_rows, QOBS_FAKE_QUANTIZE_ROWS, with)                                                \
    EACH(SCALAR_F64, fake_quantize_columns, QOBS_FAKE_QUANTIZE_COLUMNS, with)
#define QOBS_CODE_SLOTS(EACH, with)                                                                                    \
    EACH(SCALAR_F64, quantize_rows, QOBS_QUANTIZE_ROWS, with)                                                          \
    EACH(SCALAR_F64, quantize_columns, QOBS_QUANTIZE_COLUMNS, with)                                                    \
    EACH(SCALAR_F64, quantize_pairs, QOBS_QUANTIZE_PAIRS, with)                                                        \
    EACH(EACH_NARROW, product_rows, QOBS_PRODUCT_ROWS, with)                                                           \
    EACH(EACH_NARROW, q8_blocks, QOBS_Q8_BLOCKS, with)                                                                 \
    EACH(SCALAR_F64, dequantize_rows, QOBS_DEQUANTIZE_ROWS, with)                                                      \
    EACH(SCALAR_F64, dequantize_columns, QOBS_DEQUANTIZE_COLUMNS, with)                                                \
    EACH(ONE, pack_pairs, QOBS_PACK_PAIRS, with)
#define QOBS_QUANTIZE_SLOTS(EACH, with) QOBS_FAKE_QUANTIZE_SLOTS(EACH, with) QOBS_CODE_SLOTS(EACH, with)

QOBS_QUANTIZE_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_QUANTIZE(isa) QOBS_QUANTIZE_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_QUANTIZE)

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

#define QOBS_QUANTIZE_SLOTS(EACH, with)                                                                                \
    EACH(EACH_DTYPE, fake_quantize_rows, QOBS_FAKE_QUANTIZE_ROWS, with)                                                \
    EACH(EACH_DTYPE, fake_quantize_columns, QOBS_FAKE_QUANTIZE_COLUMNS, with)

QOBS_QUANTIZE_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_QUANTIZE(isa) QOBS_QUANTIZE_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_QUANTIZE)

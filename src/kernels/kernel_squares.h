/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels that sum the squares of columns. */
#pragma once

#include "kernels/slot.h"

/* Column form: `rows` rows of `columns` contiguous elements, row_stride bytes apart; adds the square of every
 * element of column j to sum[j], row after row. F64 is rounded to float first, so that squares are exact. */
#define QOBS_SQUARES_COLUMNS(name)                                                                                     \
    void name(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, double *sum)

#define QOBS_SQUARES_SLOTS(EACH, with) EACH(EACH_DTYPE, squares_columns, QOBS_SQUARES_COLUMNS, with)

QOBS_SQUARES_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_SQUARES(isa) QOBS_SQUARES_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_SQUARES)

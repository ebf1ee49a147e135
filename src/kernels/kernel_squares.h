/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels that sum squares: of columns, and of the differences of two arrays. */
#pragma once

#include "kernels/slot.h"

/* Column form: `rows` rows of `columns` contiguous elements, row_stride bytes apart; adds the square of every
 * element of column j to sum[j], row after row. F64 is rounded to float first, so that squares are exact. */
#define QOBS_SQUARES_COLUMNS(name)                                                                                     \
    void name(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, double *sum)

/* Error form: adds the squares of x - y to sum[0] and those of x to sum[1], n contiguous elements of each. Blocks of
 * SQUARED_ERRORS_BLOCK elements from the first on have 16 sums in float (F64: double), element j of a block in sum
 * j % 16. These are then added to sum in their order. */
#define QOBS_SQUARED_ERRORS(name) void name(const void *x, const void *y, size_t n, double *sum)
enum { SQUARED_ERRORS_BLOCK = 1024 };

#define QOBS_SQUARES_SLOTS(EACH, with)                                                                                 \
    EACH(SCALAR_F64, squares_columns, QOBS_SQUARES_COLUMNS, with)                                                      \
    EACH(SCALAR_F64, squared_errors, QOBS_SQUARED_ERRORS, with)

QOBS_SQUARES_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_SQUARES(isa) QOBS_SQUARES_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_SQUARES)

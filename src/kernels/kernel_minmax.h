/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels of minimum, maximum and the largest magnitude. Outputs have the dtype of x. Identities are +infinity for a
 * minimum, -infinity for a maximum and +0 for a magnitude. NaN is skipped and counted; infinities take part and are
 * counted. A result that is zero is +0. Strides of x count bytes, those of outputs elements. */
#pragma once

#include "kernels/slot.h"

/* Row form: `runs` runs of `length` contiguous elements; each run starts run_stride bytes after the one before. Run
 * i merges into min[i * out_stride] and max[i * out_stride]. out_stride 0 merges every run into one pair. */
#define QOBS_MINMAX_ROWS(name)                                                                                         \
    void name(const void *x, ptrdiff_t run_stride, size_t runs, size_t length, void *min, void *max,                   \
              ptrdiff_t out_stride, struct nonfinite_count *nonfinite)

/* Row panel form: `panels` panels of `rows` rows each, all rows row_stride bytes apart. A row has `runs` runs that
 * follow each other without a gap. Run i of every row of panel p merges into min[p * runs + i] and max[p * runs +
 * i]. */
#define QOBS_MINMAX_ROW_PANELS(name)                                                                                   \
    void name(const void *x, ptrdiff_t row_stride, size_t panels, size_t rows, size_t runs, size_t length, void *min,  \
              void *max, struct nonfinite_count *nonfinite)

/* Column form: `rows` rows of `columns` contiguous elements, row_stride bytes apart; column j merges into min[j] and
 * max[j]. */
#define QOBS_MINMAX_COLUMNS(name)                                                                                      \
    void name(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, void *min, void *max,                  \
              struct nonfinite_count *nonfinite)

/* Indexed form: `rows` rows of `columns` contiguous elements; column j belongs to group[j] < groups. Row r merges into
 * min[r * groups + group[j]] and max likewise; outputs of groups without a column do not change.
 * scratch: QOBS_INDEXED_SCRATCH(groups) bytes at any address. */
#define QOBS_MINMAX_INDEXED(name)                                                                                      \
    void name(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, const uint32_t *group, size_t groups,  \
              void *min, void *max, void *scratch, struct nonfinite_count *nonfinite)
#define QOBS_INDEXED_SCRATCH(groups)                                                                                   \
    (((groups) + 64) * 128) /* two of the largest vectors a group, rounded up to their lanes */

/* The largest magnitude, in row and in column form. Outputs hold no sign. */
#define QOBS_ABSMAX_ROWS(name)                                                                                         \
    void name(const void *x, ptrdiff_t run_stride, size_t runs, size_t length, void *absmax, ptrdiff_t out_stride,     \
              struct nonfinite_count *nonfinite)
#define QOBS_ABSMAX_COLUMNS(name)                                                                                      \
    void name(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, void *absmax,                          \
              struct nonfinite_count *nonfinite)

#define QOBS_MINMAX_SLOTS(EACH, with)                                                                                  \
    EACH(EACH_DTYPE, minmax_rows, QOBS_MINMAX_ROWS, with)                                                              \
    EACH(EACH_DTYPE, minmax_row_panels, QOBS_MINMAX_ROW_PANELS, with)                                                  \
    EACH(EACH_DTYPE, minmax_columns, QOBS_MINMAX_COLUMNS, with)                                                        \
    EACH(EACH_DTYPE, minmax_indexed, QOBS_MINMAX_INDEXED, with)                                                        \
    EACH(EACH_DTYPE, absmax_rows, QOBS_ABSMAX_ROWS, with)                                                              \
    EACH(EACH_DTYPE, absmax_columns, QOBS_ABSMAX_COLUMNS, with)

QOBS_MINMAX_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_MINMAX(isa) QOBS_MINMAX_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_MINMAX)

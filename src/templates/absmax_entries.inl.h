/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The slots of the largest magnitude over rowsWIDTH and columnsWIDTH. ENTRY(name) appends the instruction set. */
#include "templates/entries.h"

#define ROWS_ENTRY(dtype, width, inf)                                                                                  \
    QOBS_ABSMAX_ROWS(ENTRY(qobs_absmax_rows_##dtype))                                                                  \
    {                                                                                                                  \
        CLEARS_UPPER_HALVES                                                                                            \
        DELEGATE_TO_AVX2(prefer_avx2_for_long_runs(runs, length, (width) / 8), qobs_absmax_rows_##dtype, x,            \
                         run_stride, runs, length, absmax, out_stride, nonfinite)                                      \
        rows##width(x, run_stride, runs, length, inf, absmax, out_stride *(width) / 8, nonfinite);                     \
    }
EACH_ELEMENT_TYPE(ROWS_ENTRY)
#undef ROWS_ENTRY

#define COLUMNS_ENTRY(dtype, width, inf)                                                                               \
    QOBS_ABSMAX_COLUMNS(ENTRY(qobs_absmax_columns_##dtype))                                                            \
    {                                                                                                                  \
        CLEARS_UPPER_HALVES                                                                                            \
        DELEGATE_TO_AVX2(prefer_avx2_for_magnitudes_of_columns(rows * columns, (width) / 8),                           \
                         qobs_absmax_columns_##dtype, x, row_stride, rows, columns, absmax, nonfinite)                 \
        columns##width(x, row_stride, rows, columns, inf, absmax, nonfinite);                                          \
    }
EACH_ELEMENT_TYPE(COLUMNS_ENTRY)
#undef COLUMNS_ENTRY

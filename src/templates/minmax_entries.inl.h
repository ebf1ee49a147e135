/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The slots of minimum and maximum over rowsWIDTH, row_panelsWIDTH and columnsWIDTH. ENTRY(name) appends the
 * instruction set. */
#include "templates/entries.h"

#define ROWS_ENTRY(dtype, width, inf)                                                                                  \
    QOBS_MINMAX_ROWS(ENTRY(qobs_minmax_rows_##dtype))                                                                  \
    {                                                                                                                  \
        CLEARS_UPPER_HALVES                                                                                            \
        DELEGATE_TO_AVX2(prefer_avx2_for_long_runs(runs, length, (width) / 8), qobs_minmax_rows_##dtype, x,            \
                         run_stride, runs, length, min, max, out_stride, nonfinite)                                    \
        rows##width(x, run_stride, runs, length, inf, min, max, out_stride *(width) / 8, nonfinite);                   \
    }
EACH_ELEMENT_TYPE(ROWS_ENTRY)
#undef ROWS_ENTRY

#define ROW_PANELS_ENTRY(dtype, width, inf)                                                                            \
    QOBS_MINMAX_ROW_PANELS(ENTRY(qobs_minmax_row_panels_##dtype))                                                      \
    {                                                                                                                  \
        CLEARS_UPPER_HALVES                                                                                            \
        DELEGATE_TO_AVX2(prefer_avx2_for_stream(panels * rows * runs * length, (width) / 8),                           \
                         qobs_minmax_row_panels_##dtype, x, row_stride, panels, rows, runs, length, min, max,          \
                         nonfinite)                                                                                    \
        row_panels##width(x, row_stride, panels, rows, runs, length, inf, min, max, nonfinite);                        \
    }
EACH_ELEMENT_TYPE(ROW_PANELS_ENTRY)
#undef ROW_PANELS_ENTRY

#define COLUMNS_ENTRY(dtype, width, inf)                                                                               \
    QOBS_MINMAX_COLUMNS(ENTRY(qobs_minmax_columns_##dtype))                                                            \
    {                                                                                                                  \
        CLEARS_UPPER_HALVES                                                                                            \
        columns##width(x, row_stride, rows, columns, inf, min, max, nonfinite);                                        \
    }
EACH_ELEMENT_TYPE(COLUMNS_ENTRY)
#undef COLUMNS_ENTRY

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The slots of indexed minimum and maximum over indexedWIDTH. ENTRY(name) appends the instruction set. */
#include "templates/entries.h"

#define INDEXED_ENTRY(dtype, width, inf)                                                                               \
    QOBS_MINMAX_INDEXED(ENTRY(qobs_minmax_indexed_##dtype))                                                            \
    {                                                                                                                  \
        CLEARS_UPPER_HALVES                                                                                            \
        DELEGATE_TO_AVX2(prefer_avx2_for_few_rows(rows, (width) / 8), qobs_minmax_indexed_##dtype, x,          \
                         row_stride, rows, columns, group, groups, min, max, scratch, nonfinite)                       \
        indexed##width(x, row_stride, rows, columns, group, groups, inf, min, max, scratch, nonfinite);                \
    }
EACH_ELEMENT_TYPE(INDEXED_ENTRY)
#undef INDEXED_ENTRY

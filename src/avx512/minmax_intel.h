/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The minmax kernels of the avx512 table as Intel processors run them (avx512/tuning_intel.h). */
#pragma once

#include "kernels/kernel_minmax.h"

#define QOBS_AVX512_INTEL_SLOTS(EACH, with)                                                                            \
    EACH(EACH_DTYPE, minmax_rows, QOBS_MINMAX_ROWS, with)                                                              \
    EACH(EACH_DTYPE, minmax_row_panels, QOBS_MINMAX_ROW_PANELS, with)                                                  \
    EACH(EACH_DTYPE, minmax_columns, QOBS_MINMAX_COLUMNS, with)
QOBS_AVX512_INTEL_SLOTS(QOBS_DECLARE_SLOT, avx512_intel)

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable histogram: the definition the other instruction sets are checked against, and what they finish runs with.
 * Counters: 32 bits in the first array alone; element by element, so there is no tail. */
#include "kernels/kernel_histogram.h"

#include "scalar/tuning.h"
#include "templates/histogram_elements.inl.h"

#define HISTOGRAM_ENTRY(dtype, bytes)                                                                                  \
    QOBS_HISTOGRAM_ROWS(ENTRY(qobs_histogram_rows_##dtype))                                                            \
    {                                                                                                                  \
        for (size_t i = 0; i < runs; i++)                                                                              \
            add_elements(load_##dtype, bytes, binning, (const unsigned char *)x + (ptrdiff_t)i * run_stride, length,   \
                         counters, extrema);                                                                           \
    }
HISTOGRAM_ENTRY(f32, 4)
HISTOGRAM_ENTRY(bf16, 2)
HISTOGRAM_ENTRY(f16, 2)
HISTOGRAM_ENTRY(f64, 8) /* all tables have this kernel */

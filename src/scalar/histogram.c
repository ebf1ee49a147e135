/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable histogram: the definition the other instruction sets are checked against, and what they finish runs with.
 * Counters: 32 bits in the first array alone; element by element, so there is no tail. */
#include "kernels/kernel_histogram.h"

#include "templates/histogram_elements.inl.h"

QOBS_HISTOGRAM_ROWS(qobs_histogram_rows_f32_scalar)
{
    for (size_t i = 0; i < runs; i++)
        add_elements(load_f32, 4, binning, (const unsigned char *)x + (ptrdiff_t)i * run_stride, length, counters,
                     extrema);
}

QOBS_HISTOGRAM_ROWS(qobs_histogram_rows_bf16_scalar)
{
    for (size_t i = 0; i < runs; i++)
        add_elements(load_bf16, 2, binning, (const unsigned char *)x + (ptrdiff_t)i * run_stride, length, counters,
                     extrema);
}

QOBS_HISTOGRAM_ROWS(qobs_histogram_rows_f16_scalar)
{
    for (size_t i = 0; i < runs; i++)
        add_elements(load_f16, 2, binning, (const unsigned char *)x + (ptrdiff_t)i * run_stride, length, counters,
                     extrema);
}

QOBS_HISTOGRAM_ROWS(qobs_histogram_rows_f64_scalar)
{
    for (size_t i = 0; i < runs; i++)
        add_elements(load_f64, 8, binning, (const unsigned char *)x + (ptrdiff_t)i * run_stride, length, counters,
                     extrema);
}

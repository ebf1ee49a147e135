/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One element width of src/scalar/absmax.c. */

#include "templates/width_begin.h"

#include "templates/minmax_key.inl.h"
#include "templates/absmax_elements.inl.h"

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf,
                    unsigned char *absmax, ptrdiff_t out_step, struct nonfinite_count *nonfinite)
{
    for (size_t i = 0; i < runs; i++) {
        KEY magnitude = 0;
        K(scan_magnitudes)(x, length, inf, &magnitude, nonfinite);
        K(merge_magnitude)(magnitude, absmax);
        x += run_stride;
        absmax += out_step;
    }
}

static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                       unsigned char *absmax, struct nonfinite_count *nonfinite)
{
    for (size_t r = 0; r < rows; r++)
        K(rows)(x + (ptrdiff_t)r * row_stride, sizeof(BITS), columns, 1, inf, absmax, sizeof(BITS), nonfinite);
}

#include "templates/width_end.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One element width of src/scalar/minmax.c. */

#include "templates/width_begin.h"

#include "templates/minmax_key.inl.h"

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf,
                    unsigned char *min, unsigned char *max, ptrdiff_t out_step, struct nonfinite_count *nonfinite)
{
    for (size_t i = 0; i < runs; i++) {
        KEY lo = K(key_of_bits)(K(load_bits)(min)), hi = K(key_of_bits)(K(load_bits)(max));
        K(scan_elements)(x, length, inf, &lo, &hi, nonfinite);
        K(merge_keys)(lo, hi, min, max);
        x += run_stride;
        min += out_step;
        max += out_step;
    }
}

static void K(row_panels)(const unsigned char *x, ptrdiff_t row_stride, size_t panels, size_t rows, size_t runs,
                          size_t length, BITS inf, unsigned char *min, unsigned char *max,
                          struct nonfinite_count *nonfinite)
{
    for (size_t b = 0; b < panels; b++, min += runs * sizeof(BITS), max += runs * sizeof(BITS))
        for (size_t r = 0; r < rows; r++, x += row_stride)
            K(rows)(x, (ptrdiff_t)(length * sizeof(BITS)), runs, length, inf, min, max, sizeof(BITS), nonfinite);
}

static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                       unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite)
{
    for (size_t r = 0; r < rows; r++)
        K(rows)(x + (ptrdiff_t)r * row_stride, sizeof(BITS), columns, 1, inf, min, max, sizeof(BITS), nonfinite);
}

#include "templates/width_end.h"

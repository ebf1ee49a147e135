/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One element width of src/scalar/indexed.c. */

#include "templates/width_begin.h"

#include "templates/minmax_key.inl.h"

static void K(indexed)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, const uint32_t *group,
                       size_t groups,
                       /* NOLINTNEXTLINE(readability-non-const-parameter): other instruction sets work in scratch */
                       BITS inf, unsigned char *min, unsigned char *max, unsigned char *scratch,
                       struct nonfinite_count *nonfinite)
{
    (void)scratch;
    for (; rows > 0; rows--, x += row_stride, min += groups * sizeof(BITS), max += groups * sizeof(BITS))
        for (size_t j = 0; j < columns; j++) {
            const size_t at = group[j] * sizeof(BITS);
            KEY lo = K(key_of_bits)(K(load_bits)(min + at)), hi = K(key_of_bits)(K(load_bits)(max + at));
            K(scan_elements)(x + j * sizeof(BITS), 1, inf, &lo, &hi, nonfinite);
            K(merge_keys)(lo, hi, min + at, max + at);
        }
}

#include "templates/width_end.h"

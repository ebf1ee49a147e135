/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The largest magnitude in plain C, as minmax_plain.inl.h, whose limits hold. Included by src/ISA/absmax.c once per
 * WIDTH.
 *
 * Accumulators: integers of bits without the sign; none can overflow. */
#include "templates/width_begin.h"

#include "number/grid.h"
#include "templates/minmax_key.inl.h"
#include "templates/absmax_elements.inl.h"

/* The magnitude of n elements, infinity or above if one is not finite. */
static inline KEY K(plain_absmax)(const unsigned char *x, size_t n)
{
    KEY max = 0;
    for (size_t i = 0; i < n; i++)
        max = K(key_max)(max, (KEY)(K(load_bits)(x + i * sizeof(BITS)) & (BITS)MOST_POSITIVE));
    return max;
}

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf,
                    unsigned char *absmax, ptrdiff_t out_step, struct nonfinite_count *nonfinite)
{
    for (size_t i = 0; i < runs; i++, x += run_stride, absmax += out_step)
        for (size_t done = 0, n; done < length; done += n) {
            n = length - done < K(PLAIN_BLOCK) ? length - done : K(PLAIN_BLOCK);
            KEY magnitude = K(plain_absmax)(x + done * sizeof(BITS), n);
            if (magnitude >= (KEY)inf) {
                magnitude = 0;
                K(scan_magnitudes)(x + done * sizeof(BITS), n, inf, &magnitude, nonfinite);
            }
            K(merge_magnitude)(magnitude, absmax);
        }
}

static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                       unsigned char *absmax, struct nonfinite_count *nonfinite)
{
    for (size_t r = 0; r < rows; r++, x += row_stride) {
        if (K(plain_absmax)(x, columns) >= (KEY)inf) {
            K(rows)(x, sizeof(BITS), columns, 1, inf, absmax, sizeof(BITS), nonfinite);
            continue;
        }
        NO_DEPENDENCE
        for (size_t j = 0; j < columns * sizeof(BITS); j += sizeof(BITS))
            K(merge_magnitude)((KEY)(K(load_bits)(x + j) & (BITS)MOST_POSITIVE), absmax + j);
    }
}

#include "templates/width_end.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One element width of plain_absmax.c: magnitudes as integers. */
#include "templates/width_begin.h"

#include "templates/minmax_key.inl.h"
#include "templates/absmax_elements.inl.h"

typedef BITS __attribute__((aligned(1), may_alias)) K(any);

static void K(rows)(const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length, BITS inf,
                    unsigned char *absmax, ptrdiff_t out_step, struct nonfinite_count *nonfinite)
{
    for (; runs > 0; runs--, x += run_stride, absmax += out_step) {
        KEY largest = 0;
        for (size_t i = 0; i < length; i++) {
            const KEY magnitude = (KEY)(((const K(any) *)x)[i] & ((BITS) ~(BITS)0 >> 1));
            largest = magnitude > largest ? magnitude : largest;
        }
        if ((BITS)largest >= inf) { /* not all are finite */
            largest = 0;
            K(scan_magnitudes)(x, length, inf, &largest, nonfinite);
        }
        K(merge_magnitude)(largest, absmax);
    }
}

/* A row of finite elements; at any address. */
static void K(row_of_columns)(const K(any) *restrict x, size_t columns, K(any) *restrict absmax)
{
    for (size_t j = 0; j < columns; j++) {
        const BITS magnitude = x[j] & ((BITS) ~(BITS)0 >> 1);
        absmax[j] = magnitude > absmax[j] ? magnitude : absmax[j];
    }
}

static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                       unsigned char *absmax, struct nonfinite_count *nonfinite)
{
    for (; rows > 0; rows--, x += row_stride) {
        const K(any) *const v = (const K(any) *)x;
        BITS largest = 0;
        for (size_t j = 0; j < columns; j++) {
            const BITS magnitude = v[j] & ((BITS) ~(BITS)0 >> 1);
            largest = magnitude > largest ? magnitude : largest;
        }
        if (largest < inf)
            K(row_of_columns)(v, columns, (K(any) *)absmax);
        else
            K(rows)(x, sizeof(BITS), columns, 1, inf, absmax, sizeof(BITS), nonfinite);
    }
}

#include "templates/width_end.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "reference.h"

#include <math.h>

/* Merges n elements, `step` bytes apart, into one pair. */
static void merge(const struct dtype *dtype, const unsigned char *x, ptrdiff_t step, size_t n, unsigned char *min,
                  unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    uint64_t min_bits = load_bits(dtype, min), max_bits = load_bits(dtype, max);
    double lo = value_of_bits(dtype, min_bits), hi = value_of_bits(dtype, max_bits);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++) {
        const uint64_t bits = load_bits(dtype, x + i * step);
        const double value = value_of_bits(dtype, bits);
        nonfinite->nan += isnan(value) != 0;
        nonfinite->inf += isinf(value) != 0;
        if (value < lo) { /* never for NaN */
            lo = value;
            min_bits = bits;
        }
        if (value > hi) {
            hi = value;
            max_bits = bits;
        }
    }
    store_bits(dtype, min, lo == 0 ? 0 : min_bits);
    store_bits(dtype, max, hi == 0 ? 0 : max_bits);
}

void reference_rows(const struct dtype *dtype, const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length,
                    unsigned char *min, unsigned char *max, ptrdiff_t out_stride, struct qobs_nonfinite *nonfinite)
{
    const ptrdiff_t size = (ptrdiff_t)dtype->size;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++)
        merge(dtype, x + i * run_stride, size, length, min + i * out_stride * size, max + i * out_stride * size, nonfinite);
}

void reference_columns(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns,
                       unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    for (size_t j = 0; j < columns * dtype->size; j += dtype->size)
        merge(dtype, x + j, row_stride, rows, min + j, max + j, nonfinite);
}

void reference_indexed(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns,
                       const uint32_t *group, size_t groups, unsigned char *min, unsigned char *max,
                       struct qobs_nonfinite *nonfinite)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j++) {
            const size_t to = (r * groups + group[j]) * dtype->size;
            merge(dtype, x + (ptrdiff_t)r * row_stride + (ptrdiff_t)(j * dtype->size), 0, 1, min + to, max + to, nonfinite);
        }
}

/* The same for the largest magnitude. */
static void merge_magnitudes(const struct dtype *dtype, const unsigned char *x, ptrdiff_t step, size_t n, unsigned char *absmax,
                             struct qobs_nonfinite *nonfinite)
{
    uint64_t most_bits = load_bits(dtype, absmax);
    double most = value_of_bits(dtype, most_bits);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++) {
        const uint64_t bits = load_bits(dtype, x + i * step);
        const double magnitude = fabs(value_of_bits(dtype, bits));
        nonfinite->nan += isnan(magnitude) != 0;
        nonfinite->inf += isinf(magnitude) != 0;
        if (magnitude > most) {
            most = magnitude;
            most_bits = bits & ~dtype->sign;
        }
    }
    store_bits(dtype, absmax, most_bits);
}

void reference_absmax_rows(const struct dtype *dtype, const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length,
                           unsigned char *absmax, ptrdiff_t out_stride, struct qobs_nonfinite *nonfinite)
{
    const ptrdiff_t size = (ptrdiff_t)dtype->size;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++)
        merge_magnitudes(dtype, x + i * run_stride, size, length, absmax + i * out_stride * size, nonfinite);
}

void reference_absmax_columns(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                              size_t columns, unsigned char *absmax, struct qobs_nonfinite *nonfinite)
{
    for (size_t j = 0; j < columns * dtype->size; j += dtype->size)
        merge_magnitudes(dtype, x + j, row_stride, rows, absmax + j, nonfinite);
}

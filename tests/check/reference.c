/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "reference.h"

static void count(const struct dtype *dtype, int64_t magnitude, struct nonfinite_count *nonfinite)
{
    nonfinite->nan += magnitude > (int64_t)dtype->infinity;
    nonfinite->inf += magnitude == (int64_t)dtype->infinity;
}

/* Merges elements of a size that the compiler knows. order_of_bits orders them, and is checked against decoded values:
 * decoding here would take most of the time. */
static inline void merge_sized(const struct dtype *dtype, size_t size, const unsigned char *x, ptrdiff_t step, size_t n,
                               unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite)
{
    const int64_t infinity = (int64_t)dtype->infinity;
    uint64_t min_bits = load_sized(min, size), max_bits = load_sized(max, size);
    int64_t lo = order_of_bits(dtype, min_bits), hi = order_of_bits(dtype, max_bits);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++) {
        const uint64_t bits = load_sized(x + i * step, size);
        const int64_t order = order_of_bits(dtype, bits);
        count(dtype, order < 0 ? -order : order, nonfinite);
        if (order < lo && order >= -infinity) { /* never for NaN */
            lo = order;
            min_bits = bits;
        }
        if (order > hi && order <= infinity) {
            hi = order;
            max_bits = bits;
        }
    }
    store_bits(dtype, min, lo == 0 ? 0 : min_bits);
    store_bits(dtype, max, hi == 0 ? 0 : max_bits);
}

/* Merges n elements, `step` bytes apart, into one pair. */
static void merge(const struct dtype *dtype, const unsigned char *x, ptrdiff_t step, size_t n, unsigned char *min,
                  unsigned char *max, struct nonfinite_count *nonfinite)
{
    if (dtype->size == 2)
        merge_sized(dtype, 2, x, step, n, min, max, nonfinite);
    else if (dtype->size == 4)
        merge_sized(dtype, 4, x, step, n, min, max, nonfinite);
    else
        merge_sized(dtype, 8, x, step, n, min, max, nonfinite);
}

void reference_rows(const struct dtype *dtype, const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length,
                    unsigned char *min, unsigned char *max, ptrdiff_t out_stride, struct nonfinite_count *nonfinite)
{
    const ptrdiff_t size = (ptrdiff_t)dtype->size;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++)
        merge(dtype, x + i * run_stride, size, length, min + i * out_stride * size, max + i * out_stride * size,
              nonfinite);
}

void reference_row_panels(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t panels,
                          size_t rows, size_t runs, size_t length, unsigned char *min, unsigned char *max,
                          struct nonfinite_count *nonfinite)
{
    const size_t bytes = length * dtype->size;
    for (size_t r = 0; r < panels * rows; r++)
        for (size_t i = 0; i < runs; i++) {
            const size_t to = (r / rows * runs + i) * dtype->size;
            merge(dtype, x + (ptrdiff_t)r * row_stride + (ptrdiff_t)(i * bytes), (ptrdiff_t)dtype->size, length,
                  min + to, max + to, nonfinite);
        }
}

void reference_columns(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                       size_t columns, unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite)
{
    for (size_t j = 0; j < columns * dtype->size; j += dtype->size)
        merge(dtype, x + j, row_stride, rows, min + j, max + j, nonfinite);
}

void reference_indexed(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                       size_t columns, const uint32_t *group, size_t groups, unsigned char *min, unsigned char *max,
                       struct nonfinite_count *nonfinite)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j++) {
            const size_t to = (r * groups + group[j]) * dtype->size;
            merge(dtype, x + (ptrdiff_t)r * row_stride + (ptrdiff_t)(j * dtype->size), 0, 1, min + to, max + to,
                  nonfinite);
        }
}

/* The same for the largest magnitude. */
static inline void merge_magnitudes_sized(const struct dtype *dtype, size_t size, const unsigned char *x,
                                          ptrdiff_t step, size_t n, unsigned char *absmax,
                                          struct nonfinite_count *nonfinite)
{
    const int64_t infinity = (int64_t)dtype->infinity;
    int64_t most = order_of_bits(dtype, load_sized(absmax, size));
    for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++) {
        const int64_t magnitude = order_of_bits(dtype, load_sized(x + i * step, size) & ~dtype->sign);
        count(dtype, magnitude, nonfinite);
        if (magnitude > most && magnitude <= infinity)
            most = magnitude;
    }
    store_bits(dtype, absmax, (uint64_t)most);
}

static void merge_magnitudes(const struct dtype *dtype, const unsigned char *x, ptrdiff_t step, size_t n,
                             unsigned char *absmax, struct nonfinite_count *nonfinite)
{
    if (dtype->size == 2)
        merge_magnitudes_sized(dtype, 2, x, step, n, absmax, nonfinite);
    else if (dtype->size == 4)
        merge_magnitudes_sized(dtype, 4, x, step, n, absmax, nonfinite);
    else
        merge_magnitudes_sized(dtype, 8, x, step, n, absmax, nonfinite);
}

void reference_absmax_rows(const struct dtype *dtype, const unsigned char *x, ptrdiff_t run_stride, size_t runs,
                           size_t length, unsigned char *absmax, ptrdiff_t out_stride,
                           struct nonfinite_count *nonfinite)
{
    const ptrdiff_t size = (ptrdiff_t)dtype->size;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++)
        merge_magnitudes(dtype, x + i * run_stride, size, length, absmax + i * out_stride * size, nonfinite);
}

void reference_absmax_columns(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                              size_t columns, unsigned char *absmax, struct nonfinite_count *nonfinite)
{
    for (size_t j = 0; j < columns * dtype->size; j += dtype->size)
        merge_magnitudes(dtype, x + j, row_stride, rows, absmax + j, nonfinite);
}

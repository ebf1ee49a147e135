/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The reference of the scalar kernels: the contract of src/kernels/ restated, element by element, by the order of
 * decoded values (order_of_bits), without any of the library's code. */
#ifndef QOBS_CHECK_REFERENCE_H
#define QOBS_CHECK_REFERENCE_H

#include "values.h"

void reference_rows(const struct dtype *dtype, const unsigned char *x, ptrdiff_t run_stride, size_t runs, size_t length,
                    unsigned char *min, unsigned char *max, ptrdiff_t out_stride, struct nonfinite_count *nonfinite);

void reference_row_panels(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t panels,
                          size_t rows, size_t runs, size_t length, unsigned char *min, unsigned char *max,
                          struct nonfinite_count *nonfinite);
void reference_columns(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                       size_t columns, unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite);

void reference_indexed(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                       size_t columns, const uint32_t *group, size_t groups, unsigned char *min, unsigned char *max,
                       struct nonfinite_count *nonfinite);

void reference_absmax_rows(const struct dtype *dtype, const unsigned char *x, ptrdiff_t run_stride, size_t runs,
                           size_t length, unsigned char *absmax, ptrdiff_t out_stride,
                           struct nonfinite_count *nonfinite);

void reference_absmax_columns(const struct dtype *dtype, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                              size_t columns, unsigned char *absmax, struct nonfinite_count *nonfinite);

#endif

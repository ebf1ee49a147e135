/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales and zero points in the dtypes that a checkpoint stores. */
#pragma once

#include <stddef.h>

#include "files/file_dtype.h"
#include "qobs/checkpoint.h"

/* Returns the number in memory of a dtype, at any alignment, and element i of an array. */
double number_at(const void *at, qobs_dtype dtype);
double number_of(const void *array, qobs_dtype dtype, size_t i);

/* Returns an array of *count numbers as a tensor. */
qobs_tensor tensor_of_array(const void *data, qobs_dtype dtype, const int64_t *count);

/* Writes numbers `first` to `first` + n - 1 of an array as floats. */
void floats_of(const void *array, qobs_dtype dtype, size_t first, size_t n, float *out);

/* Finds the smallest and the largest number of an array of F32, BF16 or F16; NaN are skipped. */
void extrema_of(const void *array, qobs_dtype dtype, size_t n, double *min, double *max);

/* Stores a number that is one of the dtype. */
void stored_put_number(void *to, qobs_dtype dtype, double value);

/* Encodes n scales: FILE_U8 as exponents of powers of two, FILE_F8_E4M3 as codes, FILE_NONE as they are. A scale that
 * is not finite has exponent 127, as the conversion to integers of x86 gives it. Returns the bytes written. */
size_t stored_scales(const void *scale, qobs_dtype dtype, size_t n, enum file_dtype stored, void *out);

/* Returns the number that element i of stored scales means, by the dtype of the file: BF16, F16, F32, F8_E4M3 or U8. */
double stored_scale_number(const void *data, enum file_dtype dtype, size_t i);

/* Encodes n zero points as FILE_I8 or FILE_F8_E4M3. Returns the bytes written. */
size_t stored_zero_points(const void *zero_point, qobs_dtype dtype, size_t n, enum file_dtype stored, void *out);

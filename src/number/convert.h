/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Single numbers between the four observable dtypes, double and int32. An element may lie at any address. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/tensor.h"

/* One element of an observable dtype as a double (exact). */
double qobs_element(const void *element, qobs_dtype dtype);

/* Stores `value`, rounded to the dtype. */
void qobs_put_element(void *to, qobs_dtype dtype, double value);

/* Stores n values from `first` on into an array of the dtype, rounded to it. */
void qobs_store_doubles(void *array, qobs_dtype dtype, size_t first, size_t n, const double *values);

/* Rounds `value` to the dtype. */
double qobs_round_to(qobs_dtype dtype, double value);

/* x as an int32. NaN and values that do not fit become the smallest integer, as in the conversion of x86, which
 * upstream's results depend on. */
static inline int32_t int32_of_double(double x) { return x > -0x1p31 - 1 && x < 0x1p31 ? (int32_t)x : INT32_MIN; }

/* A number of any dtype as a double. An integer of 64 bits is rounded. */
double qobs_number_of(const void *number, qobs_dtype dtype);

/* Element i of a 1-dimensional view, as a double. */
static inline double qobs_number_at(const struct view *view, int64_t i)
{
    return qobs_number_of(view->data + i * view->strides[0], view->dtype);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Converts scales and zero points of the caller to the types of the fake-quantize kernels. */
#pragma once

#include "number/convert.h"
#include "number/quantizer.h"

struct qparam_source {
    qobs_dtype x_dtype;
    const void *scale;
    qobs_dtype scale_dtype;
    const void *zero_point; /* NULL: there is none */
    qobs_dtype zero_point_dtype;
    const float *global_scale; /* NULL: there is none */
    bool positive_zero;        /* without zero points: +0 is added */
    bool in_float;             /* arithmetic with scale is in float, not in the dtype of x */
    float zero_scale;          /* as in struct quantizer; F64 has none */
};

/* The qparams of a column panel, converted together; they fit L1. */
enum { PANEL = 1024 };

struct qparam_panel {
    union {
        float single[PANEL];
        double wide[PANEL]; /* for F64 */
    } scale, zero_point_add, zero_point_sub;
};

/* Arrays of float, or of double for F64. */
struct qparam_arrays {
    void *scale, *zero_point_add, *zero_point_sub;
};

/* Reads n qparams from `first` on, `stride` apart, into arrays of that capacity; zero points only if there are any.
 * Floats that are NaN lose sign and payload. */
void qobs_read_qparams(const struct qparam_source *q, int64_t first, int64_t stride, int64_t n,
                       const struct qparam_arrays *to);

/* Sets n <= PANEL zero points that change nothing, not even the sign of a zero: -0 is added and +0 subtracted; with
 * positive_zero +0 is added, which changes -0. The column kernels always have zero points. */
void qobs_no_zero_points(const struct qparam_source *q, int64_t n, struct qparam_panel *panel);

/* Element i of an array of scales or zero points of any dtype and alignment. */
static inline double qobs_qparam_at(const void *array, qobs_dtype dtype, int64_t i)
{
    return qobs_number_of((const unsigned char *)array + (size_t)i * qobs_dtype_size(dtype), dtype);
}

/* torch requires zero points to be among the quantized integers; fails if one of n is not. */
int qobs_check_torch_zero_points(const struct quantizer *quantizer, const void *zero_points, qobs_dtype dtype,
                                 int64_t n, qobs_error *error);

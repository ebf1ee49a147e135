/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The caller's scales and zero points as fake-quantize kernels want them. */
#ifndef QOBS_FORMAT_QPARAMS_H
#define QOBS_FORMAT_QPARAMS_H

#include "qobs/qobs.h"

struct qparam_source {
    qobs_dtype x_dtype;
    const void *scale;
    qobs_dtype scale_dtype;
    const void *zero_point; /* NULL: there is none */
    qobs_dtype zero_point_dtype;
    const float *global_scale; /* NULL: there is none */
    bool in_float;             /* what is computed with scale is float, not the dtype of x */
};

/* Qparams are made ready a strip at a time, small enough for a first-level cache. */
enum { STRIP = 1024 };

struct strip {
    union {
        float single[STRIP];
        double wide[STRIP]; /* for F64 */
    } scale, zero_point_add, zero_point_sub;
};

/* Of the same two types. */
struct qparam_arrays {
    void *scale, *zero_point_add, *zero_point_sub;
};

/* n qparams from `first` on, `stride` apart, into arrays with room for them; of the zero points only if there are any. */
void qobs_read_qparams(const struct qparam_source *q, int64_t first, int64_t stride, int64_t n,
                       const struct qparam_arrays *to);

/* n <= STRIP times none, for the column form, which always has zero points: -0 is added and +0 taken away, which changes
 * nothing, not even the sign of a zero. */
void qobs_no_zero_points(const struct qparam_source *q, int64_t n, struct strip *strip);

/* Element i of an array of scales or zero points of any dtype, at any address. */
double qobs_qparam_at(const void *array, qobs_dtype dtype, int64_t i);

#endif

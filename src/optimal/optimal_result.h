/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The result of a search for optimal scales: one entry for each qparam. */
#pragma once

#include "base/runtime.h"
#include "measure/importance.h"

struct optimal_result {
    size_t qparams; /* 0: nothing has been searched */
    double *error, *minmax_error, *energy; /* of the result; of the scale of the range; of zeros in its place */
    float *scale;                          /* e4m3: under the global scale, as it is stored */
    int32_t *zero_point;

    /* Blocks of several groups (hessian_block_size above the group), one entry for each row; else rows is 0. */
    size_t rows;
    double *row_error, *start_row_error;

    double amax;                 /* of the global scale; without one 0 */
    bool fused;                  /* that amax is not the tensor's own */
    bool weighted;               /* errors are weighted by activations */
    enum importance_fault fault; /* the reason if they are not, though the preset weighs */
};

/* Allocates arrays in an empty result. */
int qobs_optimal_result_reserve(const struct runtime *runtime, struct optimal_result *result, size_t qparams,
                                size_t rows, qobs_error *error);
int qobs_optimal_result_copy(const struct runtime *runtime, struct optimal_result *to,
                             const struct optimal_result *from, qobs_error *error);
void qobs_optimal_result_release(const struct runtime *runtime, struct optimal_result *result);

/* Writes scales of dtype F32, BF16, F16 or F64, and zero points of dtype I8, or zeros of one byte. Either may be NULL.
 */
void qobs_optimal_result_write(const struct optimal_result *result, qobs_dtype dtype, void *scale, void *zero_point);

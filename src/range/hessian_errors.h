/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors e^T H e of candidate scales for a block of columns, as Model-Optimizer's local Hessian has them
 * (modelopt/torch/quantization/model_calib.py, 0.47). H is the mean of x x^T over the tokens of a gram. */
#pragma once

#include "kernels/kernels.h"
#include "measure/gram.h"

/* Elements of a block: a multiple of 8, at most HESSIAN_ERRORS. Matrices of that many doubles are on the stack. */
enum { HESSIAN_ERRORS = 512 };

/* The candidates of a qparam, as struct candidates (candidate_errors.h) prepares them. */
struct hessian_candidates {
    const struct quantizer *quantizer; /* of `up` and `down` */
    size_t count;
    const float *up;    /* factors before rounding; without `down` scales of e2m1 */
    const double *down; /* factors after rounding, or NULL */
};

/* Adds to error[c] the error of the elements x of gram block `index` with candidate c, in double. Elements that are not
 * finite make all errors NaN. The bits do not depend on the instruction set. */
void qobs_hessian_errors(const struct kernel_table *kernels, const struct gram *gram, int64_t index,
                         const struct hessian_candidates *candidates, const float *x, double *error);

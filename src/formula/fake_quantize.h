/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Fake-quantize: every element of a tensor to the quantized number its qparam gives it, and back. */
#ifndef QOBS_FORMAT_FAKE_QUANTIZE_H
#define QOBS_FORMAT_FAKE_QUANTIZE_H

#include "kernels/kernels.h"
#include "number/format.h"
#include "plan/plan.h"

/* Scale and zero point of every qparam of a plan, in the order of the flattened qparam_shape. The arithmetic is that of the
 * dtype of x and scale together, as upstream's: float where x is BF16 or F16 and scale, or scale / global_scale, is float;
 * where x is F64 and scale is float, double up to the rounding and float from there. */
struct fake_quantize {
    const struct runtime *runtime;
    const struct qobs_kernels *kernels;
    struct qobs_quantizer quantizer; /* all but in_float */
    const void *scale;
    qobs_dtype scale_dtype; /* of x, or F32 */
    const void *zero_point; /* NULL: there is none, which is not the same as 0 for an element that is -0 */
    qobs_dtype zero_point_dtype;
    const float *global_scale; /* every scale is divided by it; NULL: there is none */
};

/* Writes to out, laid out as the value of out_plan, the tensor at x, laid out as the value of plan. The plans are for one
 * shape and configuration and differ in strides at most; out may be x if they do not, otherwise the memory must not overlap.
 * g_idx counts in `plan`. Runs on the runtime's executor. Fails only for want of memory, which only g_idx needs. */
int qobs_fake_quantize_plan(const struct fake_quantize *f, const qobs_plan *plan, const void *x, const qobs_plan *out_plan,
                            void *out, qobs_error *error);

#endif

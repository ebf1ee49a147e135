/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantize, dequantize and fake-quantize: quantizes every element of a tensor with its qparam to a code, a code to the
 * number that it stands for, or does both. */
#pragma once

#include "kernels/kernels.h"
#include "number/format.h"
#include "plan/plan.h"

/* Codes have one byte. */
enum quantize_direction { FAKE_QUANTIZE, TO_CODES, FROM_CODES };

/* Scale and zero point of every qparam of a plan, in the order of the flattened qparam_shape. The arithmetic is
 * upstream's: that of the dtypes of x and scale together. If x is BF16 or F16 and scale, or scale / global_scale, is
 * float, it is float. If x is F64 and scale is float, it is double up to the rounding and float afterwards. */
struct fake_quantize {
    const struct runtime *runtime;
    const struct kernel_table *kernels;
    struct quantizer quantizer; /* all but in_float */
    const void *scale;
    qobs_dtype scale_dtype; /* of x, or F32 */
    const void *zero_point; /* NULL: none; a zero point of 0 would make +0 of -0 */
    qobs_dtype zero_point_dtype;
    bool positive_zero;        /* without zero points: -0 becomes +0, as in compressed-tensors' e2m1 */
    const float *global_scale; /* every scale is divided by it; NULL: there is none */
    enum quantize_direction direction;
    enum code_kind kind; /* of the codes */
    double *sum;         /* TO_CODES: two sums to add to, as kernel_quantize.h has them; NULL: none */
};

/* Reads x, laid out as the value of plan, and writes out, laid out as the value of out_plan. The plans have one shape
 * and granularity and differ in strides at most. If the strides are equal, out may be x; otherwise the memory must not
 * overlap. g_idx is that of `plan`. Runs on the runtime's executor. Fails only if memory runs out, which only g_idx
 * needs. Codes are laid out as numbers of one byte; both plans have the dtype of the numbers. */
int qobs_fake_quantize_plan(const struct fake_quantize *f, const qobs_plan *plan, const void *x,
                            const qobs_plan *out_plan, void *out, qobs_error *error);

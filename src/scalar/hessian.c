/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable search by a Hessian; contract and limits in templates/hessian.inl.h. */
#include "scalar/simd.h"

#ifndef FP_FAST_FMAF
#define HESSIAN_MULTIPLY_ADD(a, b, c) f32x16_add(f32x16_mul(a, b), c)
#endif

#include "templates/hessian.inl.h"
#include "templates/gptq.inl.h"

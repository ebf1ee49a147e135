/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable search by a Hessian; contract and limits in templates/hessian.inl.h. */
#include "scalar/simd.h"
#include "scalar/tuning.h"

#ifndef FP_FAST_FMAF
#define HESSIAN_MULTIPLY_ADD(a, b, c) f32x16_add(f32x16_mul(a, b), c)
#endif

#define ENTRY_(name) name##_scalar
#define ENTRY(name) ENTRY_(name)
#include "templates/hessian.inl.h"
#include "templates/gptq.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 search by a Hessian; contract and limits in templates/hessian.inl.h. */
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file needs -mavx2 -mfma -mf16c"
#endif

#include "avx2/simd.h"
#include "avx2/tuning.h"

#define ENTRY_(name) name##_avx2
#define ENTRY(name) ENTRY_(name)
#include "templates/hessian.inl.h"
#include "templates/gptq.inl.h"

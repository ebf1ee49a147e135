/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 search by a Hessian; contract and limits in templates/hessian.inl.h. */
#include "avx512/simd.h"
#include "avx512/tuning.h"

#define ENTRY_(name) name##_avx512
#define ENTRY(name) ENTRY_(name)
#include "templates/hessian.inl.h"
#include "templates/gptq.inl.h"

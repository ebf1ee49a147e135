/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 search by a Hessian; contract and limits in templates/hessian.inl.h. */
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "this file needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include "avx512/simd.h"
#include "avx512/tuning.h"

#define ENTRY_(name) name##_avx512
#define ENTRY(name) ENTRY_(name)
#include "templates/hessian.inl.h"
#include "templates/gptq.inl.h"

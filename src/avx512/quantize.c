/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 fake-quantize; contract and limits in templates/quantize.inl.h. */
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "this file needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include "avx512/code_lookup.h"
#include "avx512/simd.h"
#include "avx512/prefer_avx2.h"

#define ENTRY_(name) name##_avx512
#define ENTRY(name) ENTRY_(name)
#include "templates/quantize.inl.h"

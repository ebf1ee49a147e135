/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 search for optimal scales; contract and limits in the templates. */
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file needs -mavx2 -mfma -mf16c"
#endif

#define ENTRY_(name) name##_avx2
#define ENTRY(name) ENTRY_(name)
#include "templates/optimal_error.inl.h"

#include "templates/optimal_pack.h"

#include "templates/optimal_curve.inl.h"

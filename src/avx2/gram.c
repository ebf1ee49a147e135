/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 Gram of columns; contract and limits in templates/gram.inl.h. */
#include "avx2/simd.h"
#include "avx2/tuning.h"

#define ENTRY_(name) name##_avx2
#define ENTRY(name) ENTRY_(name)
#include "templates/gram.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 minimum and maximum of columns in groups; contract and limits in templates/indexed.inl.h. */
#include "avx512/prefer_avx2.h"
#include "avx512/simd.h"

#define PERMUTED "avx512/indexed_permuted.h"
#include "templates/indexed_all.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 minimum and maximum of columns in groups; contract and limits in templates/indexed.inl.h. */
#include "avx512/prefer_avx2.h"
#include "avx512/simd.h"

#define WIDTH 16
#define PERMUTED "avx512/indexed_permuted.h"
#include "templates/indexed.inl.h"
#undef PERMUTED
#define WIDTH 32
#include "templates/indexed.inl.h"
#define WIDTH 64
#include "templates/indexed.inl.h"

#include "templates/indexed_entries.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 min/max of columns in groups; contract and limits in src/indexed.inl.h. */
#include "avx512/transpose.h"

#include "kernels.h"

#define WIDTH 16
#include "indexed.inl.h"
#undef WIDTH
#define WIDTH 32
#include "indexed.inl.h"
#undef WIDTH
#define WIDTH 64
#include "indexed.inl.h"
#undef WIDTH

#define ENTRY(name) name##_avx512
#include "indexed_entries.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 min/max; contract and limits in src/minmax.inl.h. */
#include "avx512/elsewhere.h"
#include "avx512/vec.h"

#include "kernels.h"

#define WIDTH 16
#include "minmax.inl.h"
#undef WIDTH
#define WIDTH 32
#include "minmax.inl.h"
#undef WIDTH
#define WIDTH 64
#include "minmax.inl.h"
#undef WIDTH

#define ENTRY(name) name##_avx512
#include "minmax_entries.inl.h"

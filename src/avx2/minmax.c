/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 min/max; contract and limits in src/minmax.inl.h. */
#include "avx2/vec.h"

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

#define ENTRY(name) name##_avx2
#include "minmax_entries.inl.h"

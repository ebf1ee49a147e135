/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 minimum and maximum; contract and limits in templates/minmax.inl.h. */
#include "avx512/tuning.h"
#include "avx512/simd.h"

#include "kernels/kernel_minmax.h"

#define WIDTH 16
#include "templates/minmax.inl.h"
#define WIDTH 32
#include "templates/minmax.inl.h"
#define WIDTH 64
#include "templates/minmax_plain.inl.h"

#define ENTRY(name) name##_avx512
#include "templates/minmax_entries.inl.h"

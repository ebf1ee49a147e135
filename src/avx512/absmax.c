/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 absmax; contract and limits in templates/absmax.inl.h. */
#include "avx512/simd.h"

#define WIDTH 16
#include "templates/absmax.inl.h"
#define WIDTH 32
#include "templates/absmax.inl.h"
#define WIDTH 64
#include "templates/absmax_plain.inl.h"

#include "templates/absmax_entries.inl.h"

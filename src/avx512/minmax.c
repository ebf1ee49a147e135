/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 minimum and maximum; contract and limits in templates/minmax.inl.h. */
#include "avx512/simd.h"

#define WIDTH 16
#include "templates/minmax.inl.h"
#define WIDTH 32
#include "templates/minmax.inl.h"
#define WIDTH 64
#include "templates/minmax_plain.inl.h"

#include "templates/minmax_entries.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX2 minimum and maximum of columns in groups; contract and limits in templates/indexed.inl.h. */
#include "avx2/simd.h"

#define WIDTH 16
#include "templates/indexed.inl.h"
#define WIDTH 32
#include "templates/indexed.inl.h"
#define WIDTH 64
#include "templates/indexed.inl.h"

#include "templates/indexed_entries.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 min/max of columns in groups; contract and limits in src/indexed.inl.h. */
#include "avx512/transpose.h"

#include "kernels/kernels.h"

#define WIDTH 16
#define PERMUTED "avx512/indexed_permuted.h"
#include "templates/indexed.inl.h"
#undef PERMUTED
#undef WIDTH
#define WIDTH 32
#include "templates/indexed.inl.h"
#undef WIDTH
#define WIDTH 64
#include "templates/indexed.inl.h"
#undef WIDTH

/* Half vectors are enough. */
#define FEW(name, lanes)                                                                                             \
    if (rows <= (lanes) / 2) {                                                                                       \
        name##_avx2(x, row_stride, rows, columns, group, groups, min, max, scratch, nonfinite);                     \
        return;                                                                                                      \
    }
#define ENTRY(name) name##_avx512
#include "templates/indexed_entries.inl.h"

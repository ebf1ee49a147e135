/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The calls that the kernels for Intel hand to the avx2 table. Measured on the machine of avx512/tuning_intel.h. With
 * prefetch, 512-bit loads come as fast as 256-bit loads, so few calls are left.
 *
 * element: bytes of one element. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "avx512/delegate.h"
#include "avx512/tuning_intel.h"

/* F64 in long runs, which are not prefetched. */
static inline bool prefer_avx2_for_runs(size_t runs, size_t length, size_t element)
{
    return element == 8 && length >= DELEGATED_F64_LENGTH && runs * length >= DELEGATED_ROWS_BYTES / 8;
}

static inline bool prefer_avx2_for_row_panels(size_t elements, size_t element)
{
    (void)elements;
    (void)element;
    return false;
}

/* f32 comes up to 12 % faster from memory. */
static inline bool prefer_avx2_for_columns(size_t elements, size_t element)
{
    return elements >= DELEGATED_COLUMNS_BYTES / element;
}

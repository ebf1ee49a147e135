/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The calls that the avx512 table hands to the avx2 table, and why. Entries ask through DELEGATE_TO_AVX2
 * (templates/entries.h). Measured on the machine of avx512/tuning.h: a load of half a cache line comes 2 to 15 % faster
 * out of the third-level cache and memory than a load of a whole line, if the kernel waits for nothing else there.
 *
 * element: bytes of one element. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "avx512/delegate.h"
#include "avx512/processor.h"
#include "avx512/tuning.h"

/* Runs that exceed L2 together, if they are long enough that the horizontal reduction is not AVX2's bottleneck. */
static inline bool exceed_l2(size_t runs, size_t length, size_t element)
{
    const size_t all = runs * length * element, l3_share = element == 8 ? DELEGATED_L3_F64_BYTES : DELEGATED_L3_BYTES;
    const size_t from_l3 = element == 4 ? DELEGATED_L3_F32_LENGTH : DELEGATED_L3_LENGTH;
    const size_t shortest = all >= l3_share ? from_l3 : element == 8 ? DELEGATED_F64_LENGTH : DELEGATED_LENGTH;
    return length >= shortest && all >= DELEGATED_ROWS_BYTES;
}

/* Runs of one vector. AVX-512 has to shuffle before it can compare; AVX2 compares their halves first and is 6 to 17
 * % faster if they come from L1. From L2 on both wait, and for few groups of runs it makes no difference. */
static inline bool are_vectors_in_l1(size_t runs, size_t length, size_t element)
{
    return element < 8 && length * element == 64 && runs >= 2 * length && runs <= DELEGATED_VECTORS;
}

static inline bool prefer_avx2_for_runs(size_t runs, size_t length, size_t element)
{
    return exceed_l2(runs, length, element) || are_vectors_in_l1(runs, length, element);
}

/* Magnitudes of F64 wait for L3 earlier than minimum and maximum do. Below this size AVX-512 is 10 to 25 % faster. */
static inline bool prefer_avx2_for_magnitudes(size_t runs, size_t length, size_t element)
{
    return prefer_avx2_for_runs(runs, length, element) ||
           (element == 8 && length >= DELEGATED_F64_MAGNITUDES_LENGTH && runs * length * 8 >= DELEGATED_L3_BYTES);
}

/* Row panels that exceed a core's own caches. */
static inline bool prefer_avx2_for_row_panels(size_t elements, size_t element)
{
    return elements >= DELEGATED_ROW_PANELS_BYTES / element;
}

/* Columns from memory come 3 to 8 % faster; from the third-level cache AVX2 is slower. */
static inline bool prefer_avx2_for_columns(size_t elements, size_t element)
{
    return elements >= DELEGATED_COLUMNS_BYTES / element;
}

/* Rows of an indexed call that fill at most half a vector. */
static inline bool prefer_avx2_for_few_rows(size_t rows, size_t element) { return rows <= 64 / element / 2; }

/* Indexed on Intel: AVX2 is 1.1 to 1.3 times as fast for f32 from L3 on and for 16 bits from L2. AVX-512 is 1.5 times
 * as fast for f32 from L2 and 1.2 times for 16 bits from L3. */
static inline bool prefer_avx2_for_indexed(size_t rows, size_t columns, size_t element)
{
    const bool from_l3 = rows * columns >= DELEGATED_INDEXED_BYTES / element;
    return prefer_avx2_for_few_rows(rows, element) ||
           (is_intel() && ((element == 4 && from_l3) || (element == 2 && !from_l3)));
}

/* 4K aliasing: the processor compares only address bits 0 to 11 of a load and of earlier stores. If (out - x) % 4096
 * is 33 to 255, 512-bit loads wait for an unrelated store; 256-bit loads do not. `light`: little work between load
 * and store. Decided by the first run. */
static inline bool prefer_avx2_for_aliased(bool light, const void *x, const void *out)
{
    const uintptr_t behind = ((uintptr_t)out - (uintptr_t)x) % 4096;
    return light && behind > ALIASED_ABOVE_BYTES && behind < ALIASED_BELOW_BYTES;
}

/* Columns of F64 to integers wait for divisions, which 512 bits do not make faster. From L2 AVX2 is 4 to 8 % faster,
 * and up to twice as fast if scales are aliased as above. Small calls would prepare the quantizer twice. */
static inline bool prefer_avx2_for_light_columns(bool light, size_t elements, size_t element)
{
    return light && element == 8 && elements >= DELEGATED_LIGHT_COLUMNS_BYTES / element &&
           elements < DELEGATED_LIGHT_COLUMNS_END_BYTES / element && !is_intel();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The calls that the avx512 table hands to the avx2 table, and why. Entries ask through DELEGATE_TO_AVX2
 * (templates/entries.h), or return what the AVX2 kernel returns. */
#pragma once

#include <stdint.h>

#include "avx512/tuning.h"

#define NAME_AVX2_(function) function##_avx2
#define NAME_AVX2(function) NAME_AVX2_(function)
#define DELEGATE_TO_AVX2(prefer, function, ...)                                                                        \
    if (prefer) {                                                                                                      \
        NAME_AVX2(function)(__VA_ARGS__);                                                                              \
        return;                                                                                                        \
    }

/* Long runs from memory. Zen 4, which has an L1 of 32 KB, reads them 1.1 to 1.2 times as fast by two loads a line as by
 * one (bench/notes/avx512-and-avx2.md); from L1 one load is a quarter faster. F64 is plain C. element: its bytes. */
static inline bool prefer_avx2_for_stream(size_t elements, size_t element)
{
    return element < 8 && elements >= STREAMING_SMALL_L1_BYTES / element && !qobs_avx512_has_large_l1();
}

/* Runs that are reduced one by one; shorter ones share a reduction, which AVX-512 does faster. */
static inline bool prefer_avx2_for_long_runs(size_t runs, size_t length, size_t element)
{
    return length >= REDUCE_RUN_BYTES / element && prefer_avx2_for_stream(runs * length, element);
}

/* Columns of magnitudes from memory, of every type, for the same reason. */
static inline bool prefer_avx2_for_magnitudes_of_columns(size_t elements, size_t element)
{
    return elements >= ABSMAX_STREAMING_BYTES / element && !qobs_avx512_has_large_l1();
}

/* Rows of an indexed call that fill at most half a vector. element: its bytes. */
static inline bool prefer_avx2_for_few_rows(size_t rows, size_t element) { return rows <= 64 / element / 2; }

/* Errors of optimal scales: groups have little for the registers of 512 bits to do. The error of 16 elements takes half
 * the time with AVX2, and that of 128 three quarters. */
static inline bool prefer_avx2_for_few_elements(size_t n) { return n <= 256; }

/* 4K aliasing: the processor compares only address bits 0 to 11 of a load and of earlier stores. If (out - x) % 4096
 * is 33 to 255, 512-bit loads wait for an unrelated store; 256-bit loads do not. `light`: little work between load
 * and store. Decided by the first run. */
static inline bool prefer_avx2_for_aliased(bool light, const void *x, const void *out)
{
    const uintptr_t behind = ((uintptr_t)out - (uintptr_t)x) % 4096;
    return light && behind > ALIASED_ABOVE_BYTES && behind < ALIASED_BELOW_BYTES;
}

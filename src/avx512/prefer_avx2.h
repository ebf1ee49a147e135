/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* When AVX-512 leaves runs and columns to the AVX2 kernels, on a Zen 4. Half a line a load comes 2 to 15 % faster out of the
 * third-level cache and memory than a whole one, while there the kernels wait for nothing else. */
#ifndef QOBS_AVX512_ELSEWHERE_H
#define QOBS_AVX512_ELSEWHERE_H

#include <stdbool.h>
#include <stddef.h>

/* More than the third-level cache usually holds. */
static inline bool in_memory(size_t elements, size_t element) { return elements >= ((size_t)64 << 20) / element; }

/* Runs that a core's own caches do not hold, and of which AVX2 is not bound by the fold: nearer ones have to be longer for that, and those
 * of F32 shorter than others. */
static inline bool far_runs(size_t runs, size_t length, size_t element)
{
    const size_t all = runs * length * element, near = element == 8 ? (size_t)64 << 20 : (size_t)16 << 20;
    const size_t shortest = all >= near ? (element == 4 ? 32 : 128) : element == 8 ? 1024 : 512;
    return length >= shortest && all >= (size_t)2 << 20;
}

/* Runs of one vector, which AVX-512 has to shuffle before it can compare; AVX2 compares their halves first, and is 6 to 17 % faster where
 * they come from the first-level cache. Further away both wait, and of a few folds it makes no difference. */
static inline bool near_vectors(size_t runs, size_t length, size_t element)
{
    return element < 8 && length * element == 64 && runs >= 2 * length && runs <= 512;
}

/* Bands that are more than a core's own caches hold. */
static inline bool far_bands(size_t elements, size_t element) { return elements >= ((size_t)1 << 20) / element; }

/* Columns come 3 to 8 % faster from memory; from the third-level cache AVX2 is slower. */
static inline bool far_columns(size_t rows, size_t columns, size_t element) { return in_memory(rows * columns, element); }

/* For the entries of rows, in whose parameters it finds runs and length. */
#define ELSEWHERE(name, element, ...)                                                                                \
    if (far_runs(runs, length, element) || near_vectors(runs, length, element)) {                                    \
        name##_avx2(__VA_ARGS__);                                                                                    \
        return;                                                                                                      \
    }

/* For those of bands and of columns, likewise. */
#define ELSEWHERE_BANDS(name, element, ...)                                                                          \
    if (far_bands(bands * rows * runs * length, element)) {                                                          \
        name##_avx2(__VA_ARGS__);                                                                                    \
        return;                                                                                                      \
    }

#define ELSEWHERE_COLUMNS(name, element, ...)                                                                        \
    if (far_columns(rows, columns, element)) {                                                                       \
        name##_avx2(__VA_ARGS__);                                                                                    \
        return;                                                                                                      \
    }

#endif

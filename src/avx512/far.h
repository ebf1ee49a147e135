/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* When AVX-512 leaves runs to the AVX2 kernels: on a Zen 4, half a line a load comes 2 to 15 % faster out of the third-level cache and
 * memory than a whole one, while there the kernels wait for nothing else. */
#ifndef QOBS_AVX512_FAR_H
#define QOBS_AVX512_FAR_H

#include <stdbool.h>
#include <stddef.h>

/* More than a core's own caches hold, in runs of which AVX2 is not bound by the fold. */
static inline bool far_rows(size_t runs, size_t length, size_t element)
{
    const size_t bytes = (size_t)2 << 20, shortest = element == 8 ? 1024 : 128;
    return length >= shortest && runs * length >= bytes / element;
}

/* More columns than the third-level cache usually holds, which AVX2 reads 3 to 6 % faster; from that cache it is slower. */
static inline bool far_columns(size_t rows, size_t columns, size_t element)
{
    return rows * columns >= ((size_t)64 << 20) / element;
}

/* For the entries of rows, in whose parameters it finds runs and length. */
#define ELSEWHERE(name, element, ...)                                                                                \
    if (far_rows(runs, length, element)) {                                                                           \
        name##_avx2(__VA_ARGS__);                                                                                    \
        return;                                                                                                      \
    }

/* For those of columns, likewise. */
#define ELSEWHERE_COLUMNS(name, element, ...)                                                                        \
    if (far_columns(rows, columns, element)) {                                                                       \
        name##_avx2(__VA_ARGS__);                                                                                    \
        return;                                                                                                      \
    }

#endif

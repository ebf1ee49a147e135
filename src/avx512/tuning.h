/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sizes at which the avx512 kernels change their methods, beside the common ones. Measured on an AMD EPYC (Zen 4, L1 32
 * KB, L2 1 MB, L3 32 MB) in November 2026. */
#pragma once

#include <stdbool.h>

#include "kernels/vector_tuning.h"

/* Returns true if the C library says that L1 has 48 KB or more, as Zen 5 and Intel from Ice Lake on have. */
bool qobs_avx512_has_large_l1(void);

/* The name of an entry of this instruction set. */
#define ENTRY_(name) name##_avx512
#define ENTRY(name) ENTRY_(name)

/* Up to this size columns go in tiles of registers, 10 vectors or lines of the cache wide. */
#define TILED_COLUMN_BYTES ((size_t)1024 << 10)
/* If L1 has less than 48 KB (Zen 4), calls from this size on read as from memory: columns are streamed, and long runs
 * are left to AVX2. Neighbours leave half of L3 at most. */
#define STREAMING_SMALL_L1_BYTES ((size_t)16 << 20)
#define STREAMS_COLUMNS(size)                                                                                          \
    ((size) >= STREAMING_COLUMN_BYTES || ((size) >= STREAMING_SMALL_L1_BYTES && !qobs_avx512_has_large_l1()))
/* Bytes from a load of a run to the line that is prefetched with it into L1, in calls from this size on. Zen 5, L1 of
 * 48 KB, is faster with it; Zen 4, L1 of 32 KB, is slower: bench/notes/avx512-and-avx2.md. */
#define BYTES_AHEAD 4096
#define AHEAD_CALL_BYTES ((size_t)64 << 10)
#define PREFETCHES_INTO_L1 qobs_avx512_has_large_l1()
#define ABSMAX_STREAMING_ROWS 1 /* of columns of magnitudes from memory that are read together; Zen 5 */
#define SEARCH_UNROLLED 4       /* candidates whose sums fit the registers beside what they need */
#define SEARCH_TABLE_UNROLLED 4 /* the same for norms by a table, which need more registers */
#define GRAM_ROWS 8             /* a tile of sums in registers: rows */
#define GRAM_VECTORS 2          /* and vectors of 16 columns */
#define HESSIAN_ROWS 4          /* a tile of doubles in registers: rows, */
#define HESSIAN_COLUMNS 32      /* columns, */
#define HESSIAN_LANES 8         /* and columns of a vector */
#define PERMUTED_MIN_ROWS 64    /* rows from which on making permutations pays */

/* Fake-quantize: distances from x to out, mod 4096, between which loads wait for unrelated stores. */
#define ALIASED_ABOVE_BYTES 32
#define ALIASED_BELOW_BYTES 256

#define TUNING_LIMITS(LIMIT)                                                                                           \
    VECTOR_LIMITS(LIMIT)                                                                                               \
    LIMIT(QOBS_LIMITS_ROWS, CONTIGUOUS, AHEAD_CALL_BYTES)                                                              \
    LIMIT(QOBS_LIMITS_ROWS, CONTIGUOUS, STREAMING_SMALL_L1_BYTES)                                                      \
    LIMIT(QOBS_LIMITS_MINMAX_COLUMNS, CALL, STREAMING_SMALL_L1_BYTES)                                                  \
    LIMIT(QOBS_LIMITS_INDEXED, COUNT, PERMUTED_MIN_ROWS)                                                               \
    LIMIT(QOBS_LIMITS_QUANTIZE, DISTANCE, ALIASED_ABOVE_BYTES)                                                         \
    LIMIT(QOBS_LIMITS_QUANTIZE, DISTANCE, ALIASED_BELOW_BYTES)

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sizes at which the neon kernels change their methods, beside the common ones. Not measured: these are the values of
 * the AVX2 kernels on a Zen 4, without its prefetching. */
#pragma once

#include "kernels/vector_tuning.h"

/* The name of an entry of this instruction set. */
#define ENTRY_(name) name##_neon
#define ENTRY(name) ENTRY_(name)

/* Up to this size columns go in tiles of registers. A tile of 10 vectors is 2.5 lines of the cache, so panels of
 * columns are faster from L2 on. */
#define TILED_COLUMN_BYTES ((size_t)32 << 10)
#define ABSMAX_STREAMING_ROWS 8 /* not measured */
#define STREAMS_COLUMNS(size) ((size) >= STREAMING_COLUMN_BYTES)
#define BYTES_AHEAD 0 /* runs are not prefetched */
#define AHEAD_CALL_BYTES SIZE_MAX
#define PREFETCHES_INTO_L1 false
#define SEARCH_UNROLLED 2 /* candidates whose sums fit the registers beside what they need */
#define SEARCH_TABLE_UNROLLED 2 /* the same for norms by a table, which need more registers */
#define GRAM_ROWS 4       /* a tile of sums in registers: rows */
#define GRAM_VECTORS 1    /* and vectors of 16 columns */
#define HESSIAN_ROWS 2      /* a tile of doubles in registers: rows, */
#define HESSIAN_COLUMNS 16   /* columns, */
#define HESSIAN_LANES 2     /* and columns of a vector */

#define TUNING_LIMITS(LIMIT) VECTOR_LIMITS(LIMIT)

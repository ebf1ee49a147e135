/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sizes at which vector kernels change their methods, as far as AVX2, AVX-512 and NEON have the same. Measured on an
 * AMD EPYC (Zen 4, L1 32 KB, L2 1 MB, L3 32 MB) in November 2026, for NEON not measured. src/ISA/tuning.h has the
 * others; a size that another machine changes for one instruction set moves there. */
#pragma once

#include <stddef.h>

/* ---- Runs of minimum, maximum and magnitude ---------------------------------------------------------------------- */

/* A block of a long run: fits L2, because a block that holds NaN is read twice. */
#define BLOCK_BYTES ((size_t)256 << 10)
/* A block of this size is read as two streams. */
#define TWO_STREAMS_BYTES 131072
#define REDUCE_RUN_BYTES 4160 /* shorter runs share one transposed reduction */
/* From this length on a transposed reduction of keys is slower than runs one by one. */
#define KEYS_RUN_BYTES 2048
/* If raw bits do not suffice: groups of runs that are reduced as keys, or one by one, before raw bits are tried
 * again. */
#define KEYED_GROUPS 64
#define SINGLE_GROUPS 8

/* ---- Columns of minimum and maximum ------------------------------------------------------------------------------ */

/* Few columns go in tiles of this many vectors. */
#define NARROW_TILE_VECTORS 4
/* Rows whose bounds of a tile stay in registers. */
#define TILE_ROWS 64
/* Above the size of tiles, column panels: a panel's keys stay in L1 for PANEL_ROWS rows; some rows are loaded together.
 */
#define PANEL_ROWS 256
#define PANEL_BYTES 8192
#define PANEL_UNROLLED_ROWS 8
/* From this size on columns are taken to come from memory: a panel is a page wide, so that few pages are open, and
 * lines are prefetched some rows ahead. */
#define STREAMING_COLUMN_BYTES ((size_t)24 << 20)
#define STREAMING_PANEL_BYTES 4096
#define STREAMING_UNROLLED_ROWS 4
#define STREAMING_ROWS_AHEAD 8

/* ---- Columns of magnitudes --------------------------------------------------------------------------------------- */

#define ABSMAX_UNROLLED_BYTES 256
#define ABSMAX_UNROLLED_ROWS 8
/* From this size on ABSMAX_STREAMING_ROWS rows are read together, and rows further down are prefetched. */
#define ABSMAX_STREAMING_BYTES ((size_t)24 << 20)
#define ABSMAX_ROWS_AHEAD 8

/* ---- Row panels -------------------------------------------------------------------------------------------------- */

#define ROW_PANEL_RUNS 64       /* runs whose bounds stay in L1 */
#define ROW_PANEL_MIN_VECTORS 4 /* shorter runs go row by row */

/* ---- Others ------------------------------------------------------------------------------------------------------ */

#define HISTOGRAM_CHUNK 512        /* elements that are binned while the chunk before is counted */
#define HISTOGRAM_BYTES_AHEAD 3072 /* prefetched; the hardware stops at the end of a page */
#define SQUARES_UNROLLED_ROWS 8
#define SEARCH_MAX_LINES 16 /* cache lines prefetched a step of the search */

/* The limits of all instruction sets with vectors. */
#define VECTOR_LIMITS(LIMIT)                                                                                           \
    LIMIT(QOBS_LIMITS_ROWS, CONTIGUOUS, 2 * BLOCK_BYTES)                                                               \
    LIMIT(QOBS_LIMITS_ROWS, CONTIGUOUS, TWO_STREAMS_BYTES)                                                             \
    LIMIT(QOBS_LIMITS_ROWS, RUN, REDUCE_RUN_BYTES)                                                                     \
    LIMIT(QOBS_LIMITS_ROWS, RUN, KEYS_RUN_BYTES)                                                                       \
    LIMIT(QOBS_LIMITS_MINMAX_COLUMNS, CALL, TILED_COLUMN_BYTES)                                                        \
    LIMIT(QOBS_LIMITS_MINMAX_COLUMNS, RUN, PANEL_BYTES)                                                                \
    LIMIT(QOBS_LIMITS_MINMAX_COLUMNS, CALL, STREAMING_COLUMN_BYTES)                                                    \
    LIMIT(QOBS_LIMITS_MINMAX_COLUMNS, RUN, STREAMING_PANEL_BYTES)                                                      \
    LIMIT(QOBS_LIMITS_HISTOGRAM, LENGTH, HISTOGRAM_CHUNK)                                                              \
    LIMIT(QOBS_LIMITS_ABSMAX_COLUMNS, CALL, ABSMAX_STREAMING_BYTES)

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sizes at which the neon kernels change their methods. Not measured: these are the values of
 * the AVX2 kernels on a Zen 4, without its prefetching. */
#pragma once

#include <stddef.h>

/* ---- Runs of minimum, maximum and magnitude
 * --------------------------------------------------------------------------- */

/* A block of a long run: fits L2, because a block that holds NaN is read twice. */
#define BLOCK_BYTES ((size_t)256 << 10)
/* A block of this size is read as two streams. */
#define TWO_STREAMS_BYTES 131072
/* Two pages are never read side by side: the interval is empty. */
#define TWO_PAGES_BYTES ((size_t)64 << 20)
#define TWO_PAGES_END_BYTES TWO_PAGES_BYTES
#define PAGES_AHEAD 4
/* Shorter runs share one transposed reduction; in total below REDUCE_CACHED_CALL_BYTES longer ones do, too, but for
 * F64. */
#define REDUCE_RUN_BYTES 4160
#define REDUCE_CACHED_RUN_BYTES 131072
#define REDUCE_CACHED_CALL_BYTES ((size_t)16 << 20)
/* From this length on a transposed reduction of keys is slower than runs one by one. */
#define KEYS_RUN_BYTES 2048
/* If raw bits do not suffice: groups of runs that are reduced as keys, or one by one, before raw bits are tried
 * again. */
#define KEYED_GROUPS 64
#define SINGLE_GROUPS 8

/* ---- Columns of minimum and maximum
 * ----------------------------------------------------------------------------------- */

/* Up to this size columns go in tiles of registers. A tile of 10 vectors is 2.5 lines of the cache, so panels of
 * columns are faster from L2 on; F64 has tiles of 4 vectors. */
#define TILED_COLUMN_BYTES ((size_t)32 << 10)
#define TILED_F64_COLUMN_BYTES ((size_t)1024 << 10)

/* Few columns go in tiles of this many vectors. */
#define NARROW_TILE_VECTORS 4
/* Rows whose bounds of a tile stay in registers. */
#define TILE_ROWS 64
/* Above that size, column panels: a panel's keys stay in L1 for PANEL_ROWS rows; some rows are loaded together. */
#define PANEL_ROWS 256
#define PANEL_BYTES 8192
#define PANEL_UNROLLED_ROWS 8
/* From this size on columns are taken to come from memory: a panel is a page wide, so that few pages are open, and
 * lines are prefetched some rows ahead. */
#define STREAMING_COLUMN_BYTES ((size_t)16 << 20)
#define STREAMING_PANEL_BYTES 4096
#define STREAMING_UNROLLED_ROWS 4
#define STREAMING_ROWS_AHEAD 8

/* ---- Columns of magnitudes
 * --------------------------------------------------------------------------------------------- */

#define ABSMAX_UNROLLED_BYTES 256
#define ABSMAX_UNROLLED_ROWS 8
#define ABSMAX_STREAMING_BYTES ((size_t)16 << 20) /* from here on the next rows are prefetched */

/* ---- Row panels
 * -------------------------------------------------------------------------------------------------------- */

#define ROW_PANEL_RUNS 64       /* runs whose bounds stay in L1 */
#define ROW_PANEL_MIN_VECTORS 4 /* shorter runs go row by row */
#define ROW_PANEL_ROWS 1        /* rows that enter bounds together */
/* Rows are never prefetched: the interval is empty. */
#define ROW_PANEL_PREFETCH_BYTES ((size_t)32 << 20)
#define ROW_PANEL_PREFETCH_END_BYTES ROW_PANEL_PREFETCH_BYTES
#define ROW_PANEL_ROWS_AHEAD 4

/* ---- Others
 * ------------------------------------------------------------------------------------------------------------- */

#define HISTOGRAM_CHUNK 512        /* elements that are binned while the chunk before is counted */
#define HISTOGRAM_BYTES_AHEAD 3072 /* prefetched; the hardware stops at the end of a page */
#define SQUARES_UNROLLED_ROWS 8
#define SEARCH_MAX_LINES 16 /* cache lines prefetched a step of the search */
#define SEARCH_UNROLLED 2   /* candidates whose sums fit the registers beside what they need */

#define TUNING_LIMITS(LIMIT) VECTOR_LIMITS(LIMIT)

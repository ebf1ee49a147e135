/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sizes at which the avx512 kernels change their methods, beside the common ones. Measured on an AMD EPYC (Zen 4, L1 32
 * KB, L2 1 MB, L3 32 MB) in November 2026. */
#pragma once

#include "kernels/vector_tuning.h"

/* Contiguous runs of this size in total are read two pages side by side, other pages being prefetched; from
 * TWO_PAGES_END_BYTES on memory is the bottleneck, and two pages are slower. */
#define TWO_PAGES_BYTES ((size_t)16 << 20)
#define TWO_PAGES_END_BYTES ((size_t)64 << 20)
/* Up to this size columns go in tiles of registers, 10 vectors or lines of the cache wide; F64 has tiles of 4
 * vectors. */
#define TILED_COLUMN_BYTES ((size_t)1024 << 10)
#define ROW_PANEL_ROWS 2 /* rows that enter bounds together */
/* From this size on rows are prefetched; from the end on it costs more than it brings. */
#define ROW_PANEL_PREFETCH_BYTES ((size_t)16 << 20)
#define ROW_PANEL_PREFETCH_END_BYTES ((size_t)32 << 20)
#define SEARCH_UNROLLED 4    /* candidates whose sums fit the registers beside what they need */
#define SEARCH_TABLE_UNROLLED 4 /* the same for norms by a table, which need more registers */
#define GRAM_ROWS 8          /* a tile of sums in registers: rows */
#define GRAM_VECTORS 2       /* and vectors of 16 columns */
#define HESSIAN_ROWS 4      /* a tile of doubles in registers: rows, */
#define HESSIAN_COLUMNS 32   /* columns, */
#define HESSIAN_LANES 8     /* and columns of a vector */
#define PERMUTED_MIN_ROWS 64 /* rows from which on making permutations pays */

/* ---- Calls that go to the AVX2 kernels (prefer_avx2.h) ----------------------------------------------------------- */

/* Rows from this size on, if runs have at least DELEGATED_LENGTH elements; from DELEGATED_L3_BYTES on shorter ones
 * do. */
#define DELEGATED_ROWS_BYTES ((size_t)2 << 20)
#define DELEGATED_L3_BYTES ((size_t)16 << 20)
#define DELEGATED_L3_F64_BYTES ((size_t)64 << 20)
#define DELEGATED_LENGTH 512
#define DELEGATED_F64_LENGTH 1024
#define DELEGATED_F64_MAGNITUDES_LENGTH 16
#define DELEGATED_L3_LENGTH 128
#define DELEGATED_L3_F32_LENGTH 32
/* Runs of one vector, at most so many: they come from L1. */
#define DELEGATED_VECTORS 512
#define DELEGATED_ROW_PANELS_BYTES ((size_t)1 << 20)
#define DELEGATED_COLUMNS_BYTES ((size_t)64 << 20)
#define DELEGATED_INDEXED_BYTES ((size_t)16 << 20)
/* Fake-quantize: columns of F64 to integers of these sizes. */
#define DELEGATED_LIGHT_COLUMNS_BYTES ((size_t)32 << 10)
#define DELEGATED_LIGHT_COLUMNS_END_BYTES ((size_t)4 << 20)
/* Fake-quantize: distances from x to out, mod 4096, between which loads wait for unrelated stores. */
#define ALIASED_ABOVE_BYTES 32
#define ALIASED_BELOW_BYTES 256

#define TUNING_LIMITS(LIMIT)                                                                                           \
    VECTOR_LIMITS(LIMIT)                                                                                               \
    LIMIT(QOBS_LIMITS_ROWS, CONTIGUOUS, TWO_PAGES_BYTES)                                                               \
    LIMIT(QOBS_LIMITS_ROWS, CONTIGUOUS, TWO_PAGES_END_BYTES)                                                           \
    LIMIT(QOBS_LIMITS_ROW_PANELS, CALL, ROW_PANEL_PREFETCH_BYTES)                                                      \
    LIMIT(QOBS_LIMITS_ROW_PANELS, CALL, ROW_PANEL_PREFETCH_END_BYTES)                                                  \
    LIMIT(QOBS_LIMITS_ROWS, CALL, DELEGATED_ROWS_BYTES)                                                                \
    LIMIT(QOBS_LIMITS_ROWS, CALL, DELEGATED_L3_BYTES)                                                                  \
    LIMIT(QOBS_LIMITS_ROWS, CALL, DELEGATED_L3_F64_BYTES)                                                              \
    LIMIT(QOBS_LIMITS_ROWS, LENGTH, DELEGATED_LENGTH)                                                                  \
    LIMIT(QOBS_LIMITS_ROWS, LENGTH, DELEGATED_F64_LENGTH)                                                              \
    LIMIT(QOBS_LIMITS_ROWS, LENGTH, DELEGATED_F64_MAGNITUDES_LENGTH)                                                   \
    LIMIT(QOBS_LIMITS_ROWS, LENGTH, DELEGATED_L3_LENGTH)                                                               \
    LIMIT(QOBS_LIMITS_ROWS, LENGTH, DELEGATED_L3_F32_LENGTH)                                                           \
    LIMIT(QOBS_LIMITS_ROW_PANELS, CALL, DELEGATED_ROW_PANELS_BYTES)                                                    \
    LIMIT(QOBS_LIMITS_ROWS, COUNT, DELEGATED_VECTORS)                                                                  \
    LIMIT(QOBS_LIMITS_INDEXED, COUNT, PERMUTED_MIN_ROWS)                                                               \
    LIMIT(QOBS_LIMITS_INDEXED, CALL, DELEGATED_INDEXED_BYTES)                                                          \
    LIMIT(QOBS_LIMITS_QUANTIZE, CALL, DELEGATED_LIGHT_COLUMNS_BYTES)                                                   \
    LIMIT(QOBS_LIMITS_QUANTIZE, CALL, DELEGATED_LIGHT_COLUMNS_END_BYTES)                                               \
    LIMIT(QOBS_LIMITS_QUANTIZE, DISTANCE, ALIASED_ABOVE_BYTES)                                                         \
    LIMIT(QOBS_LIMITS_QUANTIZE, DISTANCE, ALIASED_BELOW_BYTES)                                                         \
    LIMIT(QOBS_LIMITS_COLUMNS, CALL, DELEGATED_COLUMNS_BYTES)

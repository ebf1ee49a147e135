/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Measured sizes. This file has those of the code above the kernels; src/ISA/tuning.h has those of an instruction set's
 * kernels. They decide about speed only: results are the same bits on every side of every limit.
 * Machine: AMD EPYC (Zen 4), L1 32 KB, L2 1 MB a core, L3 32 MB shared; November 2026. */
#ifndef QOBS_TUNING_H
#define QOBS_TUNING_H

#include <stddef.h>

/* ---- Caches
 * ------------------------------------------------------------------------------------------------------------- */

#define QOBS_L1_BYTES ((size_t)32 << 10)
#define QOBS_L2_BYTES ((size_t)1 << 20)
#define QOBS_EXCEEDS_L2_BYTES ((size_t)2 << 20) /* from here on data are taken to come from L3 or memory */
#define QOBS_L3_SHARE_BYTES ((size_t)16 << 20)  /* from here on L3 is taken to hold a part only */
#define QOBS_STREAMING_BYTES ((size_t)64 << 20) /* from here on all data are taken to come from memory */

/* ---- Minimum and maximum: the choice of kernels (reduce/minmax_loops.c)
 * ------------------------------------------------- */

#define QOBS_ROW_BLOCK_BOUNDS 8192       /* runs whose bounds one block of rows holds: their bounds fit L2 */
#define QOBS_ROW_BLOCK_MIN_ROWS 8        /* fewer rows a block are not worth a second pass */
#define QOBS_ROW_BLOCK_MIN_LENGTH 32     /* elements of a run; shorter runs are reduced together */
#define QOBS_WIDE_COLUMNS 64             /* columns that a column kernel should have */
#define QOBS_SCATTERED_COLUMNS 256       /* columns at a time whose outputs are not adjacent */
#define QOBS_ROW_PANEL_MIN_RUN_BYTES 256 /* shorter runs are reduced together */
#define QOBS_ROW_PANEL_END_BYTES                                                                                       \
    (2 * QOBS_L3_SHARE_BYTES) /* from here on blocks of rows are 1 to 10 % faster than row panels */

/* ---- Histograms (histogram/counting.c)
 * ------------------------------------------------------------------------------------- */

#define QOBS_GATHERED_ELEMENTS 2048                 /* strided elements that are copied together; they fit L1 */
#define QOBS_RANGE_CHECK_ELEMENTS ((size_t)1 << 16) /* elements between two checks whether all lie in the range */

/* ---- Range search (reduce/range_tiles.c, range/search.c)
 * ---------------------------------------------------------------- */

#define QOBS_RANGE_TILE_BYTES                                                                                          \
    ((size_t)1 << 16)                /* entries whose ranges are found before they are searched; they fit L2 */
#define QOBS_SEARCH_PART_CALLS 64    /* kernel calls of QOBS_SEARCH_MOST elements in a part of a large qparam */
#define QOBS_SEARCH_PREFETCH_CALLS 2 /* calls ahead whose elements are prefetched */
#define QOBS_SEARCH_PIECES_PER_THREAD 16
#define QOBS_SEARCH_PIECES_OF_PARTS 64
#define QOBS_SEARCH_WORKSPACE_BYTES ((size_t)64 << 20) /* most memory for candidates of all parts */

/* ---- Limits of kernels, for the tests
 * ------------------------------------------------------------------------------------ */

/* The kernels that a limit is of, as bits. */
enum {
    QOBS_LIMITS_ROWS = 1, /* minmax_rows and absmax_rows */
    QOBS_LIMITS_ROW_PANELS = 2,
    QOBS_LIMITS_MINMAX_COLUMNS = 4,
    QOBS_LIMITS_ABSMAX_COLUMNS = 8,
    QOBS_LIMITS_COLUMNS = QOBS_LIMITS_MINMAX_COLUMNS | QOBS_LIMITS_ABSMAX_COLUMNS,
    QOBS_LIMITS_INDEXED = 16,
    QOBS_LIMITS_HISTOGRAM = 32,
    QOBS_LIMITS_QUANTIZE = 64
};

/* A size at which a kernel changes its method. Every src/ISA/tuning.h lists its limits as TUNING_LIMITS(LIMIT) with
 * entries LIMIT(kernels, of, size); tests call kernels on both sides of each. */
struct qobs_limit {
    const char *name; /* NULL: end of a list */
    unsigned kernels;
    enum qobs_limit_of {
        QOBS_LIMIT_OF_CALL,       /* bytes of all elements */
        QOBS_LIMIT_OF_CONTIGUOUS, /* bytes of all elements, if the runs have no gaps */
        QOBS_LIMIT_OF_RUN,        /* bytes of a run or row */
        QOBS_LIMIT_OF_LENGTH,     /* elements of a run */
        QOBS_LIMIT_OF_COUNT,      /* runs or rows */
        QOBS_LIMIT_OF_DISTANCE    /* bytes from x to out, mod 4096 */
    } of;
    size_t size;
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The sizes at which kernels change their methods, for the tests. They decide about speed only: results are the same
 * bits on every side of every limit. */
#pragma once

#include <stddef.h>

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
struct kernel_limit {
    const char *name; /* NULL: end of a list */
    unsigned kernels;
    enum kernel_limit_of {
        QOBS_LIMIT_OF_CALL,       /* bytes of all elements */
        QOBS_LIMIT_OF_CONTIGUOUS, /* bytes of all elements, if the runs have no gaps */
        QOBS_LIMIT_OF_RUN,        /* bytes of a run or row */
        QOBS_LIMIT_OF_LENGTH,     /* elements of a run */
        QOBS_LIMIT_OF_COUNT,      /* runs or rows */
        QOBS_LIMIT_OF_DISTANCE    /* bytes from x to out, mod 4096 */
    } of;
    size_t size;
};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The scalar kernels have one method for all sizes, so there is no limit. These sizes shape code that all
 * instruction sets share. */
#pragma once

/* The name of an entry of this instruction set. */
#define ENTRY_(name) name##_scalar
#define ENTRY(name) ENTRY_(name)

#define SQUARES_UNROLLED_ROWS 8
#define SEARCH_MAX_LINES 16 /* cache lines prefetched a step of the search */
#define SEARCH_UNROLLED 1   /* candidates at a time */
#define SEARCH_TABLE_UNROLLED 1 /* the same for norms by a table, which need more registers */
#define GRAM_ROWS 1         /* a tile of sums: rows */
#define GRAM_VECTORS 1      /* and vectors of 16 columns */
#define HESSIAN_ROWS 1      /* a tile of doubles in registers: rows, */
#define HESSIAN_COLUMNS 16  /* columns, */
#define HESSIAN_LANES 2     /* and columns of a vector */

#define TUNING_LIMITS(LIMIT)

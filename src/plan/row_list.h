/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The rows of a tensor along its last dimension, in C order. They serve work on columns: weights whose columns g_idx
 * spreads over groups, sums of squares and of products, and rows that a Hessian couples. */
#pragma once

#include "kernels/kernels.h"
#include "plan/loops.h"

struct row_list {
    struct loops loops; /* over the rows; with g_idx the qparam is that of the row's first group */
    int64_t count, columns;
    int64_t column_in, column_out; /* bytes from column to column */
    int64_t groups;                /* with g_idx */
    size_t element;                /* bytes */
    bool finite_only;              /* qobs_row_load makes 0 of elements that are not finite */
    qobs_search_load_fn *load;     /* of rows without g_idx */
};

/* The tensor has a dimension, an element and an observable dtype. */
void qobs_rows_of_view(const struct view *view, const struct kernel_table *kernels, struct row_list *rows);

static inline const unsigned char *qobs_row_at(const struct row_list *rows, int64_t index)
{
    return qobs_loops_at(&rows->loops, index).in;
}

/* The number of rows from `row` on, and before `end`, that are equally far apart; *stride: their distance in bytes. */
int64_t qobs_rows_together(const struct row_list *rows, int64_t row, int64_t end, int64_t *stride);

/* Columns first to first + n of a row as floats, with zeros up to a multiple of QOBS_SEARCH_LANES. */
void qobs_row_load(const struct row_list *rows, const unsigned char *row, int64_t first, int64_t n, float *out);

/* ---- With g_idx -------------------------------------------------------------------------------------------------- */

/* out_plan and out: as for qobs_loops_of_tile. */
void qobs_rows_of_plan(const qobs_plan *plan, const unsigned char *in, const qobs_plan *out_plan, unsigned char *out,
                       struct row_list *rows);

/* The group of each column in memory order. */
void qobs_g_idx_groups(const qobs_plan *plan, uint32_t *group);

int64_t qobs_g_idx_longest_group(const qobs_plan *plan);

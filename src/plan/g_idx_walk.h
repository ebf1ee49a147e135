/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Walking a plan whose columns g_idx orders: rows of columns, each of which belongs to a group. It is the counterpart
 * of loops.h. */
#pragma once

#include "plan/loops.h"

struct g_idx_rows {
    struct loops loops; /* over the rows; the qparam is that of the row's first group */
    int64_t rows, columns, groups;
    int64_t column_in, column_out; /* bytes from column to column */
};

/* out_plan and out: as for qobs_loops_of_tile. */
void qobs_g_idx_rows_of(const qobs_plan *plan, const unsigned char *in, const qobs_plan *out_plan, unsigned char *out,
                        struct g_idx_rows *rows);

/* The group of each column in memory order. */
void qobs_g_idx_groups(const qobs_plan *plan, uint32_t *group);

int64_t qobs_g_idx_longest_group(const qobs_plan *plan);

/* The public runs: each column of each row is one, in the order of the groups. */
int64_t qobs_g_idx_run_count(const qobs_plan *plan);
void qobs_g_idx_run(const qobs_plan *plan, int64_t index, qobs_run *run);

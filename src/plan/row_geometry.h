/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Granularity of matrices that differ in their number of rows only: what a plan says of each of them, without a plan.
 * The order of qparams, of tiles and of loops is that of the plan. */
#pragma once

#include "plan/loops.h"

struct row_geometry {
    int64_t columns;
    int64_t unit;       /* rows that share qparams; 0: all of them */
    int64_t run;        /* columns that share a qparam; the last may be fewer */
    int64_t per_unit;   /* qparams */
    int64_t full, left; /* runs of a row that are not short, and columns after them */
    bool whole_units;   /* the rows are a multiple of unit */
};

/* False: the granularity is none of matrices, or does not depend on rows alone. columns is at least 1. */
bool qobs_row_geometry_of(const struct granularity *granularity, int64_t columns, struct row_geometry *geometry);

static inline int64_t qobs_geometry_unit(const struct row_geometry *g, int64_t rows)
{
    return g->unit == 0 || g->unit > rows ? rows : g->unit;
}

/* The number of units; rows is above 0. */
static inline int64_t qobs_geometry_units(const struct row_geometry *g, int64_t rows)
{
    return g->unit == 0 ? 1 : g->unit == 1 ? rows : (rows - 1) / g->unit + 1;
}

/* A matrix, or complete runs of some of its units. */
struct row_span {
    const unsigned char *in;
    unsigned char *out;
    int64_t rows, columns;
    int64_t in_stride, out_stride; /* bytes from row to row */
    int64_t in_element, out_element;
    int64_t qparam; /* the first */
};

enum { ROW_TILES = 4 }; /* bit 0 of a tile: the last rows, that make no complete unit; bit 1: the last run */

/* The loops of one tile. False: it is empty. */
bool qobs_row_loops(const struct row_geometry *geometry, const struct row_span *span, unsigned tile,
                    struct loops *loops);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Nested loops over a tensor: each loop has a stride in the input, one in an output tensor of the same shape, and one
 * among the qparams. Every granularity without g_idx is such loops, one set for each tile of its plan; row_list.h has
 * the other kind.
 *
 * A plan has 1, 2 or 4 tiles: for each split dimension (at most 2) one of its full groups and one of its short last
 * group. */
#pragma once

#include "plan/plan.h"

struct loop {
    int64_t extent;
    int64_t in, out; /* bytes; out is 0 without an output tensor */
    int64_t qparam;  /* 0: the entries share a qparam */
};

struct loops {
    const unsigned char *in;
    unsigned char *out; /* NULL: there is no output tensor */
    int64_t qparam;     /* of the first element */
    int count;
    struct loop loop[MAX_AXES]; /* outermost first */
};

enum loop_order { LOOPS_BY_INPUT, LOOPS_BY_OUTPUT };

/* A loop with one entry. */
extern const struct loop qobs_single_loop;

unsigned qobs_plan_tiles(const qobs_plan *plan);

/* The loops over one tile of a plan without g_idx. Bit i of `tails` chooses the short group of the i-th split
 * dimension. False: the tile is empty. out_plan is the plan of the output tensor with the same shape, or NULL. */
bool qobs_loops_of_tile(const qobs_plan *plan, unsigned tails, const unsigned char *in, const qobs_plan *out_plan,
                        unsigned char *out, struct loops *loops);

/* The loops over the first `dimensions` dimensions of a tensor in C order, joined. */
void qobs_loops_of_view(const struct view *view, int dimensions, struct loops *loops);

/* Joins loops that continue each other, and leaves out those with one entry. */
void qobs_loops_join(struct loops *loops);

/* Sorts the loops so that memory is walked in order, makes strides positive in that tensor, and joins loops that
 * continue each other. Elements are visited in another order afterwards. */
void qobs_loops_normalise(struct loops *loops, enum loop_order order);

/* One entry of all loops together. */
struct loop_entry {
    const unsigned char *in;
    unsigned char *out;
    int64_t qparam;
};

/* The index-th entry, where the innermost loop is the fastest. */
struct loop_entry qobs_loops_at(const struct loops *loops, int64_t index);

/* Calls `visit` for every entry of `count` loops from `at` on, the innermost loop first. */
typedef void loop_visit(void *argument, const struct loop_entry *at);
void qobs_loops_walk(const struct loop *loop, int count, struct loop_entry at, loop_visit *visit, void *argument);

int64_t qobs_loops_elements(const struct loops *loops);

/* Leaves entries [from, to) of one loop. */
void qobs_loops_cut(struct loops *loops, int loop, int64_t from, int64_t to);

/* ---- Matrices of any number of rows ------------------------------------------------------------------------------ */

/* The properties of each loop, without a plan. The order of qparams, of tiles and of loops is that of the plan. */

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

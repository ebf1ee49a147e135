/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search of a whole weight for errors e^T H e, H = E[x x^T] over blocks of columns. A block is a group of columns,
 * or several groups whose errors may cancel. Rows are searched in tiles, so that products with H are of many rows:
 * hessian_search.c makes H and tiles, hessian_tile.c searches a tile. */
#pragma once

#include "plan/row_list.h"
#include "optimal/hessian_lanes.h"

/* Searches every qparam of a plan of groups along the last dimension. `params` are those of the search with what
 * depends on the dtype resolved, importance[j] is E[x_j^2], usable. `result` has its arrays, with rows if blocks have
 * several groups. error and minmax_error of a group in such a block are its parts of the row's errors: with H of its
 * own columns, and of these with the columns before it. */
int qobs_hessian_search(const struct optimal_search *search, const struct optimal_params *params,
                        const double *importance, struct optimal_result *result, qobs_error *error);

/* True if blocks have several groups of a plan's `group` columns. */
bool qobs_hessian_joins_groups(const struct optimal_params *params, int64_t group, int64_t columns);

/* Groups of a block, and H of it as doubles. */
struct hessian_block {
    int64_t start, width;  /* columns */
    int64_t group, groups; /* columns of a group, the last one may be shorter; number of groups */
    int64_t padded;        /* columns of a group, up to a multiple of 16 */
    double *diagonal;      /* [groups][group][padded]: H of each group alone */
    double *columns;       /* [groups][span][padded]: all rows of the columns of each group; NULL: there is one group */
    struct hessian_factor *factor; /* [groups] of diagonal; NULL: there are none */
};

/* A search of a block of columns; all tiles read it. */
struct hessian_run {
    const struct optimal_search *search;
    const struct optimal_params *params;
    const double *importance; /* of all columns */
    struct optimal_result *result;
    struct row_list rows;
    int64_t row_groups; /* of a row */
    struct hessian_levels levels;
    struct hessian_block block;
    struct optimal_number number;
    float *fixed_scales; /* e4m3 and e8m0: the candidates of every group */
    size_t fixed_count;  /* 0: there are none */
    float global_scale;
    double *ones; /* [padded] */
};

/* A tile of rows. Arrays are row after row; those of doubles have `span` = groups * padded a row: group k starts at
 * k * padded. */
enum { HESSIAN_TILE = 32 };
struct hessian_tile {
    const struct hessian_run *run;
    int64_t row, rows; /* of the weight */
    double largest;    /* entry of H of the group at hand */
    float *w;          /* [rows][span] */
    float *scale;      /* [rows][groups]: multiplies quantized numbers, divided by the global scale */
    bool *searched;    /* [rows][groups]: H decides */
    double *x, *e;     /* [rows][span]: w, and the errors of the result */
    double *other;     /* [rows][span]: errors of the range's scale, then of a new choice */
    double *g, *product, *linear, *before; /* [rows][span] */
    float *scales;                         /* candidates of a group */
    void *scratch;                         /* of qobs_optimal_group */
    struct hessian_workspace workspace;
};

/* w is there, and the other arrays are 0; searches all groups and writes the results. */
void qobs_hessian_tile_search(struct hessian_tile *tile);

static inline int64_t qobs_hessian_group_width(const struct hessian_block *b, int64_t k)
{
    const int64_t left = b->width - k * b->group;
    return left < b->group ? left : b->group;
}

static inline int64_t qobs_hessian_span(const struct hessian_block *b) { return b->groups * b->padded; }

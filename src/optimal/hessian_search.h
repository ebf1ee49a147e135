/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search of a whole weight for errors e^T H e, H = E[x x^T] over blocks of columns. A block is a group of columns,
 * or several groups whose errors may cancel. Rows are searched in tiles, so that products with H are of many rows:
 * hessian_search.c makes H and tiles, hessian_tile.c searches a tile. */
#pragma once

#include "plan/row_list.h"
#include "optimal/optimal.h"

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

/* The best scale and zero point of one group for errors e^T H e. For a fixed zero point and sign an element only steps
 * away from 0 as the scale shrinks. Each step is an event that belongs to the largest candidate at which it has
 * happened. Applied from the largest candidate down, the events give the error of every candidate:
 *   error = (constant - 2 s B) + s^2 C,  B = q.g,  C = q^T H q
 * One event costs a row of H, and one candidate costs nothing. */

/* The numbers that elements are quantized to, as steps away from 0. */
enum { HESSIAN_MOST_LEVELS = 256 };
struct hessian_levels {
    int count;
    float level[HESSIAN_MOST_LEVELS];  /* after the step */
    float length[HESSIAN_MOST_LEVELS]; /* of the step */
    struct hessian_step step[HESSIAN_MOST_LEVELS];
};
void qobs_hessian_levels(const struct optimal_params *params, float global_scale, struct hessian_levels *levels);

struct hessian_group {
    const float *w;
    size_t n;
    const double *h; /* H, n rows of `columns` entries, h_stride apart */
    size_t columns;  /* n, up to a multiple of 8; the rest is 0 */
    size_t h_stride;
    const double *g; /* [columns] H w, less what other groups of the block take off */
    double constant; /* w^T H w, or 0 if only differences of errors matter */
    int first, last; /* zero points */
};

struct hessian_choice {
    size_t index; /* of the candidate */
    bool negative;
    int zero_point;
    double error; /* as the events give it; its rounding is about 1e-15 of w^T H w */
};

/* Memory of a search, for groups of up to that many elements. */
struct hessian_workspace {
    struct hessian_event *sorted;
    int32_t *buckets; /* [levels][elements] */
    uint32_t *end;    /* [candidates + 1] */
    double *b, *c;    /* [events + 1] */
    double *u;        /* [columns] */
};
void qobs_hessian_workspace_place(const struct optimal_params *params, size_t n, struct array_layout *layout,
                                  struct hessian_workspace *workspace);

/* The lowest error; of equal ones the smaller magnitude of the scale, then + before -, then the smaller zero point. */
struct hessian_choice qobs_hessian_group(const struct kernel_table *kernels, const struct optimal_params *params,
                                         const struct hessian_levels *levels, const struct scale_list *scales,
                                         const struct hessian_group *group, const struct hessian_workspace *workspace);

/* ---- Groups of at most 16 e2m1 numbers --------------------------------------------------------------------------- */

/* The search of a group of at most 16 e2m1 numbers under e4m3 scales, for errors e^T H e. Nearly all candidates are
 * left out by their errors in float, 16 at a time; each of these has a bound on its rounding. */

/* A triangular factor of H of one group of at most 16 columns, common to all rows: |T e|^2 is nearly e^T H e. */
/* With D = diag(H) / largest: |T e|^2 is e^T H e / largest + ridge * e^T D e, up to rounding. The sum of the squares of
 * the first rows is the least of it over the errors of the other elements. */
struct hessian_factor {
    bool fits;                                    /* false: H has negative eigenvalues that are not rounding */
    _Alignas(64) float rows[QOBS_HESSIAN_FACTOR]; /* T, as the kernel has it */
    double weight[QOBS_HESSIAN_SIDE];             /* at least D, in the order of T */
    double bound[QOBS_HESSIAN_SIDE];              /* |e_j| <= bound[j] |T e| */
    double total;                                 /* of weight */
    double largest, ridge;
    uint8_t order[QOBS_HESSIAN_SIDE]; /* order[j]: the column at number j of T */
};

/* h: n rows, `stride` apart, n <= 16. Columns are ordered so that the first rows have much of the sum. */
void qobs_hessian_factor(const double *h, size_t n, size_t stride, struct hessian_factor *factor);

/* Candidates that may win, ascending. */
enum { HESSIAN_LANES_MOST = 126 };
struct hessian_candidate_list {
    size_t count;
    uint8_t index[HESSIAN_LANES_MOST + 1]; /* and one that is not counted */
};

/* True if it can search the group; amax is the largest magnitude. */
bool qobs_hessian_lanes_fit(const struct hessian_factor *factor, const struct scale_list *scales, float amax);

/* Finds the candidates whose error may be the least or equal to it, as hessian_residual and a product with H in double
 * give it. Those that are left out have a larger one. w: 16 elements, zeros behind the group. */
void qobs_hessian_lanes(const struct kernel_table *kernels, const struct hessian_factor *factor,
                        const struct scale_list *scales, const float *w, float amax,
                        struct hessian_candidate_list *candidates);

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* Searches every qparam of a plan of groups along the last dimension. `params` are those of the search with what
 * depends on the dtype resolved, importance[j] is E[x_j^2], usable. `result` has its arrays, with rows if blocks have
 * several groups. error and minmax_error of a group in such a block are its parts of the row's errors: with H of its
 * own columns, and of these with the columns before it. */
int qobs_hessian_search(const struct optimal_search *search, const struct optimal_params *params,
                        const double *importance, struct optimal_result *result, qobs_error *error);

/* True if blocks have several groups of a plan's `group` columns. */
bool qobs_hessian_joins_groups(const struct range_params *params, int64_t group, int64_t columns);

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
    float *fixed_scales;
    struct scale_list fixed; /* e4m3 and e8m0: the candidates of every group */
    float global_scale;
    double *ones; /* [padded] */
};

/* A tile of rows. Arrays are row after row; those of doubles have `span` = groups * padded a row: group k starts at
 * k * padded. */
enum { HESSIAN_TILE = 32 };
struct hessian_tile {
    const struct hessian_run *run;
    int64_t row, rows; /* of the weight */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search of a whole weight for errors e^T H e, H = E[x x^T] over blocks of columns. A block is a group of columns,
 * or several groups whose errors may cancel. Rows are searched in tiles, so that products with H are of many rows. */
#pragma once

#include "measure/gram.h"
#include "optimal/hessian_lanes.h"

/* Searches every qparam of a plan of groups along the last dimension. `params` are those of the search with what
 * depends on the dtype resolved, importance[j] is E[x_j^2], usable. `result` has its arrays, with rows if blocks have
 * several groups. error and minmax_error of a group in such a block are its shares of the row's errors: with H of its
 * own columns, and of these with the columns before it. */
int qobs_hessian_search(const struct optimal_search *search, const struct optimal_params *params,
                        const double *importance, struct optimal_result *result, qobs_error *error);

/* True if blocks have several groups of a plan's `group` columns. */
bool qobs_hessian_joins_groups(const struct optimal_params *params, int64_t group, int64_t columns);

/* ---- Parts of it ------------------------------------------------------------------------------------------------- */

/* Groups of a block, and H of it as doubles. */
struct hessian_block {
    int64_t start, width;  /* columns */
    int64_t group, groups; /* columns of a group, the last one may be shorter; number of groups */
    int64_t padded;        /* columns of a group, up to a multiple of 16 */
    double *own;           /* [groups][group][padded]: H of each group alone */
    double *joint;         /* [groups][span][padded]: columns of each group; NULL: there is one group */
    struct hessian_factor *factor; /* [groups] of own; NULL: there are none */
};

static inline int64_t qobs_hessian_group_width(const struct hessian_block *b, int64_t k)
{
    const int64_t left = b->width - k * b->group;
    return left < b->group ? left : b->group;
}

static inline const double *qobs_hessian_own(const struct hessian_block *b, int64_t k)
{
    return b->own + k * b->group * b->padded;
}

static inline const double *qobs_hessian_joint(const struct hessian_block *b, int64_t k)
{
    return b->joint + k * b->groups * b->padded * b->padded;
}

/* Fills own and joint of a block: sums divided by tokens, plus dampening. */
void qobs_hessian_block_fill(const struct gram *gram, const struct optimal_params *params, struct hessian_block *block);

/* A tile of rows in one block. Arrays are row after row; those of doubles have `span` = groups * padded a row: group k
 * starts at k * padded. */
enum { HESSIAN_TILE = 32 };
struct hessian_tile {
    const struct optimal_search *search;
    const struct optimal_params *params;
    const struct hessian_levels *levels;
    const struct hessian_block *block;
    const double *importance; /* of the block's columns */
    struct optimal_number number;
    double largest; /* entry of H of the group at hand */
    const float *fixed_scales; /* e4m3 and e8m0: the candidates of every group; else NULL */
    size_t fixed_count;
    float global_scale;
    int64_t row, rows;        /* of the weight */
    int64_t qparam, stride;   /* of the first row's first group; from row to row */
    struct optimal_result *result;

    float *w;       /* [rows][span] */
    float *scale;   /* [rows][groups]: multiplies quantized numbers, divided by the global scale */
    bool *live;     /* [rows][groups]: decided by H */
    double *x, *e; /* [rows][span]: w, and the errors of the result */
    double *other; /* [rows][span]: errors of the range's scale, then of a new choice */
    double *g, *product, *linear, *before; /* [rows][span] */
    float *scales;  /* candidates */
    double *ones;   /* [padded up to a multiple of OPTIMAL_PADDING] */
    void *scratch;  /* of qobs_optimal_group */
    struct hessian_workspace workspace;
};

/* w is there; chooses scale and zero point of every group by itself, and writes x, e, other and the results. */
void qobs_hessian_start(struct hessian_tile *tile);

/* Chooses anew in the light of the other groups of the block. */
void qobs_hessian_descend(struct hessian_tile *tile);

/* The candidates of a group. */
struct hessian_scales qobs_hessian_scales_of(const struct hessian_tile *tile, const float *w, size_t n);

/* out = x h for group k of every row: `n` rows of h, from the column `from` of x on. add: to what is there. */
void qobs_hessian_multiply(const struct hessian_tile *tile, const double *x, int64_t from, const double *h, int64_t n,
                           int64_t k, bool add, double *out);

/* Sets tile->largest; h is H of a group of n columns. */
static inline void qobs_hessian_set_largest(struct hessian_tile *t, const double *h, int64_t n)
{
    t->largest = 0;
    for (int64_t i = 0; i < n; i++)
        t->largest = h[i * (t->block->padded + 1)] > t->largest ? h[i * (t->block->padded + 1)] : t->largest;
}

static inline double qobs_hessian_dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static inline int64_t qobs_hessian_span(const struct hessian_block *b) { return b->groups * b->padded; }

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search of a group of at most 16 e2m1 numbers under e4m3 scales, for errors e^T H e. Nearly all candidates are
 * left out by their errors in float, 16 at a time; each of these has a bound on its rounding. */
#pragma once

#include "optimal/hessian_group.h"

/* A triangular factor of H of one group of at most 16 columns, common to all rows: |T e|^2 is nearly e^T H e. */
/* With D = diag(H) / largest: |T e|^2 is e^T H e / largest + ridge * e^T D e, up to rounding. The sum of the squares of
 * the first rows is the least of it over the errors of the other elements. */
struct hessian_factor {
    bool fits;                                          /* false: H has negative eigenvalues that are not rounding */
    _Alignas(64) float rows[QOBS_HESSIAN_FACTOR];       /* T, as the kernel has it */
    double weight[QOBS_HESSIAN_SIDE];                   /* at least D, in the order of T */
    double bound[QOBS_HESSIAN_SIDE];                    /* |e_j| <= bound[j] |T e| */
    double total;                                       /* of weight */
    double largest, ridge;
    uint8_t order[QOBS_HESSIAN_SIDE];                   /* order[j]: the column at number j of T */
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
bool qobs_hessian_lanes_fit(const struct hessian_factor *factor, const struct hessian_scales *scales, float amax);

/* Finds the candidates whose error may be the least or equal to it, as hessian_residual and a product with H in double
 * give it. Those that are left out have a larger one. w: 16 elements, zeros behind the group. */
void qobs_hessian_lanes(const struct kernel_table *kernels, const struct hessian_factor *factor,
                        const struct hessian_scales *scales, const float *w, float amax, float global_scale,
                        struct hessian_candidate_list *candidates);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A triangular factor of H of one group of at most 16 columns, which all rows share: |T e|^2 is nearly e^T H e. */
#pragma once

#include "kernels/kernels.h"

/* With D = diag(H) / largest: |T e|^2 is e^T H e / largest + ridge * e^T D e, up to rounding. The sum of the squares of
 * the first rows is the least of it over the errors of the other elements. */
struct hessian_factor {
    bool fits;                                          /* false: H has negative eigenvalues that are not rounding */
    _Alignas(64) float rows[QOBS_HESSIAN_FACTOR];       /* T, as the kernel has it */
    double weight[QOBS_HESSIAN_SIDE];                   /* at least D, in the order of T */
    double reach[QOBS_HESSIAN_SIDE];                    /* |e_j| <= reach[j] |T e| */
    double total;                                       /* of weight */
    double largest, ridge;
    uint8_t order[QOBS_HESSIAN_SIDE];                   /* order[j]: the column at number j of T */
};

/* h: n rows, `stride` apart, n <= 16. Columns are ordered so that the first rows have much of the sum. */
void qobs_hessian_factor(const double *h, size_t n, size_t stride, struct hessian_factor *factor);

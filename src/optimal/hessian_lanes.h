/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search of a group of at most 16 e2m1 numbers under e4m3 scales, for errors e^T H e. Nearly all candidates are
 * left out by their errors in float, 16 at a time; each of these has a bound on its rounding. */
#pragma once

#include "optimal/hessian_factor.h"
#include "optimal/hessian_group.h"

/* Candidates that may win, ascending. */
enum { HESSIAN_LANES_MOST = 126 };
struct hessian_contenders {
    size_t count;
    uint8_t index[HESSIAN_LANES_MOST + 1]; /* and one that is not counted */
};

/* True if it can search the group; amax is the largest magnitude. */
bool qobs_hessian_lanes_fit(const struct hessian_factor *factor, const struct hessian_scales *scales, float amax);

/* Finds the candidates whose error may be the least or equal to it, as hessian_residual and a product with H in double
 * give it. Those that are left out have a larger one. w: 16 elements, zeros behind the group. */
void qobs_hessian_lanes(const struct kernel_table *kernels, const struct hessian_factor *factor,
                        const struct hessian_scales *scales, const float *w, float amax, float global_scale,
                        struct hessian_contenders *contenders);

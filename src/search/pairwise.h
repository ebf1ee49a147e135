/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* numpy's pairwise sums (numpy/_core/src/umath/loops_utils.h.src, numpy 2): up to PAIRWISE_LEAF numbers are summed in
 * eight lanes, more of them in two halves. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { PAIRWISE_LANES = 8, PAIRWISE_LEAF = 128 };

/* The numbers of the first half. */
static inline int64_t pairwise_half(int64_t n) { return n / 2 - n / 2 % PAIRWISE_LANES; }

/* The sum of n <= PAIRWISE_LEAF numbers. */
static inline float pairwise_leaf_f32(const float *x, size_t n)
{
    float lane[PAIRWISE_LANES], sum = -0.0F;
    size_t i = 0;
    for (; n >= PAIRWISE_LANES && i < PAIRWISE_LANES; i++)
        lane[i] = x[i];
    for (; i > 0 && i < n - n % PAIRWISE_LANES; i++)
        lane[i % PAIRWISE_LANES] += x[i];
    if (i > 0)
        sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
    for (; i < n; i++)
        sum += x[i];
    return sum;
}

static inline double pairwise_leaf_f64(const double *x, size_t n)
{
    double lane[PAIRWISE_LANES], sum = -0.0;
    size_t i = 0;
    for (; n >= PAIRWISE_LANES && i < PAIRWISE_LANES; i++)
        lane[i] = x[i];
    for (; i > 0 && i < n - n % PAIRWISE_LANES; i++)
        lane[i % PAIRWISE_LANES] += x[i];
    if (i > 0)
        sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
    for (; i < n; i++)
        sum += x[i];
    return sum;
}

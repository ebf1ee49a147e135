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

/* The sum of n <= PAIRWISE_LEAF elements `at(i)` in dtype `number`. */
#define PAIRWISE_LEAF_SUM(number, sum, n, i, at)                                                                       \
    do {                                                                                                               \
        number lane_[PAIRWISE_LANES];                                                                                  \
        size_t i = 0;                                                                                                  \
        (sum) = (number) - 0.0;                                                                                        \
        for (; (n) >= PAIRWISE_LANES && i < PAIRWISE_LANES; i++)                                                       \
            lane_[i] = (at);                                                                                           \
        for (; i > 0 && i < (n) - (n) % PAIRWISE_LANES; i++)                                                           \
            lane_[i % PAIRWISE_LANES] += (at);                                                                         \
        if (i > 0)                                                                                                     \
            (sum) = ((lane_[0] + lane_[1]) + (lane_[2] + lane_[3])) + ((lane_[4] + lane_[5]) + (lane_[6] + lane_[7])); \
        for (; i < (n); i++)                                                                                           \
            (sum) += (at);                                                                                             \
    } while (0)

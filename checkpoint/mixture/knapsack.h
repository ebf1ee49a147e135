/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The multiple-choice knapsack: one choice for each item, so that the sum of their weights is at most a limit and the
 * sum of their costs is as small as possible. */
#pragma once

#include "files/status.h"

struct knapsack_choice {
    double weight, cost; /* finite, from 0 on */
};

struct knapsack {
    size_t items, choices;               /* at least 1 choice */
    const struct knapsack_choice *table; /* items rows of `choices` */
    double limit;                        /* of the sum of weights */
};

/* Writes the best choice of each item to `choice`. *least receives the smallest sum of weights that is possible; if it
 * is above the limit, nothing is chosen. *optimal: no choice has a smaller sum of costs, but for rounding; false if the
 * search exceeded its memory. The choice is then the best one found. Returns a status. */
int knapsack_solve(const struct knapsack *k, size_t *choice, double *least, bool *optimal, struct fail *f);

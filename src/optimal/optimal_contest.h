/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Candidates of one group whose errors are known up to some slack. Those that may win are decided by their
 * errors, which are then computed as the definition says. The winner does not depend on the order or the slack. */
#pragma once

#include "optimal/optimal.h"

enum { CONTEST_PENDING = 64 };

struct contest {
    const struct kernel_table *kernels;
    struct optimal_number number;
    const struct optimal_group *group;
    struct optimal_choice best; /* of those that have been decided */
    double bound;               /* the lowest error is not above it */
    size_t pending;
    struct contender {
        float scale;
        int32_t zero_point;
        double lowest; /* the error is not below it */
    } contender[CONTEST_PENDING];
};

void qobs_contest_begin(struct contest *contest, const struct kernel_table *kernels,
                        const struct optimal_params *params, const struct optimal_group *group);

/* Computes the error of a candidate now, and returns it. */
double qobs_contest_decide(struct contest *contest, float scale, int32_t zero_point);

/* The same for a candidate whose error is known. */
void qobs_contest_decided(struct contest *contest, float scale, int32_t zero_point, double error);

/* Enters a candidate whose error is from `nearly` - slack to `nearly` + slack. */
void qobs_contest_enter(struct contest *contest, float scale, int32_t zero_point, double nearly, double slack);

/* Decides what is pending. contest->best is then the winner. */
void qobs_contest_finish(struct contest *contest);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Hessians of the caller that round codes. */
#pragma once

#include "optimal/code_descent.h"
#include "qobs/stateless.h"

enum { ROUND_PASSES = 4 }; /* unless the caller says it */

/* Checks the passes over the codes, and the caller's report; NULL: there is none. */
int qobs_check_round(int passes, const qobs_round_report *report, qobs_error *error);

/* Checks a Hessian of the columns of a weight, of which *h becomes the view, and makes the members of *c that depend on
 * it. count: tokens, 0 counts as 1. group: columns in which blocks start anew; 0: there are no groups. */
int qobs_open_hessian(struct code_descent *c, const qobs_tensor *hessian, int64_t count, int64_t columns, int64_t group,
                      struct view *h, qobs_error *error);

/* Copies a result to the caller's report, whose size is checked; NULL: there is none. */
void qobs_put_round_report(qobs_round_report *report, const struct code_descent_result *result);

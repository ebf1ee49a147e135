/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Hessians of the caller that round codes. */
#pragma once

#include "optimal/code_descent.h"
#include "qobs/stateless.h"

enum { ROUND_PASSES = 4 }; /* unless the caller says it */

/* Checks the passes over the codes, and the caller's report; NULL: there is none. */
int qobs_check_round(int passes, const qobs_round_report *report, qobs_error *error);

/* Errors of columns cancel in the tokens of H better than in others, the more so the fewer these are: H_jk of two
 * columns is divided by 1 + few * sqrt(columns / tokens). Scales that were searched under H leave less to gain than
 * those of ggml. Both weights were found with two models and three kinds of text: bench/notes/descent.md and
 * docs/gguf.md. */
static const double FEW_BESIDE_OWN_SCALES = 0.5, FEW_BESIDE_GGML_SCALES = 2;

struct caller_hessian {
    const qobs_tensor *sum;
    int64_t count; /* tokens; 0 or 1: not known, and nothing shrinks */
    double few;
};

/* Checks a Hessian of the columns of a weight, of which *h becomes the view, and makes the members of *c that depend on
 * it. group: columns in which blocks start anew; 0: there are no groups. */
int qobs_open_hessian(struct code_descent *c, const struct caller_hessian *a, int64_t columns, int64_t group,
                      struct view *h, qobs_error *error);

/* Copies a result to the caller's report, whose size is checked; NULL: there is none. */
void qobs_put_round_report(qobs_round_report *report, const struct code_descent_result *result);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How much each column of a weight matters: the mean square of the activations it is multiplied with, as llm-compressor's
 * imatrix_mse observer gathers it. */
#ifndef QOBS_STATISTIC_IMPORTANCE_H
#define QOBS_STATISTIC_IMPORTANCE_H

#include "kernels/kernels.h"
#include "base/runtime.h"
#include "base/tensor.h"

/* Sums of squares. They are double and a square is exact, so what the order of tokens leaves of rounding is far below the
 * f32 that is made of them. */
struct importance {
    int64_t columns; /* 0: nothing has been said about them */
    uint64_t tokens;
    double *sum;
};

/* Why importance could not be used, in the order upstream looks. */
enum importance_fault {
    IMPORTANCE_USABLE,
    IMPORTANCE_NO_WEIGHT, /* the observed tensor is none */
    IMPORTANCE_NOT_OBSERVED,
    IMPORTANCE_NOT_FINITE,
    IMPORTANCE_NEGATIVE,
    IMPORTANCE_ZERO,
    IMPORTANCE_STRATEGY,
    IMPORTANCE_COLUMNS,
    IMPORTANCE_FAULTS
};
const char *qobs_importance_fault_text(enum importance_fault fault); /* NULL for USABLE */

/* Adds activations v (..., columns). `columns` of an empty importance becomes theirs; others are refused. Runs on the
 * executor; each column's sum goes through the tokens in their order. */
int qobs_importance_add(const struct runtime *runtime, const struct qobs_kernels *kernels, struct importance *importance,
                        const struct view *v, qobs_error *error);

/* Makes room for that many columns with sums of 0, if there is none yet. */
int qobs_importance_reserve(const struct runtime *runtime, struct importance *importance, int64_t columns,
                            qobs_error *error);

/* The sums in f32, as many as there are columns; `sum` is aligned for float. */
void qobs_importance_sums(const struct importance *importance, float *sum);

/* The mean squares in f32, as many as there are columns; with 0 tokens they are 0. */
void qobs_importance_means(const struct importance *importance, float *mean);

/* Divides by the mean of all and a little more, so that equal importance is 1: f32 as upstream's. Leaves unusable ones as
 * they are. */
enum importance_fault qobs_importance_normalise(float *mean, int64_t columns);

void qobs_importance_release(const struct runtime *runtime, struct importance *importance);

#endif

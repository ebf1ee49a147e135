/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Importance of the columns of a weight: the mean square of the activations each column is multiplied with, as
 * llm-compressor's imatrix_mse observer collects it. */
#pragma once

#include "stages/range_params.h"

/* Sums of squares in double. A square is exact, so the rounding that depends on the order of tokens is far below that
 * of the f32 results. */
struct importance {
    int64_t columns; /* 0: not known yet */
    uint64_t tokens;
    double *sum;
    double *peak; /* largest magnitudes, in f32; NULL: not kept */
};

const char *qobs_importance_fault_text(enum importance_fault fault); /* NULL for USABLE */

/* Fails if v is no activations (..., columns), or if a number of columns is known (above 0) and v has another one. */
int qobs_check_activations(const struct view *v, int64_t columns, qobs_error *error);

/* Adds activations v (..., columns). The first ones set the number of columns; another number fails. Runs on the
 * executor; each column is summed in the order of the tokens. */
int qobs_importance_add(const struct runtime *runtime, const struct kernel_table *kernels,
                        struct importance *importance, bool peaks, const struct view *v, qobs_error *error);

/* Allocates that many columns with sums, and with peaks if they are wanted, of 0, unless there are columns. */
int qobs_importance_reserve(const struct runtime *runtime, struct importance *importance, int64_t columns, bool peaks,
                            qobs_error *error);

/* The numbers of `sum`, which `peak` continues. */
static inline size_t qobs_importance_count(const struct importance *importance)
{
    return (size_t)importance->columns * (importance->peak ? 2 : 1);
}

/* Writes the sum of each column in f32. */
void qobs_importance_sums(const struct importance *importance, float *sum);

/* Writes the mean square of each column in f32; with 0 tokens it is 0. */
void qobs_importance_means(const struct importance *importance, float *mean);

/* Divides by the mean of all columns plus FLT_MIN, in f32 as upstream does, so that equal importance is 1. Unusable
 * importance stays unchanged. */
enum importance_fault qobs_importance_normalise(float *mean, int64_t columns);

void qobs_importance_release(const struct runtime *runtime, struct importance *importance);

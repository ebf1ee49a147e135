/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Input and results of the grid search of qparams, and its workspace. */
#pragma once

#include "plan/gather.h"
#include "qobs/plan.h"
#include "grid/native_rows.h"
#include "range/search_errors.h"
#include "grid/shrink.h"

/* Shared by all threads. */
struct qparam_search {
    const struct kernel_table *kernels;
    const qobs_plan *plan;
    struct element_source source;
    struct quantizer quantizer;
    struct search_norm norm;
    struct shrink shrink;
    struct native_search native;
    bool shifted;                 /* zero points may be other than 0 */
    bool weighted;                /* kernels need weights */
    struct row_capacity capacity; /* for tables of qparams with the same amax; without memory */
    size_t row; /* elements of a qparam in a batch, rounded up to QOBS_SEARCH_LANES; 0: too many for a batch */
    unsigned char *min, *max;           /* ranges to search */
    unsigned char *best_min, *best_max; /* results */
    size_t size;                        /* bytes of an element of the four arrays */
    int32_t *best_step;
    double *error, *error_before; /* may be NULL */
    int32_t stop;                 /* only steps below it count */
};

/* Private to a thread. */
struct qparam_workspace {
    float *x, *weight;              /* elements of a batch, or of a block */
    float *sum;                     /* [candidate][QOBS_SEARCH_LANES], or [candidate] */
    size_t most;                    /* the largest number of elements of a qparam in the batch */
    double *total;                  /* [candidate], of one qparam */
    float *rows;                    /* memory of a table */
    struct prefetch_ahead prefetch; /* memory to prefetch during the search */
    struct range_batch ranges;
    struct shrunk shrunk;
};

/* Bytes of a workspace's arrays, at any address, and their places in it. */
size_t qobs_qparam_workspace_size(const struct qparam_search *search);
void qobs_qparam_workspace_place(const struct qparam_search *search, unsigned char *memory,
                                 struct qparam_workspace *workspace);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The grid search of some qparams by one thread: the errors of all their candidates, and the best step of each. */
#pragma once

#include "plan/gather.h"
#include "qobs/plan.h"
#include "range/search_errors.h"
#include "range/shrink.h"

/* Shared by all threads. */
struct qparam_search {
    const struct kernel_table *kernels;
    const qobs_plan *plan;
    struct element_source source;
    struct quantizer quantizer;
    struct search_norm norm;
    struct shrink shrink;
    struct native_search native;
    bool shifted;  /* zero points may be other than 0 */
    bool weighted; /* kernels need weights */
    bool bounded;  /* candidates whose bound is above the best error get no sum */
    size_t row;    /* elements of a qparam in a batch, rounded up to QOBS_SEARCH_LANES; 0: too many for a batch */
    unsigned char *min, *max;           /* ranges to search */
    unsigned char *best_min, *best_max; /* results */
    size_t size;                        /* bytes of an element of the four arrays */
    int32_t *best_step;
    double *error, *error_before; /* may be NULL */
    int32_t stop;                 /* only steps below it count */
};

/* Rules of bounds by the upper bits of the scale. */
enum { RULE_ENTRIES = 16, RULE_SHIFT = 20 };
struct rule_entry {
    uint32_t key; /* 0: none */
    struct native_bound rule;
};

/* Private to a thread. */
struct qparam_workspace {
    float *x, *weight;              /* elements of a batch, or of a block */
    float *sum;                     /* [candidate][QOBS_SEARCH_LANES], or [candidate] */
    size_t most;                    /* the largest number of elements of a qparam in the batch */
    double *total;                  /* [candidate], of one qparam */
    struct prefetch_ahead prefetch; /* memory to prefetch during the search */
    struct range_batch ranges;
    struct shrunk shrunk;
    struct rule_entry rules[RULE_ENTRIES];
};

/* Bytes of a workspace's arrays, at any address, and their places in it. */
size_t qobs_qparam_workspace_size(const struct qparam_search *search);
void qobs_qparam_workspace_place(const struct qparam_search *search, unsigned char *memory,
                                 struct qparam_workspace *workspace);

/* Searches n <= QOBS_SEARCH_LANES qparams from `first` on. `e` has the elements of the first one, afterwards those of
 * the last one. Writes best_step, range and errors, and sets a bit in `improved` for each step at which one of the
 * qparams improved. If bounded, only the last step at which a qparam improved gets a bit. */
void qobs_search_qparams(struct qparam_search *search, struct qparam_workspace *workspace, struct elements *e,
                         size_t first, size_t n, uint64_t *improved);

/* For a qparam that is searched in blocks: writes the sums of all candidates over elements first to end to
 * workspace->total. Returns false, without sums, if the range is not finite. */
bool qobs_sum_block(struct qparam_search *search, struct qparam_workspace *workspace, struct elements *e, size_t qparam,
                    int64_t first, int64_t end);

/* Chooses the best step by sums over all elements, and writes what qobs_search_qparams writes. */
void qobs_choose_step(struct qparam_search *search, size_t qparam, double *total, uint64_t *improved);

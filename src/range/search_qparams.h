/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Searching qparams: the errors of all their candidates, and which of these is best. */
#ifndef QOBS_SEARCH_QPARAMS_H
#define QOBS_SEARCH_QPARAMS_H

#include "plan/gather.h"
#include "range/shrink.h"

/* What does not depend on who searches which of them. */
struct qparam_search {
    const struct qobs_kernels *kernels;
    const qobs_plan *plan;
    struct element_source source;
    struct qobs_quantizer quantizer;
    struct search_norm norm;
    struct shrink shrink;
    bool shifted, weighted;
    size_t row; /* elements of a qparam in a batch, rounded up to QOBS_SEARCH_LANES; 0: more than kernels take as a batch */
    unsigned char *min, *max; /* of what is searched */
    unsigned char *best_min, *best_max;
    size_t size; /* bytes of an element of them */
    int32_t *best_step;
    double *error, *error_before; /* may be NULL */
    int32_t stop;                 /* steps that count */
};

/* What a thread works with. */
struct workspace {
    float *x, *weight; /* of a batch */
    float *sum;        /* as candidates are */
    size_t most;       /* elements of any of them */
    double *total;     /* of one qparam */
    struct qobs_prefetch prefetch; /* what is wanted after the qparams that are searched */
    struct ranges ranges;
    struct shrunk shrunk;
};

/* Bytes of memory at any address for a desk's arrays, and their places in it. */
size_t qobs_workspace_size(const struct qparam_search *search);
void qobs_workspace_place(const struct qparam_search *search, unsigned char *memory, struct workspace *workspace);

/* Searches n <= QOBS_SEARCH_LANES qparams from `first` on, of which e has the elements, afterwards those of the last one. Writes their
 * best_step, range and errors, and sets a bit in `improved` for each step at which one of them improved. */
void qobs_search_qparams(struct qparam_search *search, struct workspace *workspace, struct elements *e, size_t first, size_t n,
                         uint64_t *improved);

/* For qparams that are searched in parts: sums of all candidates over elements first to end, in desk->total; false: the range is not
 * finite, and there are none. */
bool qobs_sum_part(struct qparam_search *search, struct workspace *workspace, struct elements *e, size_t qparam, int64_t first, int64_t end);

/* The choice by sums over all elements, as qobs_search_qparams makes it. */
void qobs_choose(struct qparam_search *search, size_t qparam, const double *total, uint64_t *improved);

#endif

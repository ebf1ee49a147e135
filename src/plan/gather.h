/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The elements of one qparam after the other, as blocks of floats for range search. Their order is that of the flattened value. */
#ifndef QOBS_SEARCH_ELEMENTS_H
#define QOBS_SEARCH_ELEMENTS_H

#include "kernels/kernels.h"
#include "plan/plan.h"

struct element_source {
    const qobs_plan *plan;
    const unsigned char *data;
    const float *column_weight; /* one a column; NULL: all 1 */
    qobs_search_load_fn *load;
    bool finite_only; /* what is not finite becomes 0 */
};

/* Those of one qparam, without the zeros that pad a block. */
struct elements {
    int64_t position[MAX_AXES]; /* of the qparam */
    int64_t offset;             /* of the first one, in bytes */
    const int64_t *order;       /* of the columns (g_idx), or NULL */
    int64_t column;             /* of the first one */
    int axes;
    int64_t extent[MAX_AXES], stride[MAX_AXES];
    int64_t count;
};

/* The most elements a qparam has. */
int64_t qobs_elements_most(const qobs_plan *plan);

void qobs_elements_at(const struct element_source *source, int64_t qparam, struct elements *elements);
void qobs_elements_next(const struct element_source *source, struct elements *elements);

/* The memory of elements first to end, as far as there are any, if they lie one after the other; else nothing. */
struct qobs_prefetch qobs_elements_memory(const struct element_source *source, const struct elements *elements, int64_t first, int64_t end);

/* n <= QOBS_SEARCH_MOST of them from `first` on, times factor, filled up with zeros to a multiple of QOBS_SEARCH_LANES. */
void qobs_elements_load(const struct element_source *source, const struct elements *elements, int64_t first, size_t n,
                        double factor, float *out);

/* Their weights, filled up in the same way; all 1 where there are none. */
void qobs_elements_weights(const struct element_source *source, const struct elements *elements, int64_t first, size_t n,
                           float *out);

#endif

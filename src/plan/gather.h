/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The elements of one qparam after the other, as blocks of floats for range search, in the order of the flattened
 * value. There are two implementations: memory order (gather.c) and the order of g_idx (gather_g_idx.c);
 * qobs_elements_at chooses. */
#pragma once

#include "kernels/kernels.h"
#include "plan/plan.h"

struct element_source {
    const qobs_plan *plan;
    const unsigned char *data;
    const float *column_weight; /* one for each column; NULL: all 1 */
    qobs_search_load_fn *load;
    bool finite_only; /* NaN and infinities become 0 */
};

/* The elements of one qparam, without the zeros that pad a block. */
struct elements {
    const struct gather *gather;
    int64_t position[MAX_AXES]; /* of the qparam */
    int64_t offset;             /* of the first element, in bytes */
    int64_t count;
    const int64_t *order; /* g_idx: their columns */
    int64_t column;       /* memory order: of the first element */
    int axes;             /* memory order: the loops over the elements */
    int64_t extent[MAX_AXES];
    int64_t stride[MAX_AXES]; /* bytes; g_idx: [0] is from column to column */
};

struct gather {
    void (*place)(const struct element_source *source, struct elements *e); /* at e->position */
    void (*next)(const struct element_source *source, struct elements *e);  /* the elements of the qparam after that */
    /* The memory of elements first to end, as far as there are any, if they are contiguous; else nothing. */
    struct prefetch_ahead (*memory)(const struct element_source *source, const struct elements *e, int64_t first,
                                    int64_t end);
    /* n <= QOBS_SEARCH_MOST elements from `first` on, times factor, padded with zeros to a multiple of
     * QOBS_SEARCH_LANES. */
    void (*load)(const struct element_source *source, const struct elements *e, int64_t first, size_t n, double factor,
                 float *out);
    /* Their weights, padded in the same way; all 1 without column_weight. */
    void (*weights)(const struct element_source *source, const struct elements *e, int64_t first, size_t n, float *out);
};

extern const struct gather qobs_gather_memory, qobs_gather_g_idx;

/* The most elements a qparam has. */
int64_t qobs_elements_most(const qobs_plan *plan);

void qobs_elements_at(const struct element_source *source, int64_t qparam, struct elements *elements);

/* Zeros up to a multiple of QOBS_SEARCH_LANES. */
static inline void pad_lanes(float *out, size_t n)
{
    for (; n % QOBS_SEARCH_LANES != 0; n++)
        out[n] = 0;
}

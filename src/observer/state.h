/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The accumulated state of an observer, and how its parts are allocated. A state without ranges has seen no batch. */
#pragma once

#include "histogram/histogram.h"
#include "measure/accumulators.h"
#include "plan/plan.h"
#include "optimal/optimal_result.h"
#include "search/search_record.h"

/* Minimum and maximum of every qparam, in one block of memory. */
struct ranges {
    size_t size; /* bytes of both arrays */
    unsigned char *min, *max;
};

/* Dtype and shape of the ranges, known from the first batch. */
struct layout {
    qobs_dtype dtype; /* of the ranges */
    size_t qparams;
    struct shape range, scale;
    enum keying keying;
};

/* The range of whole tensors, in the dtype of the batches. */
struct global_range {
    qobs_dtype dtype; /* 0: there is none */
    _Alignas(8) unsigned char min[8];
    _Alignas(8) unsigned char max[8];
};

/* The error of every candidate of every qparam, summed over batches. */
struct error_sums {
    double *sum;
    size_t count;
};

struct state {
    struct layout layout;
    struct ranges ranges;        /* accumulated */
    struct ranges batch;         /* memory for those of the next batch */
    struct mode_count mode;      /* if the scales of the batches are counted */
    struct histogram histogram;  /* if there is one; the ranges are then those of its elements */
    struct error_sums sums;      /* of every candidate of every qparam, if they are summed over batches */
    struct search_record record; /* of the last batch's search */
    struct optimal_result optimal; /* the same, if the scales are not those of the ranges */
};

static inline bool qobs_state_is_empty(const struct state *state) { return !state->ranges.min; }

int qobs_allocate_ranges(const struct runtime *runtime, struct ranges *ranges, qobs_dtype dtype, size_t n,
                         qobs_error *error);
int qobs_error_sums_reserve(const struct runtime *runtime, struct error_sums *sums, size_t count,
                            qobs_error *error); /* of 0 */
void qobs_release_ranges(const struct runtime *runtime, struct ranges *ranges);
void qobs_state_release(const struct runtime *runtime, struct state *state); /* all but the layout */

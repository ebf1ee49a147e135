/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The stages of an observer with their parameters, resolved once from a configuration. Everything below config/ sees
 * these and no setting. */
#pragma once

#include "stages/accumulator.h"
#include "stages/granularity.h"
#include "stages/range_rule.h"

/* The source of the global scale of tensor_group. */
enum global_source {
    GLOBAL_NONE,        /* there is no global scale */
    GLOBAL_FROM_RANGES, /* the largest magnitude of the accumulated ranges */
    GLOBAL_FROM_TENSORS /* a range of whole tensors, accumulated apart from those of the qparams */
};

/* The count of tokens that is a result. */
enum token_count { TOKENS_NONE, TOKENS_ALL, TOKENS_NONZERO };

/* Behaviour of upstream's class besides its stages. */
struct observer_traits {
    bool first_batch_only; /* later batches are ignored: a weight does not change */
    bool has_global_range; /* accumulates a range of whole tensors if it is asked for one */
    enum global_source global;
    enum token_count token_result;
    bool counts_nonzero_tokens;
    bool qparams_along_dim; /* has get_qparams_along_dim */
    bool scale_is_list;     /* the scale of a tensor has one dimension whatever the granularity says */
    bool plural_names;      /* min_vals instead of min_val */
    bool bias;              /* the middle of the range is the result */
    bool range_is_lowest;   /* the range to quantize is lowest to highest */
    bool hides_ranges;      /* the accumulated ranges are no results */
    bool log_threshold;     /* the range is a threshold, whose logarithm is a result */
};

struct stages {
    struct granularity granularity;
    struct reduction reduction;
    struct accumulator accumulator;
    struct range_rule range;
    struct formula formula;
    struct observer_traits traits;
};

/* True if the accumulated ranges are results; those of most histograms are not. They are minima and maxima, or (-amax,
 * amax). */
static inline bool qobs_has_ranges(const struct stages *stages)
{
    const struct histogram_ops *histogram = stages->reduction.histogram.ops;
    return stages->reduction.ops->measure && (!histogram || histogram->ranges_are_results);
}

static inline bool qobs_has_min_max(const struct stages *stages)
{
    return qobs_has_ranges(stages) && !stages->accumulator.ops->symmetric;
}

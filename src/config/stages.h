/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The stages of an observer with their parameters, resolved once from a configuration. Everything below config/ sees
 * these and no setting. */
#pragma once

#include "config/config.h"
#include "formula/formula.h"
#include "measure/accumulators.h"
#include "histogram/reduction.h"
#include "plan/granularity.h"
#include "histogram/range_rule.h"

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

void qobs_stages_of(const qobs_config *config, struct stages *stages);

/* One resolver for each stage: the only places that look at presets and settings. */
void qobs_resolve_granularity(const qobs_config *config, struct granularity *granularity);
void qobs_resolve_reduction(const qobs_config *config, struct reduction *reduction);
void qobs_resolve_range(const qobs_config *config, struct range_rule *rule);
void qobs_resolve_formula(const qobs_config *config, struct formula *formula);
void qobs_resolve_traits(const qobs_config *config, struct observer_traits *traits);

/* What a configuration that has been checked says of quantization to the numbers of `format`; NULL: to its own. `codes`
 * says that the numbers must have codes (resolve.c). */
struct quantize_rule;
int qobs_resolve_quantize(const qobs_config *config, const struct qobs_format *format, bool codes,
                          struct quantize_rule *rule, qobs_error *error);

/* The numbers of fake-quantize by an amax. False: the preset has none. */
struct amax_numbers;
bool qobs_resolve_amax_numbers(const qobs_config *config, struct amax_numbers *numbers);

/* True if batches are searched as llm-compressor does. */
static inline bool qobs_config_searches_grid(const qobs_config *config) { return config->preset->search != NULL; }

/* The methods that find a range in a histogram of the caller, and whether presets of the family have one. */
enum range_finder { FINDER_PERCENTILE = 1, FINDER_L2_NORM = 2, FINDER_ENTROPY = 4, FINDER_MSE = 8 };
bool qobs_config_has_finder(const qobs_config *config, enum range_finder finder);

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

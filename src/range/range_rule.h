/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A range rule turns what was measured into the range of every qparam. It searches over tensor elements or reads a histogram; the
 * rule qobs_range_measured does neither and leaves the measured range as it is. */
#ifndef QOBS_RANGE_RULE_H
#define QOBS_RANGE_RULE_H

#include "range/range_params.h"

enum search_stage {
    SEARCH_NONE,
    SEARCH_BATCH, /* the range of a batch, before it is accumulated */
    SEARCH_STATE  /* around the ranges of all batches, after a batch was accumulated; errors are those of the batch */
};

struct range_ops {
    enum search_stage search;
    size_t (*steps)(const struct range_params *params); /* candidates of each qparam; NULL: the rule does not search */
    int32_t min_step; /* the smallest best_step; -1 stands for no improvement */
    bool reference;   /* accepts a reference amax and error weights before the first batch */
    bool sums;        /* keeps the error of every candidate, summed over all batches */
};

extern const struct range_ops qobs_range_measured, qobs_range_grid, qobs_range_power_of_2, qobs_range_exponent, qobs_range_multiplier,
    qobs_range_e4m3, qobs_range_non_linear, qobs_range_percentile, qobs_range_bins_mse, qobs_range_amax, qobs_range_never;

struct range_rule {
    const struct range_ops *ops;
    struct range_params params;
};

static inline size_t qobs_range_steps(const struct range_rule *rule)
{
    return rule->ops->steps ? rule->ops->steps(&rule->params) : 0;
}

#endif

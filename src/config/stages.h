/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The stages of an observer with their parameters, resolved once from a configuration. Everything below config/ sees these and no
 * setting. */
#ifndef QOBS_STAGES_H
#define QOBS_STAGES_H

#include "config/config.h"
#include "measure/histogram.h"
#include "plan/granularity.h"
#include "range/range_rule.h"

struct stages {
    struct granularity granularity; /* which elements share a scale */
    enum nonfinite_mode nonfinite;  /* what happens to NaN and infinities */
    struct histogram_rule histogram;
    struct range_rule range;
    struct formula formula; /* from ranges to scale and zero point */
};

void qobs_stages_of(const qobs_config *config, struct stages *stages);

/* One resolver for each stage. */
void qobs_resolve_granularity(const qobs_config *config, struct granularity *granularity);
void qobs_resolve_histogram(const qobs_config *config, struct histogram_rule *rule);
void qobs_resolve_formula(const qobs_config *config, struct formula *formula);
void qobs_resolve_range(const qobs_config *config, struct range_rule *rule);

/* The range rule of a configuration, without its parameters. */
const struct range_ops *qobs_range_ops_of(const qobs_config *config);

static inline bool qobs_searches(const qobs_config *config)
{
    return qobs_range_ops_of(config)->stage != SEARCH_NONE;
}

static inline bool qobs_searches_kept(const qobs_config *config)
{
    return qobs_range_ops_of(config)->stage == SEARCH_STATE;
}

/* The observer weighs errors by column importance. */
bool qobs_weighs_columns(const qobs_config *config);

#endif

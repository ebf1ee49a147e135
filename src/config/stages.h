/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The stages of an observer with their parameters, resolved once from a configuration. Everything below config/ sees these and no
 * setting. */
#ifndef QOBS_STAGES_H
#define QOBS_STAGES_H

#include "config/config.h"
#include "measure/histogram.h"
#include "plan/granularity.h"

struct stages {
    struct granularity granularity; /* which elements share a scale */
    enum nonfinite_mode nonfinite; /* what happens to NaN and infinities */
    struct histogram_rule histogram;
};

void qobs_stages_of(const qobs_config *config, struct stages *stages);

void qobs_resolve_granularity(const qobs_config *config, struct granularity *granularity);
void qobs_resolve_histogram(const qobs_config *config, struct histogram_rule *rule);

#endif

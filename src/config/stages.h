/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The stages of an observer with their parameters, resolved once from a configuration. Everything below config/ sees these and no
 * setting. */
#ifndef QOBS_STAGES_H
#define QOBS_STAGES_H

#include "config/config.h"

struct stages {
    struct formula formula;        /* from ranges to scale and zero point */
    enum nonfinite_mode nonfinite; /* what happens to NaN and infinities */
};

void qobs_stages_of(const qobs_config *config, struct stages *stages);

/* One stage each. */
void qobs_resolve_formula(const qobs_config *config, struct formula *formula);

#endif

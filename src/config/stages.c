/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "config/stages.h"

void qobs_stages_of(const qobs_config *config, struct stages *stages)
{
    stages->nonfinite = (enum nonfinite_mode)config->nonfinite;
    qobs_resolve_histogram(config, &stages->histogram);
    qobs_resolve_accumulator(config, &stages->accumulator);
    qobs_resolve_traits(config, &stages->traits);
}

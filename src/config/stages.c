/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "config/stages.h"

void qobs_stages_of(const qobs_config *config, struct stages *stages)
{
    *stages = (struct stages){.nonfinite = (enum nonfinite_mode)config->nonfinite};
    qobs_resolve_granularity(config, &stages->granularity);
    qobs_resolve_range(config, &stages->range);
    qobs_resolve_histogram(config, &stages->histogram);
    qobs_resolve_formula(config, &stages->formula);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "config/stages.h"

#include "base/fpenv.h"

void qobs_stages_of(const qobs_config *config, struct stages *stages)
{
    const fp_mode mode = fp_enter(); /* the count of candidates is rounded */
    qobs_resolve_granularity(config, &stages->granularity);
    qobs_resolve_reduction(config, &stages->reduction);
    qobs_resolve_accumulator(config, &stages->accumulator);
    qobs_resolve_range(config, &stages->range);
    qobs_resolve_formula(config, &stages->formula);
    qobs_resolve_traits(config, &stages->traits);
    fp_leave(mode);
}

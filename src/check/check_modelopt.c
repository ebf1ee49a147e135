/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The multiples of a magnitude that Model-Optimizer's MseCalibrator searches. */
#include "check/check.h"

#include <math.h>

#include "base/error.h"
#include "range/multiplier_search.h"

int qobs_check_modelopt(const qobs_config *config, qobs_error *error)
{
    if (config->preset->range == &qobs_range_headroom && !(config->log2_min < config->log2_max))
        return qobs_invalid(error, "log2_max: is %g, must be above log2_min, %g", config->log2_max, config->log2_min);
    if (config->preset->range != &qobs_range_multiplier)
        return QOBS_OK;
    const double steps = ceil((config->stop_multiplier - config->start_multiplier) / config->step_size) + 1;
    if (config->stop_multiplier < config->start_multiplier)
        return qobs_invalid(error, "stop_multiplier: is %g, must not be below start_multiplier, %g",
                            config->stop_multiplier, config->start_multiplier);
    if (steps > QOBS_MAX_MULTIPLIERS)
        return qobs_invalid(error, "step_size: %g makes %.0f candidates, allowed are %d", config->step_size, steps,
                            QOBS_MAX_MULTIPLIERS);
    return QOBS_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The multiples of a magnitude that Model-Optimizer's MseCalibrator searches, and the blocks of a Hessian. */
#include "check/check.h"

#include <math.h>

#include "base/error.h"
#include "range/multiplier_search.h"

/* Blocks of the Hessian are whole vectors of the kernels, and lie in one block of the scales. */
static int check_hessian(const qobs_config *config, qobs_error *error)
{
    const int64_t block = config->hessian_block_size, scales = config->block_size;
    if (!config->has_hessian_block)
        return QOBS_OK;
    if (block % 8 != 0)
        return qobs_invalid(error, "hessian_block_size: is %lld, allowed are multiples of 8", (long long)block);
    if (config->preset->range == &qobs_range_e4m3 && scales % block != 0)
        return qobs_invalid(error, "hessian_block_size: is %lld, does not divide block_size, %lld", (long long)block,
                            (long long)scales);
    return QOBS_OK;
}

int qobs_check_modelopt(const qobs_config *config, qobs_error *error)
{
    if (config->preset->range == &qobs_range_headroom && !(config->log2_min < config->log2_max))
        return qobs_invalid(error, "log2_max: is %g, must be above log2_min, %g", config->log2_max, config->log2_min);
    RETURN_IF_FAILED(check_hessian(config, error));
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

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "config/config.h"

#include "number/format.h"

enum strategy qobs_config_strategy(const qobs_config *config)
{
    if (config->strategy != STRATEGY_NONE)
        return (enum strategy)config->strategy;
    if (!config->has_group_size)
        return config->preset->family == FAMILY_QOBS ? STRATEGY_CHANNEL : STRATEGY_TENSOR;
    return config->group_size == -1 ? STRATEGY_CHANNEL : STRATEGY_GROUP;
}

bool qobs_config_has_channels(const qobs_config *config)
{
    return config->preset->granularity == GRANULARITY_TORCH_CHANNEL ||
           (config->preset->granularity == GRANULARITY_TORCH_QSCHEME && config->qscheme >= TORCH_PER_CHANNEL_AFFINE);
}

const struct qobs_format *qobs_config_float_format(const qobs_config *config)
{
    return qobs_format_at(config->num_bits == 4 ? FORMAT_E2M1 : config->num_bits == 6 ? FORMAT_E2M3 : FORMAT_E4M3);
}

bool qobs_config_is_mx(const qobs_config *config)
{
    return config->type == TYPE_FLOAT && config->num_bits <= 8 && config->has_group_size && config->group_size == 32 &&
           config->scale_dtype == SCALE_U8 && qobs_config_is_current(config);
}

bool qobs_config_has_whole_zero_points(const qobs_config *config)
{
    return config->zp_dtype == 0 || config->zp_dtype == QOBS_I8 || config->zp_dtype == QOBS_U8 ||
           config->zp_dtype == QOBS_I16 || config->zp_dtype == QOBS_I32;
}

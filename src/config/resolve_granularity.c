/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The granularity of a configuration. */
#include "config/stages.h"

static const struct granularity_ops *resolve_llmc(const qobs_config *config)
{
    const bool old = config->version == VERSION_2025_10;
    if (config->version == VERSION_2025_09)
        return &qobs_granularity_llmc_2025_09;
    switch (config->base_name) {
    case BASE_WEIGHT:
        return old ? &qobs_granularity_llmc_weight_2025_10 : &qobs_granularity_llmc_weight;
    case BASE_INPUT:
    case BASE_OUTPUT:
        return &qobs_granularity_llmc_activation;
    default:
        return old ? &qobs_granularity_llmc_attention_2025_10 : &qobs_granularity_llmc_attention;
    }
}

static const struct granularity_ops *resolve_ops(const qobs_config *config)
{
    switch (config->preset->granularity) {
    case GRANULARITY_LLMC:
        return resolve_llmc(config);
    case GRANULARITY_TENSOR:
        return &qobs_granularity_tensor;
    case GRANULARITY_TORCH_CHANNEL:
        return &qobs_granularity_torch_channel;
    case GRANULARITY_TORCH_QSCHEME:
        return qobs_config_has_channels(config) ? &qobs_granularity_torch_channel : &qobs_granularity_tensor;
    case GRANULARITY_QUARK_CHANNEL:
        return &qobs_granularity_quark_channel;
    case GRANULARITY_QUARK_GROUP:
        return &qobs_granularity_quark_group;
    case GRANULARITY_QUARK_BLOCK:
        return &qobs_granularity_quark_block;
    case GRANULARITY_MODELOPT_REDUCED:
        return &qobs_granularity_modelopt_reduced;
    case GRANULARITY_QUARK_LSQ:
        return qobs_config_has_lsq_channels(config) ? &qobs_granularity_torch_channel : &qobs_granularity_tensor;
    case GRANULARITY_ORT:
        return config->per_channel ? &qobs_granularity_torch_channel : &qobs_granularity_tensor;
    case GRANULARITY_TORCHAO:
        return &qobs_granularity_torchao;
    case GRANULARITY_MODELOPT_AXES:
        return &qobs_granularity_modelopt_axes;
    case GRANULARITY_MODELOPT_BLOCK:
        return &qobs_granularity_modelopt_block;
    case GRANULARITY_NONE:
        break;
    }
    return &qobs_granularity_none;
}

void qobs_resolve_granularity(const qobs_config *config, struct granularity *granularity)
{
    const bool oldest = config->preset->family == FAMILY_LLMC && config->version == VERSION_2025_09; /* no base names */
    const enum base_name base_name = oldest ? BASE_WEIGHT : (enum base_name)config->base_name;
    const bool ragged = config->ragged && base_name == BASE_WEIGHT;
    *granularity = (struct granularity){
        .ops = resolve_ops(config),
        .params =
            {
                .name = config->preset->name,
                .base_name = base_name,
                .strategy = qobs_config_strategy(config),
                .group_size = config->group_size,
                .block = {config->block[0], config->block[1]},
                .block_size = config->block_size,
                .ch_axis = config->preset->family == FAMILY_TORCHAO ? config->axis
                           : config->per_channel                    ? 1
                                                                    : config->ch_axis,
                .torchao = (enum torchao_granularity)config->torchao_granularity,
                .dim = config->dim,
                .block_sizes = config->block_sizes,
                .keepdim = config->keepdim,
                .axes = config->axes,
                .ragged = ragged,
                .scalar_scale = config->preset->family == FAMILY_QUARK || config->preset->family == FAMILY_ORT,
                .minus_one_is_none = config->version != VERSION_2025_10,
                .named_groups = ragged || config->version == VERSION_2025_09,
                .keying = config->version == VERSION_2025_09 ? KEYING_DEFAULT : KEYING_NONE,
            },
    };
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to its stages: what all families have in common, then the family's own. */
#include "config/families.h"

#include "base/fpenv.h"
#include "number/format.h"

enum strategy qobs_config_strategy(const qobs_config *config)
{
    if (config->strategy != STRATEGY_NONE)
        return (enum strategy)config->strategy;
    if (!config->has_group_size)
        return config->preset->ops->channel_by_default ? STRATEGY_CHANNEL : STRATEGY_TENSOR;
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

/* ---- Stages ------------------------------------------------------------------------------------------------------ */

void qobs_resolve_granularity(const qobs_config *config, struct granularity *granularity)
{
    /* Those that depend on settings are the family's. */
    static const struct granularity_ops *const by_kind[] = {
        [GRANULARITY_NONE] = &qobs_granularity_none,
        [GRANULARITY_LLMC] = NULL,
        [GRANULARITY_TENSOR] = &qobs_granularity_tensor,
        [GRANULARITY_TORCH_CHANNEL] = &qobs_granularity_torch_channel,
        [GRANULARITY_TORCH_QSCHEME] = &qobs_granularity_tensor,
        [GRANULARITY_QUARK_CHANNEL] = &qobs_granularity_quark_channel,
        [GRANULARITY_QUARK_GROUP] = &qobs_granularity_quark_group,
        [GRANULARITY_QUARK_BLOCK] = &qobs_granularity_quark_block,
        [GRANULARITY_MODELOPT_AXES] = &qobs_granularity_modelopt_axes,
        [GRANULARITY_MODELOPT_REDUCED] = &qobs_granularity_modelopt_reduced,
        [GRANULARITY_QUARK_LSQ] = &qobs_granularity_tensor,
        [GRANULARITY_ORT] = &qobs_granularity_tensor,
        [GRANULARITY_TORCHAO] = &qobs_granularity_torchao,
        [GRANULARITY_MODELOPT_BLOCK] = &qobs_granularity_modelopt_block,
    };
    *granularity = (struct granularity){
        .ops = by_kind[config->preset->granularity],
        .params = {.name = config->preset->name,
                   .base_name = (enum base_name)config->base_name,
                   .strategy = qobs_config_strategy(config),
                   .group_size = config->group_size,
                   .block = {config->block[0], config->block[1]},
                   .block_size = config->block_size,
                   .ch_axis = config->ch_axis,
                   .torchao = (enum torchao_granularity)config->torchao_granularity,
                   .dim = config->dim,
                   .block_sizes = config->block_sizes,
                   .keepdim = config->keepdim,
                   .axes = config->axes,
                   .minus_one_is_none = true},
    };
    if (config->preset->ops->granularity)
        config->preset->ops->granularity(config, granularity);
}

void qobs_resolve_reduction(const qobs_config *config, struct reduction *reduction)
{
    const struct reduction_ops *ops = config->preset->reduction;
    *reduction = (struct reduction){.ops = ops,
                                    .nonfinite = (enum nonfinite_mode)config->nonfinite,
                                    .in_f32 = ops->histogram,
                                    .f64_in_f32 = ops->f64_in_f32,
                                    .histogram = {.ops = ops->histogram,
                                                  .params = {.bins = (size_t)config->bins,
                                                             .float32_counts = config->float32_counts,
                                                             .shifted_counts = config->shifted_counts,
                                                             .nonfinite = (enum nonfinite_mode)config->nonfinite}}};
    if (config->preset->ops->reduction)
        config->preset->ops->reduction(config, reduction);
}

void qobs_resolve_accumulator(const qobs_config *config, struct accumulator *a)
{
    const struct accumulator_ops *ops = config->preset->accumulator;
    *a = (struct accumulator){.ops = ops,
                              .params = {.averaging_constant = config->averaging_constant},
                              .merge = ops->merge,
                              .replaces = ops->replaces};
    if (config->preset->ops->accumulator)
        config->preset->ops->accumulator(config, a);
}

void qobs_resolve_bins(const qobs_config *config, struct bins_params *b)
{
    *b = (struct bins_params){
        .percentile = config->percentile,
        .symmetric = config->symmetric,
        .stride = config->stride,
        .start_bin = config->start_bin,
        .numbers = 256,
        .method = (enum amax_method)config->method,
    };
}

void qobs_resolve_range(const qobs_config *config, struct range_rule *rule)
{
    *rule = (struct range_rule){.ops = config->preset->range,
                                .params = {.nonfinite = (enum nonfinite_mode)config->nonfinite}};
    config->preset->ops->range(config, rule);
}

void qobs_resolve_formula(const qobs_config *config, struct formula *formula)
{
    const bool tensor = config->preset->granularity == GRANULARITY_TENSOR ||
                        (config->preset->granularity == GRANULARITY_TORCH_QSCHEME && !qobs_config_has_channels(config));
    *formula = (struct formula){.ops = &qobs_formula_none,
                                .params = {.name = config->preset->name,
                                           .rank = tensor ? RANK_SCALAR : RANK_TENSOR,
                                           .shape_without_data = {.ndim = 1, .extent = {1}}}};
    if (config->preset->ops->formula)
        formula->ops = config->preset->ops->formula(config, &formula->params);
}

void qobs_resolve_traits(const qobs_config *config, struct observer_traits *traits)
{
    *traits = (struct observer_traits){0};
    if (config->preset->ops->traits)
        config->preset->ops->traits(config, traits);
}

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

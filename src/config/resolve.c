/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to its stages and to the numbers and codes of quantization: what all families have in common,
 * then the family's own. */
#include "config/resolve.h"

#include "base/fpenv.h"
#include "config/families.h"
#include "quantize/row_quantizer.h"

enum strategy qobs_config_strategy(const qobs_config *config)
{
    if (config->scheme.strategy != STRATEGY_NONE)
        return (enum strategy)config->scheme.strategy;
    if (!config->has_group_size)
        return config->preset->ops->channel_by_default ? STRATEGY_CHANNEL : STRATEGY_TENSOR;
    return config->group_size == -1 ? STRATEGY_CHANNEL : STRATEGY_GROUP;
}

const struct qobs_format *qobs_config_float_format(const qobs_config *config)
{
    return qobs_format_at(config->scheme.num_bits == 4   ? FORMAT_E2M1
                          : config->scheme.num_bits == 6 ? FORMAT_E2M3
                                                         : FORMAT_E4M3);
}

bool qobs_config_is_mx(const qobs_config *config)
{
    return config->scheme.type == TYPE_FLOAT && config->scheme.num_bits <= 8 && config->has_group_size &&
           config->group_size == 32 && config->scheme.scale_dtype == SCALE_U8 && qobs_config_is_current(config);
}

bool qobs_config_has_whole_zero_points(const qobs_config *config)
{
    return config->scheme.zp_dtype == 0 || config->scheme.zp_dtype == QOBS_I8 || config->scheme.zp_dtype == QOBS_U8 ||
           config->scheme.zp_dtype == QOBS_I16 || config->scheme.zp_dtype == QOBS_I32;
}

/* ---- Stages ------------------------------------------------------------------------------------------------------ */

void qobs_resolve_granularity(const qobs_config *config, struct granularity *granularity)
{
    *granularity = (struct granularity){
        .ops = config->preset->granularity,
        .params = {.name = config->preset->name,
                   .base_name = (enum base_name)config->base_name,
                   .group_size = config->group_size,
                   .ch_axis = config->ch_axis,
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
                                    .in_f32 = ops->histogram || config->preset->ops->in_f32,
                                    .f64_in_f32 = ops->f64_in_f32,
                                    .histogram = {.ops = ops->histogram,
                                                  .params = {.bins = (size_t)config->histogram.bins,
                                                             .float32_counts = config->histogram.float32_counts,
                                                             .shifted_counts = config->histogram.shifted_counts,
                                                             .nonfinite = (enum nonfinite_mode)config->nonfinite}}};
    if (config->preset->ops->reduction)
        config->preset->ops->reduction(config, reduction);
}

static void resolve_accumulator(const qobs_config *config, struct accumulator *a)
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
        .percentile = config->histogram.percentile,
        .symmetric = config->symmetric,
        .stride = config->histogram.stride,
        .start_bin = config->histogram.start_bin,
        .numbers = 256,
    };
    if (config->preset->ops->bins)
        config->preset->ops->bins(config, b);
}

void qobs_resolve_range(const qobs_config *config, struct range_rule *rule)
{
    *rule = (struct range_rule){.ops = config->preset->range,
                                .params = {.nonfinite = (enum nonfinite_mode)config->nonfinite}};
    if (rule->ops->histogram && !(rule->ops->reads & READS_HEADROOM))
        qobs_resolve_bins(config, &rule->params.bins);
    else if (config->preset->ops->range)
        config->preset->ops->range(config, rule);
}

void qobs_resolve_formula(const qobs_config *config, struct formula *formula)
{
    const bool tensor = config->preset->granularity == &qobs_granularity_tensor;
    *formula = (struct formula){.ops = &qobs_formula_none,
                                .params = {.name = config->preset->name,
                                           .rank = tensor ? RANK_SCALAR : RANK_TENSOR,
                                           .shape_without_data = {.ndim = 1, .extent = {1}}}};
    if (config->preset->ops->formula)
        formula->ops = config->preset->ops->formula(config, &formula->params);
}

void qobs_resolve_traits(const qobs_config *config, struct observer_traits *traits)
{
    *traits = (struct observer_traits){.range_is_lowest = config->preset->ops->range_is_lowest};
    if (config->preset->ops->traits)
        config->preset->ops->traits(config, traits);
}

void qobs_stages_of(const qobs_config *config, struct stages *stages)
{
    FP_SCOPE; /* the count of candidates is rounded */
    qobs_resolve_granularity(config, &stages->granularity);
    qobs_resolve_reduction(config, &stages->reduction);
    resolve_accumulator(config, &stages->accumulator);
    qobs_resolve_range(config, &stages->range);
    qobs_resolve_formula(config, &stages->formula);
    qobs_resolve_traits(config, &stages->traits);
}

/* ---- Quantization ------------------------------------------------------------------------------------------------ */

/* The format that is given, or that of the configuration; NULL: integers, or the configuration leaves it open. */
static const qobs_format *format_of(const qobs_config *config, const qobs_format *format)
{
    return format || !config->preset->ops->has_scheme || config->scheme.type == TYPE_INT
               ? format
               : qobs_config_float_format(config);
}

static int resolve_numbers(const qobs_config *config, const qobs_format *given, struct quantize_rule *rule,
                           qobs_error *error)
{
    const int64_t quant_min = (int64_t)rule->formula.params.quant_min,
                  quant_max = (int64_t)rule->formula.params.quant_max;
    const qobs_format *format = format_of(config, given);
    const bool torch = config->preset->ops->has_own_quantize;
    if (torch && given)
        return qobs_invalid(error, "format: is %s, but %s quantizes to the integers of its dtype", given->name,
                            config->preset->name);
    if (format)
        qobs_quantizer_for_format(&rule->quantizer, format);
    else if (torch || config->preset->ops->has_scheme)
        qobs_quantizer_for_integers(&rule->quantizer, quant_min, quant_max, torch);
    else
        return qobs_invalid(error, "format: is NULL, which %s leaves open", config->preset->name);
    return QOBS_OK;
}

static const struct {
    enum format_id format;
    enum code_kind kind;
} codes_of_floats[] = {{FORMAT_E2M1, QOBS_CODE_E2M1}, {FORMAT_E2M3, QOBS_CODE_E2M3}, {FORMAT_E4M3, QOBS_CODE_E4M3}};

int qobs_require_scheme(const qobs_config *config, qobs_error *error)
{
    return config->preset->ops->has_scheme
               ? QOBS_OK
               : qobs_invalid(error, "config: is %s, codes are those of llmc and qobs presets", config->preset->name);
}

/* The codes of a family without schemes. */
static int resolve_own_codes(const qobs_config *config, const qobs_format *given, bool codes,
                             struct quantize_rule *rule, qobs_error *error)
{
    const char *name = config->preset->name;
    if (given)
        return qobs_invalid(error, "format: is %s, but %s has codes of its own", given->name, name);
    if (!codes)
        return qobs_invalid(error,
                            "config: is %s, which has codes and no fake quantization; qobs_dequantize makes numbers "
                            "of codes",
                            name);
    config->preset->ops->codes(config, &rule->quantizer, &rule->kind);
    rule->code_bits = rule->kind == QOBS_CODE_E2M1 ? 4 : 8;
    return QOBS_OK;
}

static int resolve_codes(const qobs_config *config, const qobs_format *given, struct quantize_rule *rule,
                         qobs_error *error)
{
    const qobs_format *format = format_of(config, given);
    bool found = !format;
    RETURN_IF_FAILED(qobs_require_scheme(config, error));
    rule->kind = QOBS_CODE_INTEGER;
    rule->format = format;
    rule->code_bits = format ? qobs_format_bits(format) : config->scheme.num_bits;
    if (!format && config->scheme.num_bits > 8)
        return qobs_invalid(error, "config: num_bits is %d, codes have 2 to 8", config->scheme.num_bits);
    for (size_t i = 0; i < sizeof codes_of_floats / sizeof *codes_of_floats && !found; i++)
        if ((found = format == qobs_format_at(codes_of_floats[i].format)))
            rule->kind = codes_of_floats[i].kind;
    return found
               ? QOBS_OK
               : qobs_invalid(error, "format: is %s, codes are those of fp4_e2m1, fp6_e2m3 and fp8_e4m3", format->name);
}

int qobs_resolve_quantize(const qobs_config *config, const qobs_format *format, bool codes, struct quantize_rule *rule,
                          qobs_error *error)
{
    const struct preset *preset = config->preset;
    struct observer_traits traits;
    qobs_resolve_traits(config, &traits);
    *rule = (struct quantize_rule){
        .nonfinite = (enum nonfinite_mode)config->nonfinite,
        /* The sign of e2m1 is that of the quotient, and upstream's sign of -0 is 0. */
        .positive_zero = preset->ops->positive_zero && format_of(config, format) == qobs_format_at(FORMAT_E2M1),
        .has_global_scale = traits.global != GLOBAL_NONE,
        /* The average of one batch is that of the batch. */
        .finds_scales = (preset->formula == FORMULA_COMPRESSED_TENSORS || preset->ops->codes) &&
                        !qobs_range_searches(preset->range),
    };
    qobs_resolve_granularity(config, &rule->granularity);
    qobs_resolve_formula(config, &rule->formula);
    rule->symmetric = rule->formula.params.mapping == MAPPING_SYMMETRIC;
    if (preset->ops->codes)
        return resolve_own_codes(config, format, codes, rule, error);
    if (codes)
        RETURN_IF_FAILED(resolve_codes(config, format, rule, error));
    return resolve_numbers(config, format, rule, error);
}

bool qobs_resolve_amax_numbers(const qobs_config *config, struct amax_numbers *numbers)
{
    if (config->preset->ops->amax_numbers)
        config->preset->ops->amax_numbers(config, numbers);
    return config->preset->ops->amax_numbers != NULL;
}

bool qobs_config_has_finder(const qobs_config *config, enum range_finder finder)
{
    return config->preset->ops->finders & (int)finder;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Presets of our own, with optimal scales: weights, in formats whose scales can be tried one by one. */
#include "config/families.h"

enum rounding { ROUNDING_NEAREST, ROUNDING_DESCENT };
static const struct word roundings[] = {{"nearest", ROUNDING_NEAREST}, {"descent", ROUNDING_DESCENT}, {0}};

static bool weighs_columns(const struct preset *preset) { return preset->range->optimal->importance; }

static bool has_hessian(const struct preset *preset) { return preset->range->optimal->hessian; }

static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(EVERY, qobs_nonfinite_modes),
    SCHEME_NUMBER(8),
    SCHEME_SCALE_DTYPE,
    SCHEME_OBSERVER,
    SCHEME_STRICT(weighs_columns),
    NUMBER("start_multiplier", EVERY, KIND_REAL, scheme.optimal.start_multiplier, 0x1p-20, 4,
           "smallest scale tried, in multiples of that of the range"),
    NUMBER("stop_multiplier", EVERY, KIND_REAL, scheme.optimal.stop_multiplier, 0x1p-20, 4,
           "largest scale tried, in multiples of that of the range"),
    SWITCH("signed_scale", EVERY, scheme.optimal.signed_scale, "negative scales, too; symmetric integers only"),
    NUMBER("dampening_frac", weighs_columns, KIND_REAL, scheme.optimal.dampening_frac, 0, 1,
           "share of the mean importance of a group, for codes of a block, that is added to each column"),
    NUMBER("hessian_block_size", has_hessian, KIND_LONG, scheme.optimal.hessian_block_size, 0, 0x1p31,
           "columns of a block of the Hessian; 0: the group"),
    NUMBER("passes", has_hessian, KIND_INTEGER, scheme.optimal.passes, 0, 100,
           "passes over the groups of a block, at most; 0: each group alone"),
    NUMBER("zero_point_radius", has_hessian, KIND_INTEGER, scheme.optimal.zero_point_radius, 0, 256,
           "largest distance of zero points from the one without the Hessian"),
    {"rounding", has_hessian, KIND_WORD, FIELD(scheme.optimal.rounding), FIELD(scheme.optimal.has_rounding), roundings,
     0, 0, "codes: nearest, or by descent under the Hessian; `null`: nearest", true, true},
    {"rounding_passes", has_hessian, KIND_INTEGER, FIELD(scheme.optimal.rounding_passes),
     FIELD(scheme.optimal.has_rounding_passes), NULL, 1, 100,
     "passes of the descent over the columns, at most; `null`: 4", true, true},
};

static int check_number(const qobs_config *config, enum strategy strategy, qobs_error *error)
{
    const bool under_global = strategy == STRATEGY_TENSOR_GROUP;
    if (config->scheme.type == TYPE_FLOAT && config->scheme.num_bits != 4)
        return qobs_invalid(error, "num_bits: is %d, type float allows 4 (e2m1) with %s", config->scheme.num_bits,
                            config->preset->name);
    if (config->scheme.type == TYPE_FLOAT && !config->symmetric)
        return qobs_invalid(error, "symmetric: type float allows true only");
    if (config->scheme.optimal.signed_scale && (config->scheme.type == TYPE_FLOAT || !config->symmetric))
        return qobs_invalid(error, "signed_scale: is for symmetric integers only");
    if (under_global != (config->scheme.scale_dtype == SCALE_E4M3))
        return qobs_invalid(error, "scale_dtype: %s",
                            under_global ? "strategy tensor_group needs float8_e4m3fn"
                                         : "float8_e4m3fn needs strategy tensor_group");
    if (config->scheme.scale_dtype == SCALE_U8 && !qobs_config_is_mx(config))
        return qobs_invalid(error, "scale_dtype: uint8 (powers of two) needs type float and group_size 32 (MXFP4)");
    return QOBS_OK;
}

static int check_hessian(const qobs_config *config, enum strategy strategy, qobs_error *error)
{
    const int64_t block = config->scheme.optimal.hessian_block_size, group = config->group_size;
    if (block == 1)
        return qobs_invalid(error, "hessian_block_size: is 1, allowed are 0 and from 2 on");
    if (strategy != STRATEGY_CHANNEL && block > group && block % group != 0)
        return qobs_invalid(error, "hessian_block_size: is %lld, above group_size it must be a multiple of that, %lld",
                            (long long)block, (long long)group);
    return QOBS_OK;
}

static int check(const qobs_config *config, qobs_error *error)
{
    const enum strategy strategy = qobs_config_strategy(config);
    if (config->base_name != BASE_WEIGHT)
        return qobs_invalid(error, "base_name: %s takes weights, not %s", config->preset->name,
                            qobs_word_text(qobs_base_names, config->base_name));
    if (config->scheme.optimal.stop_multiplier < config->scheme.optimal.start_multiplier)
        return qobs_invalid(error, "stop_multiplier: is %g, must not be below start_multiplier, %g",
                            config->scheme.optimal.stop_multiplier, config->scheme.optimal.start_multiplier);
    if (strategy != STRATEGY_CHANNEL && strategy != STRATEGY_GROUP && strategy != STRATEGY_TENSOR_GROUP)
        return qobs_invalid(error, "strategy: %s has channel, group and tensor_group, not %s", config->preset->name,
                            qobs_word_text(qobs_strategies, strategy));
    RETURN_IF_FAILED(qobs_scheme_check_groups(config, error));
    RETURN_IF_FAILED(check_number(config, strategy, error));
    return check_hessian(config, strategy, error);
}

static void set_defaults(struct qobs_config *config)
{
    config->scheme.num_bits = 8;
    config->scheme.ragged = true;
    config->scheme.optimal.start_multiplier = 0.2;
    config->scheme.optimal.stop_multiplier = 2;
    config->scheme.optimal.passes = 2;
    config->scheme.optimal.zero_point_radius = 1;
}

static void resolve_optimal(const qobs_config *config, struct optimal_params *p)
{
    static const enum optimal_scales scales[] = {
        [SCALE_NATIVE] = OPTIMAL_BF16, [SCALE_F32] = OPTIMAL_BF16,  [SCALE_BF16] = OPTIMAL_BF16,
        [SCALE_F16] = OPTIMAL_F16,     [SCALE_E4M3] = OPTIMAL_E4M3, [SCALE_U8] = OPTIMAL_E8M0};
    static const float eps[] = {[SCALE_F32] = 0x1p-23f, [SCALE_BF16] = 0x1p-7f, [SCALE_F16] = 0x1p-10f};
    const int half = 1 << (config->scheme.num_bits - 1);
    *p = (struct optimal_params){
        .scales = scales[config->scheme.scale_dtype],
        .scale_dtype = (enum scale_dtype)config->scheme.scale_dtype,
        .e2m1 = config->scheme.type == TYPE_FLOAT,
        .symmetric = config->symmetric,
        .signed_scale = config->scheme.optimal.signed_scale,
        .num_bits = config->scheme.num_bits,
        .quant_min = -half,
        .quant_max = half - 1,
        .start = (float)config->scheme.optimal.start_multiplier,
        .stop = (float)config->scheme.optimal.stop_multiplier,
        .eps = config->scheme.scale_dtype < SCALE_E4M3 ? eps[config->scheme.scale_dtype] : 0,
        .dampening = config->scheme.optimal.dampening_frac,
        .passes = config->scheme.optimal.passes,
        .zero_point_radius = config->scheme.optimal.zero_point_radius,
        .rounds_codes = config->scheme.optimal.rounding == ROUNDING_DESCENT,
        .rounding_passes = config->scheme.optimal.has_rounding_passes ? config->scheme.optimal.rounding_passes : 0,
    };
}

static void range(const qobs_config *config, struct range_rule *rule)
{
    rule->params.importance = rule->ops->optimal->importance;
    rule->params.hessian = rule->ops->optimal->hessian;
    rule->params.strict = config->scheme.strict;
    rule->params.hessian_block = config->scheme.optimal.hessian_block_size;
    resolve_optimal(config, &rule->params.optimal);
}

const struct family_ops qobs_family_qobs = {
    SETTINGS_OF(settings),
    .has_scheme = true,
    .channel_by_default = true,
    .set_defaults = set_defaults,
    .check = check,
    .granularity = qobs_scheme_granularity,
    .range = range,
    .formula = qobs_scheme_formula,
    .traits = qobs_scheme_traits,
};

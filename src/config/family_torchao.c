/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torchao: settings, checks (limits of dtypes, what a granularity needs, what pt2e accepts) and parameters. */
#include "config/families.h"

static const struct word mapping_types[] = {{"SYMMETRIC", TORCHAO_SYMMETRIC},
                                            {"SYMMETRIC_NO_CLIPPING_ERR", TORCHAO_NO_CLIPPING_ERR},
                                            {"ASYMMETRIC", TORCHAO_ASYMMETRIC},
                                            {0}};
static const struct word granularities[] = {{"PerTensor", TORCHAO_PER_TENSOR},
                                            {"PerAxis", TORCHAO_PER_AXIS},
                                            {"PerGroup", TORCHAO_PER_GROUP},
                                            {"PerRow", TORCHAO_PER_ROW},
                                            {"PerToken", TORCHAO_PER_TOKEN},
                                            {"PerBlock", TORCHAO_PER_BLOCK},
                                            {0}};
static const struct word qparam_dtypes[] = {
    {"float32", QOBS_F32}, {"bfloat16", QOBS_BF16}, {"float16", QOBS_F16}, {"float64", QOBS_F64}, {"int8", QOBS_I8},
    {"uint8", QOBS_U8},    {"int16", QOBS_I16},     {"int32", QOBS_I32},   {"int64", QOBS_I64},   {0}};
static const struct word scale_dtypes[] = {
    {"float32", QOBS_F32}, {"bfloat16", QOBS_BF16}, {"float16", QOBS_F16}, {"float64", QOBS_F64}, {0}};
enum zero_point_domain { ZERO_POINT_DOMAIN_INT, ZERO_POINT_DOMAIN_FLOAT, ZERO_POINT_DOMAIN_NONE };
static const struct word zero_point_domains[] = {
    {"INT", ZERO_POINT_DOMAIN_INT}, {"FLOAT", ZERO_POINT_DOMAIN_FLOAT}, {"NONE", ZERO_POINT_DOMAIN_NONE}, {0}};
enum torchao_module { TORCHAO_QUANTIZATION, TORCHAO_PT2E };
static const struct word modules[] = {{"quantization", TORCHAO_QUANTIZATION}, {"pt2e", TORCHAO_PT2E}, {0}};

static bool searches_line(const struct preset *preset) { return preset->range->reads & READS_LINE; }

static bool has_module(const struct preset *preset)
{
    return !preset->accumulator->averages && !preset->accumulator->replaces;
}

static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(EVERY, qobs_nonfinite_modes),
    AVERAGING_CONSTANT(qobs_preset_averages),
    QUANT_LIMITS,
    FIXED_QPARAMS,
    WORD("mapping_type", EVERY, torchao.mapping_type, mapping_types, "how real numbers map to integers"),
    WORD("target_dtype", EVERY, torchao.target_dtype, qobs_torchao_dtypes, "dtype of the quantized numbers"),
    WORD("granularity", EVERY, torchao.granularity, granularities, "elements that share a scale"),
    NUMBER("axis", EVERY, KIND_INTEGER, torchao.axis, LEAST_AXIS, MOST_AXIS,
           "PerAxis: the axis that is kept; negative: from the end"),
    NUMBER("dim", EVERY, KIND_INTEGER, torchao.dim, LEAST_AXIS, MOST_AXIS,
           "PerRow: the axis that is reduced; negative: from the end"),
    OPTIONAL("group_size", EVERY, KIND_LONG, group_size, has_group_size, 1, 0x1p53,
             "PerGroup: elements of a group along the last dimension"),
    OPTIONAL("block_size", EVERY, KIND_AXES, torchao.block_sizes, torchao.has_block_sizes, 1, 0x1p16,
             "PerBlock: elements of a block along the last dimensions"),
    OPTIONAL("eps", EVERY, KIND_REAL, eps, has_eps, 0, 1e38,
             "smallest scale; `null`: that of the module for the dtype"),
    WORD("scale_dtype", EVERY, torchao.scale_dtype, scale_dtypes, "dtype of the scale; `null`: that of the tensor"),
    WORD("zero_point_dtype", EVERY, torchao.zero_point_dtype, qparam_dtypes,
         "dtype of the zero point; `null`: that of the module"),
    SWITCH("preserve_zero", EVERY, torchao.preserve_zero, "0 has an exact quantized number"),
    WORD("zero_point_domain", EVERY, torchao.zero_point_domain, zero_point_domains,
         "numbers that zero points are; `NONE`: there are no zero points"),
    SWITCH("keepdim", has_module, torchao.keepdim, "reduced dimensions stay in the shape, as 1"),
    WORD("module", has_module, torchao.module, modules,
         "whose observer: torchao.quantization's or torchao.quantization.pt2e's"),
    DYNAMIC_OF_ONE_BATCH(qobs_preset_averages),
    NUMBER("steps", searches_line, KIND_INTEGER, torchao.steps, 1, 0x1p16, "number of thresholds"),
    SWITCH("run_once", searches_line, torchao.run_once, "later batches are ignored"),
};

static void set_defaults(struct qobs_config *config)
{
    config->torchao.dim = -1;
    config->torchao.preserve_zero = true;
    config->torchao.steps = 100;
}

static struct torchao_number number_of(const qobs_config *config)
{
    struct torchao_number number = qobs_torchao_numbers[config->torchao.target_dtype];
    if (config->has_quant_min)
        number.quant_min = (double)config->quant_min;
    if (config->has_quant_max)
        number.quant_max = (double)config->quant_max;
    return number;
}

static bool is_pt2e(const qobs_config *config)
{
    return config->torchao.module == TORCHAO_PT2E || config->preset->accumulator->averages;
}

static const struct formula_ops *torchao(const qobs_config *config, struct formula_params *p)
{
    const struct torchao_number number = number_of(config);
    const bool pt2e = is_pt2e(config);
    p->quant_min = number.quant_min;
    p->quant_max = number.quant_max;
    p->no_zero_point = config->torchao.zero_point_domain == ZERO_POINT_DOMAIN_NONE;
    p->torchao.mapping = (enum torchao_mapping)config->torchao.mapping_type;
    p->torchao.pt2e = pt2e;
    p->torchao.preserve_zero = config->torchao.preserve_zero || !pt2e; /* only pt2e has ranges without 0 */
    p->torchao.has_eps = config->has_eps;
    p->torchao.eps = config->eps;
    p->torchao.scale_dtype = (qobs_dtype)config->torchao.scale_dtype;
    p->torchao.zero_point_dtype = (qobs_dtype)config->torchao.zero_point_dtype;
    return &qobs_formula_torchao;
}

/* Upstream replaces a scale of 0, as one that is not set, by 1. */
static const struct formula_ops *fixed(const qobs_config *config, struct formula_params *p)
{
    const int scale_dtype = config->torchao.scale_dtype, zero_point_dtype = config->torchao.zero_point_dtype;
    p->fixed.scale_dtype = scale_dtype ? (qobs_dtype)scale_dtype : QOBS_F32;
    p->fixed.zero_point_dtype = zero_point_dtype         ? (qobs_dtype)zero_point_dtype
                                : config->has_zero_point ? QOBS_I64
                                                         : QOBS_F32;
    p->fixed.scale = config->scale != 0 ? config->scale : 1;
    p->fixed.zero_point = (double)config->zero_point;
    return &qobs_formula_fixed;
}

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    return qobs_preset_is_fixed(config->preset) ? fixed(config, p) : torchao(config, p);
}

static int check_limits(const qobs_config *config, qobs_error *error)
{
    const struct torchao_number all = qobs_torchao_numbers[config->torchao.target_dtype], set = number_of(config);
    const char *dtype = qobs_word_text(qobs_torchao_dtypes, config->torchao.target_dtype);
    if (set.quant_min < all.quant_min || set.quant_max > all.quant_max)
        return qobs_invalid(error, "quant_min, quant_max: %.15g to %.15g is not within %.15g to %.15g of %s",
                            set.quant_min, set.quant_max, all.quant_min, all.quant_max, dtype);
    if (set.quant_min >= set.quant_max)
        return qobs_invalid(error, "quant_min, quant_max: %.15g is not below %.15g", set.quant_min, set.quant_max);
    return QOBS_OK;
}

static int check_granularity(const qobs_config *config, qobs_error *error)
{
    if (config->torchao.granularity == TORCHAO_PER_GROUP && !config->has_group_size)
        return qobs_invalid(error, "group_size: is not set, granularity PerGroup needs it");
    if (config->torchao.granularity == TORCHAO_PER_BLOCK && !config->torchao.has_block_sizes)
        return qobs_invalid(error, "block_size: is not set, granularity PerBlock needs it");
    return QOBS_OK;
}

static int check_pt2e(const qobs_config *config, qobs_error *error)
{
    const bool symmetric = config->torchao.mapping_type != TORCHAO_ASYMMETRIC;
    const char *dtype = qobs_word_text(qobs_torchao_dtypes, config->torchao.target_dtype);
    if (config->torchao.target_dtype >= TORCHAO_INT1 && config->torchao.target_dtype <= TORCHAO_INT7)
        return qobs_invalid(error, "target_dtype: pt2e has no %s", dtype);
    if (number_of(config).is_float && config->torchao.mapping_type != TORCHAO_SYMMETRIC)
        return qobs_invalid(error, "mapping_type: pt2e takes only SYMMETRIC with target_dtype %s", dtype);
    if (symmetric && !config->torchao.preserve_zero)
        return qobs_invalid(error, "preserve_zero: false goes with mapping_type ASYMMETRIC only");
    if (symmetric && config->torchao.zero_point_domain != ZERO_POINT_DOMAIN_INT)
        return qobs_invalid(error, "zero_point_domain: pt2e takes only INT with a symmetric mapping_type");
    if (!config->torchao.preserve_zero && config->torchao.zero_point_domain == ZERO_POINT_DOMAIN_INT)
        return qobs_invalid(error, "zero_point_domain: preserve_zero=false goes with FLOAT and NONE, not with INT");
    return QOBS_OK;
}

static int check(const qobs_config *config, qobs_error *error)
{
    if (!qobs_preset_measures(config->preset))
        return QOBS_OK;
    RETURN_IF_FAILED(check_limits(config, error));
    RETURN_IF_FAILED(check_granularity(config, error));
    if (is_pt2e(config))
        return check_pt2e(config, error);
    if (searches_line(config->preset) && config->torchao.zero_point_domain == ZERO_POINT_DOMAIN_FLOAT)
        return qobs_invalid(error, "zero_point_domain: %s takes INT and NONE, not FLOAT", config->preset->name);
    return QOBS_OK;
}

static void granularity(const qobs_config *config, struct granularity *g)
{
    g->params.ch_axis = config->torchao.axis;
    g->params.torchao = (enum torchao_granularity)config->torchao.granularity;
    g->params.dim = config->torchao.dim;
    g->params.block_sizes = config->torchao.block_sizes;
    g->params.keepdim = config->torchao.keepdim;
}

static void range(const qobs_config *config, struct range_rule *rule)
{
    const struct torchao_number number = number_of(config);
    rule->params.line = (struct line_params){
        .steps = config->torchao.steps, .quant_min = number.quant_min, .quant_max = number.quant_max};
}

static void traits(const qobs_config *config, struct observer_traits *t)
{
    t->first_batch_only = config->torchao.run_once;
}

const struct family_ops qobs_family_torchao = {
    SETTINGS_OF(settings), .set_defaults = set_defaults, .check = check,   .granularity = granularity,
    .range = range,        .formula = formula,           .traits = traits,
};

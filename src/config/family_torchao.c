/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torchao: the numbers of its dtypes (_DTYPE_TO_QVALUE_BOUNDS in quantization/quant_primitives.py), checks (limits of
 * dtypes, what a granularity needs, what pt2e accepts) and parameters. */
#include "base/error.h"
#include "config/families.h"

static const struct torchao_number numbers[TORCHAO_DTYPES] = {
    [TORCHAO_INT8] = {-128, 127, false},      [TORCHAO_UINT8] = {0, 255, false},
    [TORCHAO_INT1] = {-1, 0, false},          [TORCHAO_INT2] = {-2, 1, false},
    [TORCHAO_INT3] = {-4, 3, false},          [TORCHAO_INT4] = {-8, 7, false},
    [TORCHAO_INT5] = {-16, 15, false},        [TORCHAO_INT6] = {-32, 31, false},
    [TORCHAO_INT7] = {-64, 63, false},        [TORCHAO_UINT1] = {0, 1, false},
    [TORCHAO_UINT2] = {0, 3, false},          [TORCHAO_UINT3] = {0, 7, false},
    [TORCHAO_UINT4] = {0, 15, false},         [TORCHAO_UINT5] = {0, 31, false},
    [TORCHAO_UINT6] = {0, 63, false},         [TORCHAO_UINT7] = {0, 127, false},
    [TORCHAO_INT16] = {-32768, 32767, false}, [TORCHAO_INT32] = {-2147483648.0, 2147483647, false},
    [TORCHAO_E4M3] = {-448, 448, true},       [TORCHAO_E5M2] = {-57344, 57344, true},
    [TORCHAO_E4M3_FNUZ] = {-240, 240, true},  [TORCHAO_E5M2_FNUZ] = {-57344, 57344, true},
};

struct torchao_number qobs_torchao_number(const qobs_config *config)
{
    struct torchao_number number = numbers[config->target_dtype];
    if (config->has_quant_min)
        number.quant_min = (double)config->quant_min;
    if (config->has_quant_max)
        number.quant_max = (double)config->quant_max;
    return number;
}

bool qobs_config_is_pt2e(const qobs_config *config)
{
    return config->torchao_module == TORCHAO_PT2E || config->preset->accumulator->averages;
}

static const struct formula_ops *torchao(const qobs_config *config, struct formula_params *p)
{
    const struct torchao_number number = qobs_torchao_number(config);
    const bool pt2e = qobs_config_is_pt2e(config);
    p->quant_min = number.quant_min;
    p->quant_max = number.quant_max;
    p->no_zero_point = config->zero_point_domain == ZERO_POINT_DOMAIN_NONE;
    p->torchao.mapping = (enum torchao_mapping)config->mapping_type;
    p->torchao.pt2e = pt2e;
    p->torchao.preserve_zero = config->preserve_zero || !pt2e; /* only pt2e has ranges without 0 */
    p->torchao.has_eps = config->has_eps;
    p->torchao.eps = config->eps;
    p->torchao.scale_dtype = (qobs_dtype)config->torchao_scale_dtype;
    p->torchao.zero_point_dtype = (qobs_dtype)config->torchao_zero_point_dtype;
    return &qobs_formula_torchao;
}

/* Upstream replaces a scale of 0, as one that is not set, by 1. */
static const struct formula_ops *torchao_fixed(const qobs_config *config, struct formula_params *p)
{
    p->torchao.scale_dtype = (qobs_dtype)config->torchao_scale_dtype;
    p->torchao.zero_point_dtype = (qobs_dtype)config->torchao_zero_point_dtype;
    p->torchao.has_fixed_zero_point = config->has_zero_point;
    p->torchao.fixed_scale = config->has_scale && config->scale != 0 ? config->scale : 1;
    p->torchao.fixed_zero_point = config->has_zero_point ? (double)config->zero_point : 0;
    return &qobs_formula_torchao_fixed;
}

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    return config->preset->formula == FORMULA_TORCHAO_FIXED ? torchao_fixed(config, p) : torchao(config, p);
}

static int check_limits(const qobs_config *config, qobs_error *error)
{
    qobs_config own = *config;
    own.has_quant_min = own.has_quant_max = false;
    const struct torchao_number all = qobs_torchao_number(&own), set = qobs_torchao_number(config);
    const char *dtype = qobs_torchao_dtype_text(config->target_dtype);
    if (set.quant_min < all.quant_min || set.quant_max > all.quant_max)
        return qobs_invalid(error, "quant_min, quant_max: %.15g to %.15g is not within %.15g to %.15g of %s",
                            set.quant_min, set.quant_max, all.quant_min, all.quant_max, dtype);
    if (set.quant_min >= set.quant_max)
        return qobs_invalid(error, "quant_min, quant_max: %.15g is not below %.15g", set.quant_min, set.quant_max);
    return QOBS_OK;
}

static int check_granularity(const qobs_config *config, qobs_error *error)
{
    if (config->torchao_granularity == TORCHAO_PER_GROUP && !config->has_group_size)
        return qobs_invalid(error, "group_size: is not set, granularity PerGroup needs it");
    if (config->torchao_granularity == TORCHAO_PER_BLOCK && !config->has_block_sizes)
        return qobs_invalid(error, "block_size: is not set, granularity PerBlock needs it");
    return QOBS_OK;
}

static int check_pt2e(const qobs_config *config, qobs_error *error)
{
    const bool symmetric = config->mapping_type != TORCHAO_ASYMMETRIC;
    const char *dtype = qobs_torchao_dtype_text(config->target_dtype);
    if (config->target_dtype >= TORCHAO_INT1 && config->target_dtype <= TORCHAO_INT7)
        return qobs_invalid(error, "target_dtype: pt2e has no %s", dtype);
    if (qobs_torchao_number(config).is_float && config->mapping_type != TORCHAO_SYMMETRIC)
        return qobs_invalid(error, "mapping_type: pt2e takes only SYMMETRIC with target_dtype %s", dtype);
    if (symmetric && !config->preserve_zero)
        return qobs_invalid(error, "preserve_zero: false goes with mapping_type ASYMMETRIC only");
    if (symmetric && config->zero_point_domain != ZERO_POINT_DOMAIN_INT)
        return qobs_invalid(error, "zero_point_domain: pt2e takes only INT with a symmetric mapping_type");
    if (!config->preserve_zero && config->zero_point_domain == ZERO_POINT_DOMAIN_INT)
        return qobs_invalid(error, "zero_point_domain: preserve_zero=false goes with FLOAT and NONE, not with INT");
    return QOBS_OK;
}

static int check(const qobs_config *config, qobs_error *error)
{
    if (!qobs_preset_measures(config->preset))
        return QOBS_OK;
    RETURN_IF_FAILED(check_limits(config, error));
    RETURN_IF_FAILED(check_granularity(config, error));
    if (qobs_config_is_pt2e(config))
        return check_pt2e(config, error);
    if (config->preset->range->reads & READS_LINE && config->zero_point_domain == ZERO_POINT_DOMAIN_FLOAT)
        return qobs_invalid(error, "zero_point_domain: %s takes INT and NONE, not FLOAT", config->preset->name);
    return QOBS_OK;
}

static void granularity(const qobs_config *config, struct granularity *g) { g->params.ch_axis = config->axis; }

static void range(const qobs_config *config, struct range_rule *rule)
{
    const struct torchao_number number = qobs_torchao_number(config);
    rule->params.line =
        (struct line_params){.steps = config->steps, .quant_min = number.quant_min, .quant_max = number.quant_max};
}

static void traits(const qobs_config *config, struct observer_traits *t) { t->first_batch_only = config->run_once; }

const struct family_ops qobs_family_torchao = {
    .check = check,
    .granularity = granularity,
    .range = range,
    .formula = formula,
    .traits = traits,
};

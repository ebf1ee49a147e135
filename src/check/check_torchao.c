/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The checks of torchao's observers: limits of dtypes, what a granularity needs, what pt2e accepts. */
#include "check/check.h"

#include "base/error.h"
#include "config/dtypes.h"

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

int qobs_check_torchao(const qobs_config *config, qobs_error *error)
{
    if (!qobs_preset_measures(config->preset))
        return QOBS_OK;
    RETURN_IF_FAILED(check_limits(config, error));
    RETURN_IF_FAILED(check_granularity(config, error));
    if (qobs_config_is_pt2e(config))
        return check_pt2e(config, error);
    if (config->preset->range == &qobs_range_line && config->zero_point_domain == ZERO_POINT_DOMAIN_FLOAT)
        return qobs_invalid(error, "zero_point_domain: %s takes INT and NONE, not FLOAT", config->preset->name);
    return QOBS_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The checks of Quark's observers: the dtypes that each of them accepts, and the settings that it needs. */
#include "check/check.h"

#include <stdio.h>

#include "base/error.h"
#include "config/dtypes.h"

/* Groups of observers that accept the same dtypes. */
enum observer_group {
    UNIFORM = 1,       /* a range for the tensor or each channel */
    UNIFORM_GROUP = 2, /* a range for each group */
    MX = 4,
    BFP = 8,
    POWER_OF_2 = 16,
    TORCH = 32,         /* torch's histogram */
    SQUARED_ERROR = 64, /* errors of the bins of a histogram */
    LEARNED = 128,      /* start values of training */
    THRESHOLD = 256,    /* the same, signed */
    PLACEHOLDER = 0     /* accepts all */
};

/* The observers that accept a dtype. */
static const int accepted_by[QUARK_DTYPES] = {
    [QUARK_INT8] = UNIFORM | UNIFORM_GROUP | POWER_OF_2 | TORCH | SQUARED_ERROR | LEARNED | THRESHOLD,
    [QUARK_UINT8] = UNIFORM | UNIFORM_GROUP | POWER_OF_2 | TORCH | SQUARED_ERROR | LEARNED,
    [QUARK_INT4] = UNIFORM | UNIFORM_GROUP | SQUARED_ERROR | LEARNED | THRESHOLD,
    [QUARK_UINT4] = UNIFORM | UNIFORM_GROUP | TORCH | SQUARED_ERROR | LEARNED,
    [QUARK_INT3] = UNIFORM | UNIFORM_GROUP,
    [QUARK_INT2] = UNIFORM | UNIFORM_GROUP,
    [QUARK_UINT2] = UNIFORM | UNIFORM_GROUP,
    [QUARK_INT16] = UNIFORM | UNIFORM_GROUP | LEARNED | THRESHOLD,
    [QUARK_INT32] = UNIFORM | UNIFORM_GROUP | POWER_OF_2,
    [QUARK_FP8_E4M3] = UNIFORM | UNIFORM_GROUP | MX | SQUARED_ERROR,
    [QUARK_FP8_E5M2] = UNIFORM | UNIFORM_GROUP | MX | SQUARED_ERROR,
    [QUARK_FP8_E5M3] = UNIFORM | UNIFORM_GROUP,
    [QUARK_FP6_E2M3] = MX,
    [QUARK_FP6_E3M2] = MX,
    [QUARK_FP4] = UNIFORM | MX,
    [QUARK_BFP16] = BFP,
};

static enum observer_group group_of(const struct preset *preset)
{
    switch (preset->formula) {
    case FORMULA_NONE:
        return PLACEHOLDER;
    case FORMULA_QUARK_LSQ:
        return LEARNED;
    case FORMULA_QUARK_TQT:
        return THRESHOLD;
    case FORMULA_QUARK_MX:
        return MX;
    case FORMULA_QUARK_BFP:
        return BFP;
    case FORMULA_QUARK_POWER_OF_2:
        return POWER_OF_2;
    case FORMULA_QUARK_TORCH:
        return TORCH;
    default:
        if (preset->range == &qobs_range_mse)
            return SQUARED_ERROR;
        return preset->granularity == GRANULARITY_QUARK_GROUP ? UNIFORM_GROUP : UNIFORM;
    }
}

static int check_dtype(const qobs_config *config, qobs_error *error)
{
    const int wanted = (int)group_of(config->preset);
    if (wanted == PLACEHOLDER || accepted_by[config->quark_dtype] & wanted)
        return QOBS_OK;
    char known[200] = "";
    size_t used = 0;
    for (int i = 0; i < QUARK_DTYPES; i++)
        if (accepted_by[i] & wanted)
            used +=
                (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", qobs_quark_dtype_text(i));
    return qobs_invalid(error, "dtype: is %s, %s takes %s", qobs_quark_dtype_text(config->quark_dtype),
                        config->preset->name, known);
}

static int check_qscheme(const qobs_config *config, qobs_error *error)
{
    static const int own[] = {
        [GRANULARITY_NONE] = QUARK_QSCHEME_NONE,         [GRANULARITY_TENSOR] = QUARK_PER_TENSOR,
        [GRANULARITY_QUARK_CHANNEL] = QUARK_PER_CHANNEL, [GRANULARITY_QUARK_GROUP] = QUARK_PER_GROUP,
        [GRANULARITY_QUARK_BLOCK] = QUARK_PER_GROUP,
    };
    if (config->preset->granularity == GRANULARITY_QUARK_LSQ)
        return QOBS_OK; /* ch_axis decides */
    const int expected = own[config->preset->granularity];
    if (config->quark_qscheme == QUARK_QSCHEME_NONE || expected == QUARK_QSCHEME_NONE ||
        config->quark_qscheme == expected)
        return QOBS_OK;
    return qobs_invalid(error, "qscheme: is %s, %s takes %s", qobs_quark_qscheme_text(config->quark_qscheme),
                        config->preset->name, qobs_quark_qscheme_text(expected));
}

static int check_axis(const qobs_config *config, qobs_error *error)
{
    const enum granularity_kind granularity = config->preset->granularity;
    const char *name = config->preset->name;
    if (granularity == GRANULARITY_NONE || granularity == GRANULARITY_TENSOR || granularity == GRANULARITY_QUARK_LSQ)
        return QOBS_OK;
    if (!config->has_ch_axis)
        return qobs_invalid(error, "ch_axis: is not set, %s needs it", name);
    if (granularity == GRANULARITY_QUARK_CHANNEL)
        return QOBS_OK;
    if (!config->has_group_size)
        return qobs_invalid(error, "group_size: is not set, %s needs it", name);
    if (config->group_size == 0 || (config->group_size < 0 && granularity == GRANULARITY_QUARK_BLOCK))
        return qobs_invalid(error, "group_size: is %lld, %s takes %sabove 0", (long long)config->group_size, name,
                            granularity == GRANULARITY_QUARK_BLOCK ? "" : "-1 (one group) and ");
    return QOBS_OK;
}

/* The scales of fp4 and of blocks need a format. */
static int check_format(const qobs_config *config, qobs_error *error)
{
    const enum formula_kind formula = config->preset->formula;
    const bool formatted = (formula == FORMULA_QUARK_MX && config->preset->range != &qobs_range_exponent) ||
                           (formula == FORMULA_QUARK && config->quark_dtype == QUARK_FP4);
    if (formatted && config->scale_format == SCALE_FORMAT_NONE)
        return qobs_invalid(error, "scale_format: is not set, %s with dtype %s takes float32, e4m3, e5m3, e8m0",
                            config->preset->name, qobs_quark_dtype_text(config->quark_dtype));
    if (config->mx_element_dtype && qobs_quark_number(config->mx_element_dtype).mantissa_bits == 0)
        return qobs_invalid(error, "mx_element_dtype: %s is no element of an e8m0 scale",
                            qobs_quark_dtype_text(config->mx_element_dtype));
    return QOBS_OK;
}

int qobs_check_quark(const qobs_config *config, qobs_error *error)
{
    RETURN_IF_FAILED(check_dtype(config, error));
    RETURN_IF_FAILED(check_qscheme(config, error));
    RETURN_IF_FAILED(check_axis(config, error));
    return check_format(config, error);
}

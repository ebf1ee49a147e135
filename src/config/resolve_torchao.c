/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torchao: the numbers of its dtypes (_DTYPE_TO_QVALUE_BOUNDS in quantization/quant_primitives.py), and the parameters
 * of its formulas. */
#include "config/dtypes.h"
#include "config/stages.h"

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
    return config->torchao_module == TORCHAO_PT2E || config->preset->accumulator == &qobs_accumulate_moving_average;
}

const struct formula_ops *qobs_torchao_formula(const qobs_config *config, struct formula_params *p)
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
const struct formula_ops *qobs_torchao_fixed(const qobs_config *config, struct formula_params *p)
{
    p->torchao.scale_dtype = (qobs_dtype)config->torchao_scale_dtype;
    p->torchao.zero_point_dtype = (qobs_dtype)config->torchao_zero_point_dtype;
    p->torchao.has_fixed_zero_point = config->has_zero_point;
    p->torchao.fixed_scale = config->has_scale && config->scale != 0 ? config->scale : 1;
    p->torchao.fixed_zero_point = config->has_zero_point ? (double)config->zero_point : 0;
    return &qobs_formula_torchao_fixed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ai-edge-quantizer's tensor_zp_scale_from_min_max (algorithms/uniform_quantize/uniform_quantize_tensor.py), symmetric,
 * of ranges whose bounds are found. Scales of blocks are float16 in LiteRT, with the mantissa of bfloat16. */
#include "formula/shared.h"

static struct qparam_dtypes dtypes(const struct formula_params *params, const struct range_view *r)
{
    const bool wide = r->dtype == QOBS_F64 && !params->aiedge.blocks;
    return (struct qparam_dtypes){wide ? QOBS_F64 : QOBS_F32, params->aiedge.zero_point_dtype};
}

static int qparam(const struct formula_params *params, qobs_dtype dtype, double min, double max, struct qparam *result,
                  qobs_error *error)
{
    const double a = fabs(min), b = fabs(max);
    (void)dtype, (void)error;
    /* numpy.maximum: NaN stays. The double quotient of two floats, rounded to float, is their float quotient. */
    result->scale = (isnan(a) || a > b ? a : b) / params->quant_max;
    if (params->aiedge.blocks) /* to float, then bfloat16, then float16 */
        result->scale = qobs_round_to(QOBS_F16, qobs_round_to(QOBS_BF16, (double)(float)result->scale));
    return QOBS_OK;
}

const struct formula_ops qobs_formula_aiedge = {.dtypes = dtypes, .qparam = qparam, .needs_data = true};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales and zero points of vLLM 0.32 in float: dynamic_scaled_int8_quant for CPUs (csrc/cpu), whose codes have the
 * zero point before it becomes an int32, and QuantFP8.forward_native
 * (model_executor/layers/quantization/input_quant_fp8.py).
 */
#include "formula/shared.h"

/* NaN stays. */
static float magnitude(float low, float high)
{
    const float a = fabsf(low), b = fabsf(high);
    return a > b || isnan(a) ? a : b;
}

static int int8(const struct formula_params *params, qobs_dtype dtype, double min, double max, struct qparam *result,
                qobs_error *error)
{
    const float low = (float)min, high = (float)max;
    const bool symmetric = params->mapping == MAPPING_SYMMETRIC;
    const float scale = symmetric ? magnitude(low, high) / 127 : (high - low) / 255;
    (void)dtype, (void)error;
    *result = (struct qparam){(double)scale, symmetric ? 0 : (double)rintf(-128 - low / scale)};
    return QOBS_OK;
}

const struct formula_ops qobs_formula_vllm_int8 = {
    .dtypes = qobs_fixed_dtypes, .qparam = int8, .needs_data = true, .real_zero_points = true};

static const double largest_e4m3 = 448, least_scale = 1 / (448 * 512.0);

/* ue8m0: the logarithm is rounded to float before it is rounded up, so that a scale just above a power of two becomes
 * that power. No scale has a logarithm near the middle of two floats there, so that any log2 will do. */
static int fp8(const struct formula_params *params, qobs_dtype dtype, double min, double max, struct qparam *result,
               qobs_error *error)
{
    const float quotient = magnitude((float)min, (float)max) / (float)largest_e4m3, least = (float)least_scale;
    const bool has_logarithm = quotient > 0 && isfinite(quotient);
    const float scale =
        params->vllm.ue8m0 && has_logarithm ? ldexpf(1, (int)ceilf((float)log2((double)quotient))) : quotient;
    (void)dtype, (void)error;
    *result = (struct qparam){scale < least ? (double)least : (double)scale, 0};
    return QOBS_OK;
}

const struct formula_ops qobs_formula_vllm_fp8 = {.dtypes = qobs_fixed_dtypes, .qparam = fp8, .needs_data = true};

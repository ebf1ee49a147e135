/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales and zero points of vLLM's dynamic_scaled_int8_quant for CPUs (csrc/cpu, 0.32), in float. Its zero point before
 * it becomes an int32 is the one that its codes have. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales of ggml's blocks of activations, as the blocks store them (ggml-cpu 0.21). */
#include "formula/shared.h"

static int q8_0(const struct formula_params *params, qobs_dtype dtype, double min, double max, struct qparam *result,
                qobs_error *error)
{
    const float low = fabsf((float)min), high = fabsf((float)max);
    (void)params, (void)dtype, (void)error;
    *result = (struct qparam){(double)float_of_f16(f16_of_float((low > high || isnan(low) ? low : high) / 127)), 0};
    return QOBS_OK;
}

/* If both ends have the largest magnitude, the sign is that of the first element in the blocks, and minus here. */
static int q8_k(const struct formula_params *params, qobs_dtype dtype, double min, double max, struct qparam *result,
                qobs_error *error)
{
    const float low = (float)min, high = (float)max, peak = -low > high || isnan(low) ? low : high;
    (void)params, (void)dtype, (void)error;
    *result = (struct qparam){peak == 0 ? 0 : (double)(1 / (-127 / peak)), 0};
    return QOBS_OK;
}

const struct formula_ops qobs_formula_ggml_q8_0 = {.dtypes = qobs_fixed_dtypes, .qparam = q8_0, .needs_data = true};
const struct formula_ops qobs_formula_ggml_q8_k = {.dtypes = qobs_fixed_dtypes, .qparam = q8_k, .needs_data = true};

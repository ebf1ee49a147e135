/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NNCF's calculate_integer_quantization_params (quantization/algorithms/weight_compression/weight_lowering.py) and
 * calculate_scale_zero_point (quantization/fake_quantize.py), in float32. Symmetric scales are negative if the maximum
 * is further from 0 than the minimum, because the smallest integer has the largest magnitude. */
#include "formula/shared.h"

static const float eps = 0x1p-23F;

/* A magnitude below eps becomes eps. */
static float limited(float scale) { return fabsf(scale) < eps ? eps : scale; }

static float symmetric_scale(float min, float max, float largest)
{
    const float low = fabsf(min);
    return limited((low >= max ? low : -max) / largest);
}

/* numpy.minimum and numpy.maximum with 0: NaN stays. */
static float at_most_0(float x) { return isnan(x) || x < 0 ? x : 0; }
static float at_least_0(float x) { return isnan(x) || x > 0 ? x : 0; }

static int qparam(const struct formula_params *params, qobs_dtype dtype, double least, double most,
                  struct qparam *result, qobs_error *error)
{
    const float min = (float)least, max = (float)most, low = at_most_0(min), high = at_least_0(max);
    const bool symmetric = params->mapping == MAPPING_SYMMETRIC;
    (void)dtype, (void)error;
    const float s = symmetric ? symmetric_scale(min, max, (float)-params->quant_min)
                              : limited((high - low) / (float)params->quant_max);
    const double z = (double)int32_of_double(symmetric ? 0 : (double)(0 - rintf(low / s)));
    *result = (struct qparam){(double)s, z < 0 ? 0 : z > params->quant_max ? params->quant_max : z};
    return QOBS_OK;
}

const struct formula_ops qobs_formula_nncf = {
    .dtypes = qobs_fixed_dtypes, .qparam = qparam, .needs_data = true, .only_f32 = true};

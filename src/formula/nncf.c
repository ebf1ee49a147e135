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

static int qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                   qobs_error *error)
{
    const float *min = r->min, *max = r->max;
    const bool symmetric = params->mapping == MAPPING_SYMMETRIC;
    for (size_t i = 0; i < r->n; i++) {
        const float low = at_most_0(min[i]), high = at_least_0(max[i]);
        const float s = symmetric ? symmetric_scale(min[i], max[i], (float)-params->quant_min)
                                  : limited((high - low) / (float)params->quant_max);
        const double z = (double)int32_of_double(symmetric ? 0 : (double)(0 - rintf(low / s)));
        if (scale)
            ((float *)scale)[i] = s;
        if (zero_point)
            ((int32_t *)zero_point)[i] = (int32_t)(z < 0 ? 0 : z > params->quant_max ? params->quant_max : z);
    }
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_nncf = {
    .dtypes = qobs_fixed_dtypes, .qparams = qparams, .needs_data = true, .only_f32 = true};

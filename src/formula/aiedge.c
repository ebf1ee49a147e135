/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ai-edge-quantizer's tensor_zp_scale_from_min_max (algorithms/uniform_quantize/uniform_quantize_tensor.py), symmetric,
 * of ranges whose bounds are found. Scales of blocks are float16 in LiteRT, with the mantissa of bfloat16. */
#include <math.h>
#include <string.h>

#include "formula/shared.h"

static void dtypes(const struct formula_params *params, const struct range_view *r, qobs_dtype *scale,
                   qobs_dtype *zero_point)
{
    (void)r;
    *scale = QOBS_F32;
    *zero_point = params->aiedge.zero_point_dtype;
}

/* numpy.maximum: NaN stays. */
static float larger_magnitude(float min, float max)
{
    const float a = fabsf(min), b = fabsf(max);
    return isnan(a) || a > b ? a : b;
}

static int qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                   qobs_error *error)
{
    const float *min = r->min, *max = r->max;
    if (r->rank == RANK_EMPTY)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been observed yet");
    for (size_t i = 0; scale && i < r->n; i++) {
        const float s = larger_magnitude(min[i], max[i]) / (float)params->quant_max;
        ((float *)scale)[i] =
            params->aiedge.blocks ? (float)qobs_round_to(QOBS_F16, qobs_round_to(QOBS_BF16, (double)s)) : s;
    }
    if (zero_point)
        memset(zero_point, 0, r->n * qobs_dtype_size(params->aiedge.zero_point_dtype));
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_aiedge = {.dtypes = dtypes, .qparams = qparams, .only_f32 = true};

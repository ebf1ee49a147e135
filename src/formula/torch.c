/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torch.ao.quantization's UniformQuantizationObserverBase._calculate_qparams, in f32. */

#include "formula/shared.h"

static struct qparam_dtypes dtypes(const struct formula_params *params, const struct range_view *ranges)
{
    static const qobs_dtype zero_points[] = {
        [MAPPING_SYMMETRIC] = QOBS_I64, [MAPPING_AFFINE] = QOBS_I32, [MAPPING_FLOAT] = QOBS_F32};
    return (struct qparam_dtypes){QOBS_F32, ranges->rank == RANK_EMPTY ? QOBS_I64 : zero_points[params->mapping]};
}

static int qparams(const struct formula_params *params, const struct range_view *ranges, void *scale, void *zero_point,
                   qobs_error *error)
{
    if (ranges->rank == RANK_EMPTY)
        return put_no_data(scale, zero_point, error);
    const float *min = ranges->min, *max = ranges->max;
    const int64_t quant_min = (int64_t)params->quant_min, quant_max = (int64_t)params->quant_max;
    const float eps = (float)params->torch.eps;
    const float range = (float)(quant_max - quant_min), half = (float)((double)(quant_max - quant_min) / 2);
    for (size_t i = 0; i < ranges->n; i++)
        if (!(min[i] <= max[i]) && !is_no_data((double)min[i], (double)max[i]))
            return qobs_fail(error, QOBS_ERROR_NO_RESULT, "min %g should not be above max %g", (double)min[i],
                             (double)max[i]);
    for (size_t i = 0; i < ranges->n; i++) {
        const float a = min[i] < 0 ? min[i] : 0, b = max[i] > 0 ? max[i] : 0;
        const bool empty = is_no_data((double)min[i], (double)max[i]);
        float s;
        if (params->mapping == MAPPING_FLOAT) {
            s = (max[i] - min[i]) / range;
            s = s > eps ? s : 1;
            if (zero_point)
                ((float *)zero_point)[i] = empty ? 0 : -min[i] / s;
        } else if (params->mapping == MAPPING_SYMMETRIC) {
            s = (-a > b ? -a : b) / half;
            s = s > eps ? s : eps;
            if (zero_point)
                ((int64_t *)zero_point)[i] = empty ? 0 : params->torch.symmetric_zero_point;
        } else {
            s = (b - a) / range;
            s = s > eps ? s : eps;
            if (zero_point)
                ((int32_t *)zero_point)[i] = empty ? 0 : affine_zero_point((double)(a / s), quant_min, quant_max);
        }
        if (scale)
            ((float *)scale)[i] = empty ? 1 : s;
    }
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_torch = {.dtypes = dtypes, .qparams = qparams, .only_f32 = true};

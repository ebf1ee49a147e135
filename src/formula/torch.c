/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torch.ao.quantization's UniformQuantizationObserverBase._calculate_qparams, in f32. */
#include "formula/formula.h"

#include <math.h>

#include "base/error.h"

/* As an x86 conversion does it: what does not fit becomes the smallest integer. Results for such ranges are the platform's in
 * upstream too. */
static int32_t to_int32(float x)
{
    return x >= -0x1p31f && x < 0x1p31f ? (int32_t)x : INT32_MIN;
}

static int32_t affine_zero_point(float min, float scale, int64_t quant_min, int64_t quant_max)
{
    const uint32_t wrapped = (uint32_t)quant_min - (uint32_t)to_int32(rintf(min / scale));
    int64_t zero_point = (int32_t)wrapped;
    if (zero_point < quant_min)
        zero_point = quant_min;
    return (int32_t)(zero_point > quant_max ? quant_max : zero_point);
}

/* The range of an observer without data: scale 1, zero point 0. */
static bool no_data(float min, float max)
{
    return isinf(min) && min > 0 && isinf(max) && max < 0;
}

static void dtypes(const struct formula_params *params, const struct range_view *ranges, qobs_dtype *scale, qobs_dtype *zero_point)
{
    static const qobs_dtype zero_points[] = {
        [MAPPING_SYMMETRIC] = QOBS_I64, [MAPPING_AFFINE] = QOBS_I32, [MAPPING_FLOAT] = QOBS_F32};
    *scale = QOBS_F32;
    *zero_point = ranges->rank == RANK_EMPTY ? QOBS_I64 : zero_points[params->mapping];
}

static int qparams(const struct formula_params *params, const struct range_view *ranges, void *scale, void *zero_point,
                   qobs_error *error)
{
    if (ranges->rank == RANK_EMPTY) {
        if (scale)
            *(float *)scale = 1;
        if (zero_point)
            *(int64_t *)zero_point = 0;
        return qobs_succeed(error);
    }
    const float *min = ranges->min, *max = ranges->max;
    const int64_t quant_min = (int64_t)params->quant_min, quant_max = (int64_t)params->quant_max;
    const float eps = (float)params->torch.eps;
    const float range = (float)(quant_max - quant_min), half = (float)((double)(quant_max - quant_min) / 2);
    for (size_t i = 0; i < ranges->n; i++)
        if (!(min[i] <= max[i]) && !no_data(min[i], max[i]))
            return qobs_fail(error, QOBS_ERROR_NO_RESULT, "min %g should not be above max %g", (double)min[i], (double)max[i]);
    for (size_t i = 0; i < ranges->n; i++) {
        const float a = min[i] < 0 ? min[i] : 0, b = max[i] > 0 ? max[i] : 0;
        const bool empty = no_data(min[i], max[i]);
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
                ((int32_t *)zero_point)[i] = empty ? 0 : affine_zero_point(a, s, quant_min, quant_max);
        }
        if (scale)
            ((float *)scale)[i] = empty ? 1 : s;
    }
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_torch = {.dtypes = dtypes, .qparams = qparams};

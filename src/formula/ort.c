/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ONNX Runtime's compute_scale_zp, snap_zero_point_to_uint8 and compute_scale_zp_float8
 * (onnxruntime/quantization/quant_utils.py), as quantize_static calls them. Ranges are in their dtype, quotients in
 * double; the scale is rounded to the dtype, with a restricted zero point to F32. */
#include "stages/formula.h"

#include <math.h>

#include "base/error.h"
#include "number/convert.h"

/* numpy.std of all finite numbers of e4m3, in float. */
#define E4M3_DEVIATION 100.057724f

static struct qparam_dtypes dtypes(const struct formula_params *params, const struct range_view *r)
{
    return (struct qparam_dtypes){params->ort.restricted ? QOBS_F32 : r->dtype, params->ort.zero_point_dtype};
}

/* The range with 0, with the smallest width, and symmetric. */
static void adjust(const struct formula_params *p, qobs_dtype dtype, double *min, double *max)
{
    *min = *min < 0 ? *min : 0;
    *max = *max > 0 ? *max : 0;
    if (p->ort.has_min_real_range) {
        const double smallest = qobs_round_to(dtype, *min + qobs_round_to(dtype, p->ort.min_real_range));
        *max = *max > smallest ? *max : smallest;
    }
    if (p->mapping != MAPPING_SYMMETRIC)
        return;
    *max = -*min > *max ? -*min : *max;
    *min = -*max;
}

/* The smallest scale: f16 has subnormal ones. */
static bool is_too_small(qobs_dtype dtype, double scale)
{
    if (dtype == QOBS_F16)
        return qobs_round_to(dtype, scale) < 0x1p-24;
    return scale < (dtype == QOBS_F64 ? 0x1p-1022 : 0x1p-126);
}

static struct qparam compute(const struct formula_params *p, qobs_dtype dtype, double min, double max)
{
    const double numbers = p->quant_max - p->quant_min, middle = rint((p->quant_min + p->quant_max) / 2);
    adjust(p, dtype, &min, &max);
    const double scale = (max - min) / numbers;
    if (is_too_small(dtype, scale))
        return (struct qparam){1, 0};
    return (struct qparam){scale, p->mapping == MAPPING_SYMMETRIC ? middle : rint(p->quant_min - min / scale)};
}

/* The zero point is quant_min for ranges from 0 on, else the middle. The scale then holds both sides of the range. */
static struct qparam compute_restricted(const struct formula_params *p, double min, double max)
{
    const double numbers = p->quant_max - p->quant_min, width = p->ort.has_min_real_range ? p->ort.min_real_range : 0;
    const double middle = floor((p->quant_min + p->quant_max + 1) / 2);
    min = min < 0 ? min : 0;
    max = max > 0 ? max : 0;
    max = width > 0 && min + width > max ? min + width : max;
    struct qparam n = {max / numbers, p->quant_min};
    if (max <= min) {
        n.scale = 1 / numbers;
    } else if (min < 0) {
        const double below = -min / (middle - p->quant_min), above = max / (p->quant_max - middle);
        n = (struct qparam){below > above ? below : above, middle};
    }
    n.scale = (double)(float)n.scale < width / numbers ? width / numbers : n.scale;
    return n;
}

static int qparam(const struct formula_params *p, qobs_dtype dtype, double min, double max, struct qparam *result,
                  qobs_error *error)
{
    if (isnan(min) || isnan(max))
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "scale: the range is NaN");
    *result = p->ort.restricted ? compute_restricted(p, min, max) : compute(p, dtype, min, max);
    return QOBS_OK;
}

/* The range is mean and standard deviation. */
static int float8(const struct formula_params *p, qobs_dtype dtype, double mean, double deviation,
                  struct qparam *result, qobs_error *error)
{
    (void)p, (void)dtype, (void)mean, (void)error;
    result->scale = (double)((float)deviation / E4M3_DEVIATION);
    return QOBS_OK;
}

const struct formula_ops qobs_formula_ort = {.dtypes = dtypes, .qparam = qparam, .needs_data = true};
const struct formula_ops qobs_formula_ort_float8 = {.dtypes = dtypes, .qparam = float8, .needs_data = true};

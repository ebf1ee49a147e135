/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ONNX Runtime's compute_scale_zp, snap_zero_point_to_uint8 and compute_scale_zp_float8
 * (onnxruntime/quantization/quant_utils.py), as quantize_static calls them. Ranges are in their dtype, quotients in
 * double; the scale is rounded to the dtype, with a restricted zero point to F32. */
#include "formula/formula.h"

#include <math.h>

#include "base/error.h"
#include "number/convert.h"

/* numpy.std of all finite numbers of e4m3, in float. */
#define E4M3_DEVIATION 100.057724f

static void dtypes(const struct formula_params *params, const struct range_view *r, qobs_dtype *scale,
                   qobs_dtype *zero_point)
{
    *scale = params->ort.restricted ? QOBS_F32 : r->dtype;
    *zero_point = params->ort.zero_point_dtype;
}

static void put_integer(void *array, size_t i, qobs_dtype dtype, double value)
{
    if (dtype == QOBS_I8)
        ((int8_t *)array)[i] = (int8_t)value;
    else if (dtype == QOBS_U8 || dtype == QOBS_F8_E4M3)
        ((uint8_t *)array)[i] = (uint8_t)value; /* that of e4m3 is 0 */
    else if (dtype == QOBS_I16)
        ((int16_t *)array)[i] = (int16_t)value;
    else
        ((int32_t *)array)[i] = (int32_t)value;
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

struct ort_qparams {
    double scale, zero_point;
};

static struct ort_qparams compute(const struct formula_params *p, qobs_dtype dtype, double min, double max)
{
    const double numbers = p->quant_max - p->quant_min, middle = rint((p->quant_min + p->quant_max) / 2);
    adjust(p, dtype, &min, &max);
    const double scale = (max - min) / numbers;
    if (is_too_small(dtype, scale))
        return (struct ort_qparams){1, 0};
    return (struct ort_qparams){scale, p->mapping == MAPPING_SYMMETRIC ? middle : rint(p->quant_min - min / scale)};
}

/* The zero point is quant_min for ranges from 0 on, else the middle. The scale then holds both sides of the range. */
static struct ort_qparams compute_restricted(const struct formula_params *p, double min, double max)
{
    const double numbers = p->quant_max - p->quant_min, width = p->ort.has_min_real_range ? p->ort.min_real_range : 0;
    const double middle = floor((p->quant_min + p->quant_max + 1) / 2);
    min = min < 0 ? min : 0;
    max = max > 0 ? max : 0;
    max = width > 0 && min + width > max ? min + width : max;
    struct ort_qparams n = {max / numbers, p->quant_min};
    if (max <= min) {
        n.scale = 1 / numbers;
    } else if (min < 0) {
        const double below = -min / (middle - p->quant_min), above = max / (p->quant_max - middle);
        n = (struct ort_qparams){below > above ? below : above, middle};
    }
    n.scale = (double)(float)n.scale < width / numbers ? width / numbers : n.scale;
    return n;
}

static int qparams(const struct formula_params *p, const struct range_view *r, void *scale, void *zero_point,
                   qobs_error *error)
{
    const size_t size = qobs_dtype_size(r->dtype);
    if (r->rank == RANK_EMPTY)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been observed yet");
    for (size_t i = 0; i < r->n; i++) {
        const double min = qobs_element((const unsigned char *)r->min + i * size, r->dtype),
               max = qobs_element((const unsigned char *)r->max + i * size, r->dtype);
        if (isnan(min) || isnan(max))
            return qobs_fail(error, QOBS_ERROR_NO_RESULT, "scale: the range is NaN");
        const struct ort_qparams n =
            p->ort.restricted ? compute_restricted(p, min, max) : compute(p, r->dtype, min, max);
        if (scale)
            qobs_store_doubles(scale, p->ort.restricted ? QOBS_F32 : r->dtype, i, 1, &n.scale);
        if (zero_point)
            put_integer(zero_point, i, p->ort.zero_point_dtype, n.zero_point);
    }
    return qobs_succeed(error);
}

/* The range is mean and standard deviation. */
static int float8(const struct formula_params *p, const struct range_view *r, void *scale, void *zero_point,
                  qobs_error *error)
{
    if (r->rank == RANK_EMPTY)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been observed yet");
    const size_t size = qobs_dtype_size(r->dtype);
    for (size_t i = 0; i < r->n; i++) {
        const float deviation = (float)qobs_element((const unsigned char *)r->max + i * size, r->dtype);
        const double s = (double)(deviation / E4M3_DEVIATION);
        if (scale)
            qobs_store_doubles(scale, r->dtype, i, 1, &s);
        if (zero_point)
            put_integer(zero_point, i, p->ort.zero_point_dtype, 0);
    }
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_ort = {.dtypes = dtypes, .qparams = qparams};
const struct formula_ops qobs_formula_ort_float8 = {.dtypes = dtypes, .qparams = float8};

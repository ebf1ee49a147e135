/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torchao's choose_qparams_affine_with_min_max (quantization/quant_primitives.py and pt2e/_affine_quantization.py) in
 * the dtype of the ranges, and the constants of its AffineQuantizedFixedQParamObserver. */
#include "formula/formula.h"

#include <math.h>

#include "base/error.h"
#include "number/convert.h"
#include "number/native.h"

/* The parameters of one call. */
struct affine {
    enum torchao_mapping mapping;
    double quant_min, quant_max, eps;
    bool preserve_zero;
};

#define NATIVE_BODY "formula/torchao.inl.h"
#include "number/native_each.inl.h"

static void dtypes(const struct formula_params *params, const struct range_view *r, qobs_dtype *scale,
                   qobs_dtype *zero_point)
{
    const bool integer = params->torchao.mapping == TORCHAO_ASYMMETRIC && !params->torchao.pt2e;
    *scale = params->torchao.scale_dtype ? params->torchao.scale_dtype : r->dtype;
    *zero_point = params->torchao.zero_point_dtype ? params->torchao.zero_point_dtype : integer ? QOBS_I32 : r->dtype;
}

/* Without eps: the smallest normal number, in pt2e the distance of 1 to the next number. */
static double epsilon(const struct formula_params *params, qobs_dtype dtype)
{
    static const double smallest[] = {
        [QOBS_F32] = 0x1p-126, [QOBS_BF16] = 0x1p-126, [QOBS_F16] = 0x1p-14, [QOBS_F64] = 0x1p-1022};
    static const double next[] = {
        [QOBS_F32] = 0x1p-23, [QOBS_BF16] = 0x1p-7, [QOBS_F16] = 0x1p-10, [QOBS_F64] = 0x1p-52};
    if (params->torchao.has_eps)
        return params->torchao.eps;
    return params->torchao.pt2e ? next[dtype] : smallest[dtype];
}

/* A conversion to a narrow integer keeps the low bits, as torch's on x86. */
static void put_zero_point(void *array, size_t i, qobs_dtype dtype, double value)
{
    const int32_t integer = int32_of_double(value);
    switch (dtype) {
    case QOBS_I8:
        ((int8_t *)array)[i] = (int8_t)(uint8_t)(uint32_t)integer;
        break;
    case QOBS_U8:
        ((uint8_t *)array)[i] = (uint8_t)(uint32_t)integer;
        break;
    case QOBS_I16:
        ((int16_t *)array)[i] = (int16_t)(uint16_t)(uint32_t)integer;
        break;
    case QOBS_I32:
        ((int32_t *)array)[i] = integer;
        break;
    case QOBS_I64:
        ((int64_t *)array)[i] = fabs(value) < 9223372036854775808.0 ? (int64_t)value : INT64_MIN;
        break;
    default:
        qobs_store_doubles(array, dtype, i, 1, &value);
        break;
    }
}

static int qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                   qobs_error *error)
{
    qobs_dtype scale_dtype, zero_point_dtype;
    if (r->rank == RANK_EMPTY)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been observed yet");
    const struct affine affine = {.mapping = params->torchao.mapping,
                                  .quant_min = params->quant_min,
                                  .quant_max = params->quant_max,
                                  .eps = epsilon(params, r->dtype),
                                  .preserve_zero = params->torchao.preserve_zero};
    dtypes(params, r, &scale_dtype, &zero_point_dtype);
    for (size_t i = 0; i < r->n; i++) {
        double s = 0, z = 0;
        FOR_NATIVE(r->dtype, affine_qparam, &affine, r->min, r->max, i, &s, &z)
        if (scale)
            qobs_store_doubles(scale, scale_dtype, i, 1, &s);
        if (zero_point)
            put_zero_point(zero_point, i, zero_point_dtype, params->no_zero_point ? 0 : z);
    }
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_torchao = {.dtypes = dtypes, .qparams = qparams};

/* ---- Constants --------------------------------------------------------------------------------------------------- */

static void fixed_dtypes(const struct formula_params *params, const struct range_view *ranges, qobs_dtype *scale,
                         qobs_dtype *zero_point)
{
    (void)ranges;
    *scale = params->torchao.scale_dtype ? params->torchao.scale_dtype : QOBS_F32;
    *zero_point = params->torchao.zero_point_dtype     ? params->torchao.zero_point_dtype
                  : params->torchao.has_fixed_zero_point ? QOBS_I64
                                                       : QOBS_F32;
}

static int fixed(const struct formula_params *params, const struct range_view *ranges, void *scale, void *zero_point,
                 qobs_error *error)
{
    qobs_dtype scale_dtype, zero_point_dtype;
    fixed_dtypes(params, ranges, &scale_dtype, &zero_point_dtype);
    for (size_t i = 0; scale && i < ranges->n; i++)
        qobs_store_doubles(scale, scale_dtype, i, 1, &params->torchao.fixed_scale);
    for (size_t i = 0; zero_point && i < ranges->n; i++)
        put_zero_point(zero_point, i, zero_point_dtype, params->torchao.fixed_zero_point);
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_torchao_fixed = {.dtypes = fixed_dtypes, .qparams = fixed};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's power-of-two scales (PerTensorPowOf2MinMaxObserver and PerChannelPowOf2MinMaxObserver) of one batch. The
 * scale of the range is rounded to a power of two, and the zero point is made anew for it, by way of an int32 that
 * truncates. The two classes round that second half in different dtypes: the one of tensors in f32, the one of channels
 * in the dtype of the range. */
#include "formula/shared.h"

#include <math.h>

#include "base/error.h"
#include "number/native.h"

/* The parameters of one call. */
struct powers {
    bool tensor; /* else channels */
    bool symmetric;
    int64_t quant_min, quant_max;
};

#define NATIVE_BODY "formula/quark_power_of_2.inl.h"
#include "number/native_each.inl.h"

/* Range i's power of two and zero point; false if upstream raises. A range without data gives 1 and 0. */
static bool compute(const struct powers *q, const struct range_view *r, size_t i, double *scale, int32_t *zero_point)
{
    const size_t size = qobs_dtype_size(r->dtype);
    const double lo = qobs_element((const unsigned char *)r->min + i * size, r->dtype);
    const double hi = qobs_element((const unsigned char *)r->max + i * size, r->dtype);
    bool valid = lo <= hi;
    *scale = 1;
    *zero_point = 0;
    if (r->rank != RANK_TENSOR && is_no_data(lo, hi))
        return true;
    if (valid)
        FOR_NATIVE(r->dtype, valid = power_of_2, q, lo, hi, scale, zero_point)
    return valid;
}

static int qparams(const struct formula_params *params, bool tensor, const struct range_view *r, void *scale,
                   void *zero_point, qobs_error *error)
{
    const struct powers q = {.tensor = tensor,
                             .symmetric = params->mapping == MAPPING_SYMMETRIC,
                             .quant_min = (int64_t)params->quant_min,
                             .quant_max = (int64_t)params->quant_max};
    /* Upstream puts both numbers into one list, in f32 or in the dtype of the scales. */
    const qobs_dtype list = tensor ? QOBS_F32 : qobs_quark_scale_dtype(params, r->dtype);
    if (!tensor && r->dtype == QOBS_F16)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "%s: upstream's limits of a scale do not fit F16", params->name);
    double s;
    int32_t z;
    bool all_127 = true;
    for (size_t i = 0; i < r->n; i++) {
        if (!compute(&q, r, i, &s, &z))
            return qobs_fail(error, QOBS_ERROR_NO_RESULT, "range %zu: min should not be above max, nor the scale be 0",
                             i);
        all_127 &= z == 127;
    }
    for (size_t i = 0; i < r->n; i++) {
        compute(&q, r, i, &s, &z);
        if (params->quark.zero_point_128 && z == 127 && (tensor || all_127))
            z = 128;
        if (scale)
            ((float *)scale)[i] = (float)qobs_round_to(qobs_quark_scale_dtype(params, QOBS_F64), s);
        if (zero_point && tensor)
            ((float *)zero_point)[i] = (float)z;
        else if (zero_point)
            ((int32_t *)zero_point)[i] = int32_of_double(qobs_round_to(list, z));
    }
    return qobs_succeed(error);
}

/* ---- A range for the tensor, a range for each channel ------------------------------------------------------------ */

static void tensor_dtypes(const struct formula_params *params, const struct range_view *ranges, qobs_dtype *scale,
                          qobs_dtype *zero_point)
{
    (void)params, (void)ranges;
    *scale = QOBS_F32;
    *zero_point = QOBS_F32;
}

static int tensor_qparams(const struct formula_params *params, const struct range_view *ranges, void *scale,
                          void *zero_point, qobs_error *error)
{
    return qparams(params, true, ranges, scale, zero_point, error);
}

static int channel_qparams(const struct formula_params *params, const struct range_view *ranges, void *scale,
                           void *zero_point, qobs_error *error)
{
    return qparams(params, false, ranges, scale, zero_point, error);
}

const struct formula_ops qobs_formula_quark_power_of_2_tensor = {.dtypes = tensor_dtypes, .qparams = tensor_qparams};
const struct formula_ops qobs_formula_quark_power_of_2_channel = {.dtypes = qobs_fixed_dtypes,
                                                                  .qparams = channel_qparams};

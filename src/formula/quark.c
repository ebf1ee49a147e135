/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's integers (UniformScalingObserver.calculate_int_quant_params). */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "formula/formula.h"
#include "formula/shared.h"
#include "number/convert.h"
#include "number/native.h"

/* The parameters of one call. */
struct integers {
    enum mapping mapping;
    bool scalars; /* ranges are 0-dimensional tensors: the scale of 16-bit ones is promoted to f32 on the way */
    int64_t quant_min, quant_max;
};

enum { CHUNK = 256 };

#define NATIVE_BODY "formula/quark.inl.h"
#include "number/native_each.inl.h"

static void dtypes(const struct formula_params *params, const struct range_view *ranges, qobs_dtype *scale,
                   qobs_dtype *zero_point)
{
    if (ranges->rank == RANK_EMPTY) {
        *scale = QOBS_F32;
        *zero_point = QOBS_I64;
        return;
    }
    const bool fractional = params->mapping == MAPPING_FLOAT;
    const bool promoted = ranges->rank == RANK_SCALAR && !fractional && ranges->dtype != QOBS_F64;
    *scale = qobs_quark_scale_dtype(params, promoted ? QOBS_F32 : ranges->dtype);
    *zero_point = fractional ? ranges->dtype : QOBS_I32;
}

static int qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                   qobs_error *error)
{
    if (r->rank == RANK_EMPTY)
        return put_no_data(scale, zero_point, error);
    const struct integers q = {.mapping = params->mapping,
                               .scalars = r->rank == RANK_SCALAR,
                               .quant_min = (int64_t)params->quant_min,
                               .quant_max = (int64_t)params->quant_max};
    qobs_dtype scale_dtype, zero_point_dtype;
    dtypes(params, r, &scale_dtype, &zero_point_dtype);
    size_t bad = 0;
    FOR_NATIVE(r->dtype, bad = first_invalid, &q, r->n, r->min, r->max);
    if (bad < r->n)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "min %g should not be above max %g",
                         qobs_element((const unsigned char *)r->min + bad * qobs_dtype_size(r->dtype), r->dtype),
                         qobs_element((const unsigned char *)r->max + bad * qobs_dtype_size(r->dtype), r->dtype));
    for (size_t first = 0; first < r->n; first += CHUNK) {
        const size_t n = r->n - first < CHUNK ? r->n - first : CHUNK;
        double s[CHUNK];
        FOR_NATIVE(r->dtype, integers, &q, first, n, r->min, r->max, s, zero_point);
        if (scale)
            qobs_store_doubles(scale, scale_dtype, first, n, s);
    }
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_quark_integer = {.dtypes = dtypes, .qparams = qparams};

/* ---- LSQObserver ------------------------------------------------------------------------------------------------- */

/* Quark's LSQObserver in training mode: twice the mean magnitude over the root of the largest quantized number. */

static void lsq_dtypes(const struct formula_params *params, const struct range_view *ranges, qobs_dtype *scale,
                       qobs_dtype *zero_point)
{
    *scale = qobs_quark_scale_dtype(params, ranges->dtype);
    *zero_point = QOBS_I32;
}

static int lsq_qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                       qobs_error *error)
{
    const size_t size = qobs_dtype_size(r->dtype);
    const float root = (float)sqrt(params->quant_max);
    if (r->rank == RANK_EMPTY)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been observed yet");
    for (size_t i = 0; scale && i < r->n; i++) {
        const float mean = (float)qobs_element((const unsigned char *)r->max + i * size, r->dtype);
        const double s = (double)(2 * mean / root);
        qobs_store_doubles(scale, qobs_quark_scale_dtype(params, r->dtype), i, 1, &s);
    }
    if (zero_point)
        memset(zero_point, 0, r->n * sizeof(int32_t));
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_quark_lsq = {.dtypes = lsq_dtypes, .qparams = lsq_qparams};

/* ---- TQTObserver ------------------------------------------------------------------------------------------------- */

/* Quark's TQTObserver: the power of two that takes the next power of two above the threshold to half of the numbers. */

static int tqt_qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                       qobs_error *error)
{
    const size_t size = qobs_dtype_size(r->dtype);
    if (r->rank == RANK_EMPTY)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been observed yet");
    for (size_t i = 0; i < r->n; i++) {
        const float threshold = (float)qobs_element((const unsigned char *)r->max + i * size, r->dtype);
        const float log_threshold = (float)log2((double)threshold);
        if (!isfinite(log_threshold))
            return qobs_fail(error, QOBS_ERROR_NO_RESULT, "scale: the logarithm of the threshold, %g, is no number",
                             (double)threshold);
        if (scale)
            ((float *)scale)[i] = (float)(exp2((double)ceilf(log_threshold)) / (params->quant_max + 1));
    }
    if (zero_point)
        memset(zero_point, 0, r->n * sizeof(int32_t));
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_quark_tqt = {.dtypes = qobs_fixed_dtypes, .qparams = tqt_qparams};

/* ---- Powers of two ----------------------------------------------------------------------------------------------- */

/* Quark's power-of-two scales (PerTensorPowOf2MinMaxObserver and PerChannelPowOf2MinMaxObserver) of one batch. The
 * scale of the range is rounded to a power of two, and the zero point is made anew for it, by way of an int32 that
 * truncates. The two classes round that second half in different dtypes: the one of tensors in f32, the one of channels
 * in the dtype of the range. */

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

static int power_of_2_qparams(const struct formula_params *params, bool tensor, const struct range_view *r, void *scale,
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
    return power_of_2_qparams(params, true, ranges, scale, zero_point, error);
}

static int channel_qparams(const struct formula_params *params, const struct range_view *ranges, void *scale,
                           void *zero_point, qobs_error *error)
{
    return power_of_2_qparams(params, false, ranges, scale, zero_point, error);
}

const struct formula_ops qobs_formula_quark_power_of_2_tensor = {.dtypes = tensor_dtypes, .qparams = tensor_qparams};
const struct formula_ops qobs_formula_quark_power_of_2_channel = {.dtypes = qobs_fixed_dtypes,
                                                                  .qparams = channel_qparams};

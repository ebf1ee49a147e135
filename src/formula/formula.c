/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The formulas that do not read ranges, and functions of ranges that all formulas share. */
#include "stages/formula.h"

#include "base/error.h"
#include "number/convert.h"
#include "number/native.h"

struct qparam_dtypes qobs_fixed_dtypes(const struct formula_params *params, const struct range_view *ranges)
{
    (void)params, (void)ranges;
    return (struct qparam_dtypes){QOBS_F32, QOBS_I32};
}

/* A conversion to a narrow integer keeps the low bits, as torch's on x86. The only number of e4m3 is 0. */
static void put_zero_point(void *array, qobs_dtype dtype, size_t i, double value)
{
    const uint32_t integer = (uint32_t)int32_of_double(value);
    switch (dtype) {
    case QOBS_I8:
    case QOBS_U8:
    case QOBS_F8_E4M3:
        ((uint8_t *)array)[i] = (uint8_t)integer;
        break;
    case QOBS_I16:
        ((uint16_t *)array)[i] = (uint16_t)integer;
        break;
    case QOBS_I32:
        ((uint32_t *)array)[i] = integer;
        break;
    case QOBS_I64:
        ((int64_t *)array)[i] = fabs(value) < 9223372036854775808.0 ? (int64_t)value : INT64_MIN;
        break;
    default:
        qobs_store_doubles(array, dtype, i, 1, &value);
        break;
    }
}

#define NATIVE_BODY "formula/amax.inl.h"
#include "number/native_each.inl.h"

enum { CHUNK = 64 };

int qobs_formula_find(const struct formula *f, const struct range_view *r, void *scale, void *zero_point, float *real,
                      qobs_error *error)
{
    double min[CHUNK], max[CHUNK], scales[CHUNK];
    if (r->rank == RANK_EMPTY && f->ops->needs_data)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been observed yet");
    if (f->ops->qparams)
        return f->ops->qparams(&f->params, r, scale, zero_point, error);
    const struct qparam_dtypes dtypes = f->ops->dtypes(&f->params, r);
    for (size_t first = 0, n; first < r->n; first += n) {
        n = r->n - first < CHUNK ? r->n - first : CHUNK;
        FOR_NATIVE(r->dtype, widen, r->min, first, n, min)
        FOR_NATIVE(r->dtype, widen, r->max, first, n, max)
        for (size_t i = 0; i < n; i++) {
            struct qparam result = {0, 0};
            RETURN_IF_FAILED(f->ops->qparam(&f->params, r->dtype, min[i], max[i], &result, error));
            scales[i] = result.scale;
            if (real)
                real[first + i] = (float)result.zero_point;
            if (zero_point)
                put_zero_point(zero_point, dtypes.zero_point, first + i, result.zero_point);
        }
        if (scale && dtypes.scale == QOBS_F32) /* likely, and a call for one scale takes time */
            for (size_t i = 0; i < n; i++)
                ((float *)scale)[first + i] = (float)scales[i];
        else if (scale)
            qobs_store_doubles(scale, dtypes.scale, first, n, scales);
    }
    return qobs_succeed(error);
}

int qobs_formula_qparams(const struct formula *f, const struct range_view *r, void *scale, void *zero_point,
                         qobs_error *error)
{
    return qobs_formula_find(f, r, scale, zero_point, NULL, error);
}

/* torch's FixedQParamsObserver and torchao's AffineQuantizedFixedQParamObserver. */

static struct qparam_dtypes dtypes_of_fixed(const struct formula_params *params, const struct range_view *ranges)
{
    (void)ranges;
    return (struct qparam_dtypes){params->fixed.scale_dtype, params->fixed.zero_point_dtype};
}

static int fixed(const struct formula_params *params, qobs_dtype dtype, double min, double max, struct qparam *result,
                 qobs_error *error)
{
    (void)dtype, (void)min, (void)max, (void)error;
    *result = (struct qparam){params->fixed.scale, params->fixed.zero_point};
    return QOBS_OK;
}

static int none(const struct formula_params *params, const struct range_view *ranges, void *scale, void *zero_point,
                qobs_error *error)
{
    (void)ranges, (void)scale, (void)zero_point;
    return qobs_invalid(error, "%s has no scale and zero point", params->name);
}

const struct formula_ops qobs_formula_fixed = {.dtypes = dtypes_of_fixed, .qparam = fixed};
const struct formula_ops qobs_formula_none = {.dtypes = qobs_fixed_dtypes, .qparams = none};

struct range_view qobs_no_ranges(void)
{
    static const float min = INFINITY, max = -INFINITY;
    return (struct range_view){.dtype = QOBS_F32, .n = 1, .rank = RANK_EMPTY, .min = &min, .max = &max};
}

double qobs_amax_of_ranges(const struct range_view *r)
{
    double amax = 0;
    FOR_NATIVE(r->dtype, amax = largest, r->n, r->min, r->max)
    return amax;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's integers (UniformScalingObserver.calculate_int_quant_params). */
#include "formula/shared.h"

#include "base/error.h"
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

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ai-edge-quantizer's tensor_zp_scale_from_min_max (algorithms/uniform_quantize/uniform_quantize_tensor.py), symmetric,
 * of ranges whose bounds are found. Scales of blocks are float16 in LiteRT, with the mantissa of bfloat16. */
#include <math.h>
#include <string.h>

#include "formula/shared.h"

static bool is_double(const struct range_view *r) { return r->dtype == QOBS_F64; }

static void dtypes(const struct formula_params *params, const struct range_view *r, qobs_dtype *scale,
                   qobs_dtype *zero_point)
{
    *scale = is_double(r) && !params->aiedge.blocks ? QOBS_F64 : QOBS_F32;
    *zero_point = params->aiedge.zero_point_dtype;
}

/* numpy.maximum: NaN stays. */
static double larger_magnitude(double min, double max)
{
    const double a = fabs(min), b = fabs(max);
    return isnan(a) || a > b ? a : b;
}

/* To float, then bfloat16, then float16. */
static double round_block(double scale)
{
    return qobs_round_to(QOBS_F16, qobs_round_to(QOBS_BF16, (double)(float)scale));
}

static int qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
                   qobs_error *error)
{
    const size_t size = qobs_dtype_size(r->dtype);
    qobs_dtype scale_dtype, zero_point_dtype;
    if (r->rank == RANK_EMPTY)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been observed yet");
    dtypes(params, r, &scale_dtype, &zero_point_dtype);
    for (size_t i = 0; scale && i < r->n; i++) {
        const double bound = larger_magnitude(qobs_element((const unsigned char *)r->min + i * size, r->dtype),
                                              qobs_element((const unsigned char *)r->max + i * size, r->dtype));
        /* The double quotient of two floats, rounded to float, is their float quotient. */
        const double quotient = bound / params->quant_max, s = params->aiedge.blocks ? round_block(quotient) : quotient;
        qobs_store_doubles(scale, scale_dtype, i, 1, &s);
    }
    if (zero_point)
        memset(zero_point, 0, r->n * qobs_dtype_size(zero_point_dtype));
    return qobs_succeed(error);
}

const struct formula_ops qobs_formula_aiedge = {.dtypes = dtypes, .qparams = qparams};

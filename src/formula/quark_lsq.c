/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's LSQObserver in training mode: twice the mean magnitude over the root of the largest quantized number. */
#include "formula/shared.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "number/convert.h"

static void dtypes(const struct formula_params *params, const struct range_view *ranges, qobs_dtype *scale,
                   qobs_dtype *zero_point)
{
    *scale = qobs_quark_scale_dtype(params, ranges->dtype);
    *zero_point = QOBS_I32;
}

static int qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
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

const struct formula_ops qobs_formula_quark_lsq = {.dtypes = dtypes, .qparams = qparams};

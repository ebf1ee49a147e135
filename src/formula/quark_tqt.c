/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's TQTObserver: the power of two that takes the next power of two above the threshold to half of the numbers. */
#include "formula/formula.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "number/convert.h"

static int qparams(const struct formula_params *params, const struct range_view *r, void *scale, void *zero_point,
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

const struct formula_ops qobs_formula_quark_tqt = {.dtypes = qobs_fixed_dtypes, .qparams = qparams};

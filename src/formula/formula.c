/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The formulas that do not read ranges, and functions of ranges that all formulas share. */
#include "formula/formula.h"

#include <math.h>

#include "base/error.h"
#include "number/native.h"

void qobs_fixed_dtypes(const struct formula_params *params, const struct range_view *ranges, qobs_dtype *scale,
                       qobs_dtype *zero_point)
{
    (void)params, (void)ranges;
    *scale = QOBS_F32;
    *zero_point = QOBS_I32;
}

/* torch's FixedQParamsObserver. */
static int fixed(const struct formula_params *params, const struct range_view *ranges, void *scale, void *zero_point,
                 qobs_error *error)
{
    for (size_t i = 0; scale && i < ranges->n; i++)
        ((float *)scale)[i] = (float)params->fixed.scale;
    for (size_t i = 0; zero_point && i < ranges->n; i++)
        ((int32_t *)zero_point)[i] = params->fixed.zero_point;
    return qobs_succeed(error);
}

static int none(const struct formula_params *params, const struct range_view *ranges, void *scale, void *zero_point,
                qobs_error *error)
{
    (void)ranges, (void)scale, (void)zero_point;
    return qobs_invalid(error, "%s has no scale and zero point", params->name);
}

const struct formula_ops qobs_formula_fixed = {.dtypes = qobs_fixed_dtypes, .qparams = fixed};
const struct formula_ops qobs_formula_none = {.dtypes = qobs_fixed_dtypes, .qparams = none};

struct range_view qobs_no_ranges(void)
{
    static const float min = INFINITY, max = -INFINITY;
    return (struct range_view){.dtype = QOBS_F32, .n = 1, .rank = RANK_EMPTY, .min = &min, .max = &max};
}

#define NATIVE_BODY "formula/amax.inl.h"
#include "number/native_each.inl.h"

double qobs_amax_of_ranges(const struct range_view *r)
{
    double amax = 0;
    FOR_NATIVE(r->dtype, amax = largest, r->n, r->min, r->max)
    return amax;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "number/exponent.h"

#include "number/convert.h"
#include "number/native.h"

#define NATIVE_BODY "number/block_float.inl.h" /* it includes exponent.inl.h */
#include "number/native_each.inl.h"

double qobs_ceil_log2(qobs_dtype dtype, double amax)
{
    double exponent = 0;
    FOR_NATIVE(dtype, exponent = integer_log2, amax, true)
    return exponent;
}

void qobs_update_absmax_bfp(qobs_dtype dtype, qobs_dtype scale_dtype, size_t n, void *min, void *max, const void *lo,
                            const void *hi, bool first)
{
    FOR_NATIVE(dtype, absmax_bfp, scale_dtype, n, min, max, lo, hi, first)
}

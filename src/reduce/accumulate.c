/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "reduce/accumulate.h"

#include "number/native.h"

#define NATIVE_BODY "reduce/accumulate.inl.h"
#include "number/native_each.inl.h"

void qobs_update_running(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi)
{
    FOR_NATIVE(dtype, running, n, min, max, lo, hi)
}

void qobs_update_absmax(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, bool first)
{
    FOR_NATIVE(dtype, absmax, n, min, max, lo, hi, first)
}

void qobs_update_lerp(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, double c)
{
    FOR_NATIVE(dtype, lerp, n, min, lo, c)
    FOR_NATIVE(dtype, lerp, n, max, hi, c)
}

void qobs_update_moving_average(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi,
                                double c)
{
    FOR_NATIVE(dtype, moving_average, n, min, lo, c)
    FOR_NATIVE(dtype, moving_average, n, max, hi, c)
}

void qobs_convert_to_f32(qobs_dtype from, size_t n, const void *x, float *out) { FOR_NATIVE(from, convert, n, x, out) }

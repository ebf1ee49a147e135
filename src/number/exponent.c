/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "number/exponent.h"

#include "number/native.h"

#define NATIVE_BODY "number/exponent.inl.h"
#include "number/native_each.inl.h"

double qobs_ceil_log2(qobs_dtype dtype, double amax)
{
    double exponent = 0;
    FOR_NATIVE(dtype, exponent = integer_log2, amax, true)
    return exponent;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "statistic/histogram.h"

#include <float.h>
#include <math.h>

struct qobs_binning qobs_binning_of(float lo, float hi, size_t bins, bool magnitude, bool skip_zeros)
{
    struct qobs_binning b = {
        .lo = lo, .hi = hi, .scale = 1, .bins = (uint32_t)bins, .magnitude = magnitude, .skip_zeros = skip_zeros};
    if (lo == hi) {
        b.lo = lo - 1;
        b.hi = hi + 1;
    }
    if (b.lo == b.hi) {
        b.lo = lo > -FLT_MAX ? nextafterf(lo, -INFINITY) : lo;
        b.hi = hi < FLT_MAX ? nextafterf(hi, INFINITY) : hi;
    }
    if (!isfinite((b.hi - b.lo) * (float)bins))
        b.scale = 0x1p-26f;
    b.from = b.lo * b.scale;
    b.width = b.hi * b.scale - b.from;
    return b;
}

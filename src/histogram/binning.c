/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "histogram/binning.h"

#include <float.h>

struct binning qobs_binning_of(float lo, float hi, size_t bins, bool magnitude, bool skip_zeros)
{
    struct binning b = {
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

struct binning qobs_binning_of_nothing(size_t bins, bool magnitude, bool skip_zeros)
{
    struct binning b = qobs_binning_of(-1, 1, bins, magnitude, skip_zeros);
    b.lo = INFINITY;
    b.hi = -INFINITY;
    return b;
}

struct extrema qobs_extrema_of_nothing(void) { return (struct extrema){.min = INFINITY, .max = -INFINITY}; }

float qobs_bin_edge(const struct bin_range *range, size_t bins, size_t i)
{
    if (range->step > 0)
        return (float)((double)range->lo + (double)range->step * (double)i);
    const struct linspace edges = linspace_of(range->lo, range->hi, bins + 1);
    return i == bins ? range->hi : linspace_at(&edges, i);
}

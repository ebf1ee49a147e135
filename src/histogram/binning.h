/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Bins: the rule that kernels count by, the edges between bins, and the extrema of binned elements. The bin of one
 * element is kernels/kernel_histogram.h. */
#pragma once

#include "kernels/kernels.h"
#include "number/multiply_add.h"

/* The rule for `bins` bins from lo to hi, which are finite, lo <= hi. `magnitude`: elements are binned by their
 * magnitude. `skip_zeros`: zeros are not counted. A range of one point c becomes [c - 1, c + 1], as in torch.histc. If
 * rounding makes that c again, upstream divides 0 by 0; here the range then ends at the neighbours of c. */
struct binning qobs_binning_of(float lo, float hi, size_t bins, bool magnitude, bool skip_zeros);

/* The rule by which nothing is counted. The extrema of the elements are still found. */
struct binning qobs_binning_of_nothing(size_t bins, bool magnitude, bool skip_zeros);

/* The extrema of no elements. */
struct extrema qobs_extrema_of_nothing(void);

/* Adds the elements of `from` to those whose extrema *to has. */
static inline void extrema_merge(struct extrema *to, const struct extrema *from)
{
    to->min = from->min < to->min ? from->min : to->min;
    to->max = from->max > to->max ? from->max : to->max;
    to->nonfinite.nan += from->nonfinite.nan;
    to->nonfinite.inf += from->nonfinite.inf;
}

/* The range of the bins of one qparam. */
struct bin_range {
    float lo, hi; /* lo > hi: no element yet */
    float step;   /* of the edges, if they come from an arange; 0: they come from a linspace */
};

static inline bool bin_range_is_empty(const struct bin_range *range) { return range->lo > range->hi; }

/* Edge i of `bins` bins of the same width. */
float qobs_bin_edge(const struct bin_range *range, size_t bins, size_t i);

/* ---- torch.linspace(start, end, n) in float32 -------------------------------------------------------------------- */

struct linspace {
    float start, end, step;
    size_t n;
};

static inline struct linspace linspace_of(float start, float end, size_t n)
{
    const struct linspace l = {start, end, (end - start) / (float)(n - 1), n};
    return l;
}

static inline float linspace_at(const struct linspace *l, size_t i)
{
    return i < l->n / 2 ? multiply_add(l->step, (float)i, l->start)
                        : multiply_add(-l->step, (float)(l->n - i - 1), l->end);
}

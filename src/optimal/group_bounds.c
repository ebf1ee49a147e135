/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "optimal/group_search.h"

#include <float.h>
#include <math.h>

#include "number/number.h"

/* An index from which on two candidates enclose the scale: that of the e4m3 number below scale * global_scale, or the
 * one before, because both are rounded. */
static size_t e4m3_near(const struct group_search *s, double scale)
{
    const double wide = scale * (double)s->group->global_scale;
    const float number = (float)(wide < 448 ? wide : 448);
    const int32_t code =
        number < 0x1p-6f ? (int32_t)(number * 512) : (int32_t)(bits_of_float(number) >> 20) - ((127 - 7) << 3);
    const size_t index = code > 2 ? (size_t)code - 2 : 0;
    return (double)s->arrays.scale[index + 1] <= scale ? index + 1 : index;
}

static size_t dense_below(const struct group_search *s, double scale)
{
    const float nearest = scale < (double)FLT_MAX ? (float)scale : FLT_MAX;
    const uint32_t first = bits_of_float(s->arrays.scale[0]) >> 16, k = bits_of_float(nearest) >> 16;
    size_t index = k > first ? k - first : 0;
    index = index < s->count ? index : s->count - 1;
    return index > 0 && (double)s->arrays.scale[index] > scale ? index - 1 : index;
}

/* The index of the largest candidate that is not above s, or 0. */
size_t qobs_candidate_below(const struct group_search *s, double scale)
{
    if (s->without_gaps)
        return dense_below(s, scale);
    size_t low = 0, high = s->count;
    if (s->params->scales == OPTIMAL_E4M3) {
        low = e4m3_near(s, scale);
        high = low + 2 < s->count ? low + 2 : s->count;
    }
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if ((double)s->arrays.scale[middle] <= scale)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Copies the elements of a side whose magnitude is nearly `lower` or above; returns how many. */
static size_t gather_large(const struct group_search *s, bool negative, float lower, float *w, double *h)
{
    enum { PART = 1024 };
    const struct optimal_group *g = s->group;
    size_t n = 0;
    for (size_t from = 0; from < g->n; from += PART) {
        uint32_t index[PART + QOBS_OPTIMAL_LANES];
        const size_t left = g->n - from < PART ? g->n - from : PART;
        const size_t found = s->kernels->optimal_large(g->w + from, left, negative, lower, index);
        for (size_t i = 0; i < found; i++, n++) {
            w[n] = fabsf(g->w[from + index[i]]);
            h[n] = g->h[from + index[i]];
        }
    }
    for (size_t i = n; i < optimal_padded(n); i++)
        w[i] = 0, h[i] = 0;
    return n;
}

/* Sorts from the largest down. Lists are short but for groups without a threshold. */
static void sort(float *w, double *h, size_t n)
{
    for (size_t gap = n > 32 ? n / 2 : 1; gap > 0; gap /= 2)
        for (size_t i = gap; i < n; i++) {
            const float x = w[i];
            const double weight = h[i];
            size_t to = i;
            for (; to >= gap && w[to - gap] < x; to -= gap) {
                w[to] = w[to - gap];
                h[to] = h[to - gap];
            }
            w[to] = x;
            h[to] = weight;
        }
}

/* The square root of what is clipped is a convex function of the limit, or of the scale, so it is above its tangents.
 * Returns how far the tangent is above that of the bound. */
static double to_bound(double clipped, double half_slope, double bound)
{
    return (clipped - sqrt(clipped) * sqrt(bound)) / half_slope;
}

enum { TANGENTS = 3 };
#define LEAST_CLIPPED 0x1p-900 /* so that its factors are normal numbers */

static bool is_above(double clipped, const struct group_search *s)
{
    return clipped > s->candidates->bound && clipped > LEAST_CLIPPED;
}

/* Below it too much of the largest elements is clipped by most groups. */
static float low_part(const struct optimal_params *p)
{
    return p->num_bits > 3 || p->e2m1 ? 0.5f : p->num_bits > 2 ? 0.35f : 0.2f;
}

/* Finds a threshold from below: beyond it the elements of the side cost more than the bound. */
void qobs_find_threshold(struct group_search *s, int side)
{
    const float top = side ? -s->range.lo : s->range.hi;
    float *const w = s->arrays.large[side], low = top * low_part(s->params);
    double *const h = s->arrays.large_weight[side], beyond[2];
    s->threshold[side] = 0;
    s->large[side] = gather_large(s, side, low, w, h);
    s->kernels->optimal_beyond(w, h, s->large[side], low, 0, beyond);
    if (!is_above(beyond[0], s)) {
        low = 0;
        s->large[side] = gather_large(s, side, low, w, h);
        s->kernels->optimal_beyond(w, h, s->large[side], low, 0, beyond);
    }
    if (!is_above(beyond[0], s)) {
        sort(w, h, s->large[side]);
        return;
    }
    for (int i = 0; i < TANGENTS && is_above(beyond[0], s); i++) {
        low += (float)to_bound(beyond[0], beyond[1], s->candidates->bound);
        if (i + 1 < TANGENTS)
            s->kernels->optimal_beyond(w, h, s->large[side], low, 0, beyond);
    }
    s->threshold[side] = (double)low * (1 - 0x1p-20);
    size_t n = 0; /* smaller ones are not clipped by any scale that is left */
    for (size_t i = 0; i < s->large[side]; i++) {
        const float x = w[i];
        const double weight = h[i];
        w[n] = x;
        h[n] = weight;
        n += (double)x > s->threshold[side];
    }
    for (size_t i = n; i < optimal_padded(n); i++)
        w[i] = 0, h[i] = 0;
    s->large[side] = n;
    sort(w, h, n);
}

/* A bound of both sides, for one sign and no zero point. The slope is at most that of the larger limit. */
static double min_symmetric_scale(const struct group_search *s)
{
    const double up = optimal_limit_of(s->params, 0), down = optimal_limit_of(s->params, 1);
    double scale = (double)(s->range.scale * low_part(s->params));
    for (int i = 0; i < 2; i++) { /* a third takes as much time as it saves */
        double beyond[2];
        s->kernels->optimal_beyond(s->group->w, s->group->h, s->group->n, (float)(up * scale), (float)(down * scale),
                                   beyond);
        if (is_above(beyond[0], s))
            scale += to_bound(beyond[0], optimal_larger(up, down) * beyond[1], s->candidates->bound);
        else if (i > 0)
            break;
        else
            scale = 0;
    }
    return scale * (1 - 0x1p-20);
}

/* No scale below it can win. Needs the thresholds, but for symmetric integers of one sign. */
double qobs_min_scale(const struct group_search *s)
{
    const double *t = s->threshold, up = optimal_limit_of(s->params, 0), down = optimal_limit_of(s->params, 1);
    if (!s->params->symmetric)
        return (t[0] + t[1]) / s->steps;
    if (!s->params->signed_scale)
        return min_symmetric_scale(s);
    const double one = optimal_larger(t[0] / up, t[1] / down), other = optimal_larger(t[0] / down, t[1] / up);
    return other < one ? other : one;
}

/* The largest error of a point of the curve: elements that round differently, and rounding of the sums. */
double qobs_curve_slack(const struct group_search *s, double scale)
{
    const double shifted = s->params->symmetric ? 0 : 0x1p-22 * (1 << s->params->num_bits);
    return 0x1p-19 * scale * s->sums.magnitude + shifted * scale * scale * s->sums.weight +
           1e-13 * s->sums.energy;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Candidates one by one, or some at a time: for lists of scales that are short or have gaps. */
#include <math.h>

#include "optimal/group_search.h"

/* The index of a candidate from which on none can win: twice a scale that clips nothing, or all elements become 0.
 * Halves of e4m3 numbers are candidates from number 16 on. After 6, e2m1 would have 8: up to 7 nothing is clipped. Its
 * numbers at the double scale have even codes, to which ties go, so that rounded quotients change nothing. */
static size_t direct_end(const struct group_search *s)
{
    const struct optimal_params *p = s->params;
    const double amax = optimal_amax_of(s);
    const size_t zero = qobs_candidate_below(s, 4 * amax) + 2;
    size_t end = zero < s->count ? zero : s->count;
    if (p->scales != OPTIMAL_E4M3 && p->scales != OPTIMAL_E8M0)
        return end;
    double unclipped = amax;
    if (p->e2m1)
        unclipped = amax / 7;
    else if (p->symmetric)
        unclipped = optimal_larger((double)s->range.hi / optimal_limit_of(p, 0),
                                   -(double)s->range.lo / optimal_limit_of(p, 1));
    const size_t k = qobs_candidate_below(s, unclipped) + 1, step = p->scales == OPTIMAL_E8M0 ? 1 : 8;
    const size_t doubled = (k < step ? 2 * step : k + step) + (p->e2m1 ? 0 : 1);
    return doubled < end ? doubled : end;
}

/* True if a scale clips more than the bound, whatever the zero point. Smaller scales do, too. */
static bool clips_too_much(const struct group_search *s, float scale)
{
    const struct optimal_params *p = s->params;
    if (!p->symmetric || p->signed_scale)
        return (double)scale < qobs_min_scale(s);
    const float above = scale * (1 + 0x1p-20f); /* the limits are rounded */
    double beyond[2];
    s->kernels->optimal_beyond(s->group->w, s->group->h, s->group->n, above * (float)optimal_limit_of(p, 0),
                               above * (float)optimal_limit_of(p, 1), beyond);
    return beyond[0] > s->contest->bound;
}

static void try_scale(struct group_search *s, float scale)
{
    const struct optimal_params *p = s->params;
    if (p->symmetric) {
        qobs_contest_decide(s->contest, scale, 0);
        if (p->signed_scale)
            qobs_contest_decide(s->contest, -scale, 0);
        return;
    }
    for (int32_t z = p->quant_min; z <= p->quant_max; z++)
        qobs_contest_decide(s->contest, scale, z);
}

/* Magnitudes and weights in float, of which weight * magnitude sums up to the largest magnitude: a weight is then
 * neither too large nor too small for float where it matters. Returns the factor. */
static double narrow(const struct group_search *s, float *w, float *h)
{
    const struct optimal_group *g = s->group;
    const double factor = optimal_amax_of(s) / s->moments.magnitude;
    s->kernels->optimal_narrow(g->w, g->h, g->n, factor, w, h);
    return factor;
}

/* A share of the errors in float and of the energy. Rounding of (q * scale - w)^2 is in proportion to
 * sqrt(error * energy), which is below their mean. */
#define NARROW_SLACK 0x1p-19

/* Enters a scale with its error in float. */
static void enter_scale(struct group_search *s, float scale, double nearly)
{
    const double rounding = (nearly + s->moments.energy) / 2;
    const double slack = qobs_curve_slack(s, (double)scale) + NARROW_SLACK * (nearly + rounding);
    if (nearly - slack <= s->contest->bound)
        qobs_contest_enter(s->contest, scale, 0, nearly, slack);
}

/* Errors in float above it belong to scales up to `largest` that cannot win. */
static float largest_error(const struct group_search *s, float largest, double factor)
{
    const double slack = qobs_curve_slack(s, (double)largest) + NARROW_SLACK / 2 * s->moments.energy;
    return (float)((s->contest->bound + slack) * (1 + 2 * NARROW_SLACK) * factor * (1 + 0x1p-20));
}

/* Enters QOBS_OPTIMAL_SCALES scales from number k on, with their errors in float; the best of them goes first, because
 * it leaves out most of the others. */
static void enter_scales(struct group_search *s, size_t k, const float *w, const float *h, double factor)
{
    const size_t n = s->count - k < QOBS_OPTIMAL_SCALES ? s->count - k : QOBS_OPTIMAL_SCALES;
    float scale[QOBS_OPTIMAL_SCALES], error[QOBS_OPTIMAL_SCALES];
    size_t best = 0;
    for (size_t i = 0; i < QOBS_OPTIMAL_SCALES; i++)
        scale[i] = s->arrays.scale[i < n ? k + i : s->count - 1];
    s->kernels->optimal_nearly(w, h, s->group->n, scale, error);
    for (size_t i = 1; i < n; i++)
        best = error[i] < error[best] ? i : best;
    enter_scale(s, scale[best], (double)error[best] / factor);
    const float most = largest_error(s, scale[n - 1], factor);
    for (size_t i = 0; i < n; i++)
        if (i != best && error[i] <= most)
            enter_scale(s, scale[i], (double)error[i] / factor);
}

/* e2m1 has one zero point and, under e4m3, few scales. */
void qobs_search_e2m1(struct group_search *s)
{
    const size_t end = direct_end(s), n = s->group->n;
    const float amax = (float)optimal_amax_of(s);
    float *const w = s->arrays.large[0], *const h = s->arrays.large[1];
    const bool fits = n <= 32 && amax > 1e-12f && amax < 1e12f && s->moments.magnitude > 0;
    const double factor = fits ? narrow(s, w, h) : 1;
    size_t k = end;
    do {
        const size_t last = k;
        k = k > QOBS_OPTIMAL_SCALES ? k - QOBS_OPTIMAL_SCALES : 0;
        if (fits && s->arrays.scale[k] > amax * 0x1p-20f)
            enter_scales(s, k, w, h, factor);
        else
            for (size_t i = k; i < last; i++)
                qobs_contest_decide(s->contest, s->arrays.scale[i], 0);
    } while (k > 0 && !clips_too_much(s, s->arrays.scale[k - 1]));
    qobs_contest_finish(s->contest);
}

void qobs_search_scales(struct group_search *s)
{
    const size_t start = qobs_candidate_below(s, (double)s->contest->best.scale), end = direct_end(s);
    if (!s->params->symmetric || s->params->signed_scale)
        for (int side = 0; side < 2; side++)
            qobs_find_threshold(s, side);
    for (size_t k = start; k < end; k++)
        try_scale(s, s->arrays.scale[k]);
    for (size_t k = start; k > 0 && !clips_too_much(s, s->arrays.scale[k - 1]); k--)
        try_scale(s, s->arrays.scale[k - 1]);
}

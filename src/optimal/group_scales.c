/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Three ways through the candidates: one by one or some at a time for lists of scales that are short or have gaps; all
 * at once, from the errors without limits (optimal_curve of the kernels), for others. */
#include <math.h>

#include "number/number.h"
#include "optimal/group_search.h"

/* ---- One by one, or some at a time ------------------------------------------------------------------------------- */

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
    return beyond[0] > s->candidates->bound;
}

static void try_scale(struct group_search *s, float scale)
{
    const struct optimal_params *p = s->params;
    if (p->symmetric) {
        qobs_candidates_evaluate(s->candidates, scale, 0);
        if (p->signed_scale)
            qobs_candidates_evaluate(s->candidates, -scale, 0);
        return;
    }
    for (int32_t z = p->quant_min; z <= p->quant_max; z++)
        qobs_candidates_evaluate(s->candidates, scale, z);
}

/* Magnitudes and weights in float, of which weight * magnitude sums up to the largest magnitude: a weight is then
 * neither too large nor too small for float where it matters. Returns the factor. */
static double narrow(const struct group_search *s, float *w, float *h)
{
    const struct optimal_group *g = s->group;
    const double factor = optimal_amax_of(s) / s->sums.magnitude;
    s->kernels->optimal_narrow(g->w, g->h, g->n, factor, w, h);
    return factor;
}

/* A part of the errors in float and of the energy. Rounding of (q * scale - w)^2 is in proportion to
 * sqrt(error * energy), which is below their mean. */
#define NARROW_SLACK 0x1p-19

/* Adds a scale with its error in float. */
static void add_scale(struct group_search *s, float scale, double nearly)
{
    const double rounding = (nearly + s->sums.energy) / 2;
    const double slack = qobs_curve_slack(s, (double)scale) + NARROW_SLACK * (nearly + rounding);
    if (nearly - slack <= s->candidates->bound)
        qobs_candidates_add(s->candidates, scale, 0, nearly, slack);
}

/* Errors in float above it belong to scales up to `largest` that cannot win. */
static float largest_error(const struct group_search *s, float largest, double factor)
{
    const double slack = qobs_curve_slack(s, (double)largest) + NARROW_SLACK / 2 * s->sums.energy;
    return (float)((s->candidates->bound + slack) * (1 + 2 * NARROW_SLACK) * factor * (1 + 0x1p-20));
}

/* Adds QOBS_OPTIMAL_SCALES scales from number k on, with their errors in float; the best of them goes first, because
 * it leaves out most of the others. */
static void add_scales(struct group_search *s, size_t k, const float *w, const float *h, double factor)
{
    const size_t n = s->count - k < QOBS_OPTIMAL_SCALES ? s->count - k : QOBS_OPTIMAL_SCALES;
    float scale[QOBS_OPTIMAL_SCALES], error[QOBS_OPTIMAL_SCALES];
    size_t best = 0;
    for (size_t i = 0; i < QOBS_OPTIMAL_SCALES; i++)
        scale[i] = s->arrays.scale[i < n ? k + i : s->count - 1];
    s->kernels->optimal_nearly(w, h, s->group->n, scale, error);
    for (size_t i = 1; i < n; i++)
        best = error[i] < error[best] ? i : best;
    add_scale(s, scale[best], (double)error[best] / factor);
    const float most = largest_error(s, scale[n - 1], factor);
    for (size_t i = 0; i < n; i++)
        if (i != best && error[i] <= most)
            add_scale(s, scale[i], (double)error[i] / factor);
}

/* e2m1 has one zero point and, under e4m3, few scales. */
void qobs_search_e2m1(struct group_search *s)
{
    const size_t end = direct_end(s), n = s->group->n;
    const float amax = (float)optimal_amax_of(s);
    float *const w = s->arrays.large[0], *const h = s->arrays.large[1];
    const bool fits = n <= 32 && amax > 1e-12f && amax < 1e12f && s->sums.magnitude > 0;
    const double factor = fits ? narrow(s, w, h) : 1;
    size_t k = end;
    do {
        const size_t last = k;
        k = k > QOBS_OPTIMAL_SCALES ? k - QOBS_OPTIMAL_SCALES : 0;
        if (fits && s->arrays.scale[k] > amax * 0x1p-20f)
            add_scales(s, k, w, h, factor);
        else
            for (size_t i = k; i < last; i++)
                qobs_candidates_evaluate(s->candidates, s->arrays.scale[i], 0);
    } while (k > 0 && !clips_too_much(s, s->arrays.scale[k - 1]));
    qobs_candidates_finish(s->candidates);
}

void qobs_search_scales(struct group_search *s)
{
    const size_t start = qobs_candidate_below(s, (double)s->candidates->best.scale), end = direct_end(s);
    if (!s->params->symmetric || s->params->signed_scale)
        for (int side = 0; side < 2; side++)
            qobs_find_threshold(s, side);
    for (size_t k = start; k < end; k++)
        try_scale(s, s->arrays.scale[k]);
    for (size_t k = start; k > 0 && !clips_too_much(s, s->arrays.scale[k - 1]); k--)
        try_scale(s, s->arrays.scale[k - 1]);
}

/* ---- All at once ------------------------------------------------------------------------------------------------- */

/* A limit below which one of the two largest elements of a side costs more than `budget`: beyond it an element adds the
 * square of the distance to that of at most half a scale. */
static double lowest_cap(const struct group_search *s, int side, double scale, double budget)
{
    enum { LARGEST = 2 };
    const float *const w = s->arrays.large[side];
    const double *const h = s->arrays.large_weight[side], free = scale / 2, end = s->steps * scale + free;
    double lowest = s->threshold[side]; /* smaller elements are not in the lists */
    for (size_t i = 0; i < s->large[side] && i < LARGEST; i++) {
        const double limit = (double)w[i] - sqrt(budget / h[i] + free * free);
        lowest = (double)w[i] <= end && limit > lowest ? limit : lowest;
    }
    return lowest / scale;
}

static void add_excess(const struct group_search *s, double scale, const int32_t lowest[2], size_t caps,
                       double excess[2][QOBS_OPTIMAL_STEPS])
{
    for (int side = 0; side < 2; side++)
        s->kernels->optimal_excess(s->arrays.large[side], s->arrays.large_weight[side], s->large[side], scale,
                                   (double)s->arrays.steps->negative, (double)lowest[side], caps, excess[side]);
}

/* Adds both signs of a scale whose error without limits is `free`. */
static void add_signs(struct group_search *s, float scale, double free, double slack)
{
    const struct optimal_params *p = s->params;
    const double wide = (double)scale, *t = s->threshold;
    const double up = optimal_limit_of(p, 0) * wide, down = optimal_limit_of(p, 1) * wide;
    const int32_t lowest[2] = {p->quant_max, p->quant_max};
    double excess[2][QOBS_OPTIMAL_STEPS];
    add_excess(s, wide, lowest, 2, excess);
    if (up >= t[0] && down >= t[1])
        qobs_candidates_add(s->candidates, scale, 0, free + excess[0][0] + excess[1][1], slack);
    if (down >= t[0] && up >= t[1])
        qobs_candidates_add(s->candidates, -scale, 0, free + excess[0][1] + excess[1][0], slack);
}

/* Adds zero points in the same way. The limits of positive elements are quant_max - z, those of negative ones
 * z - quant_min. */
static void add_zero_points(struct group_search *s, float scale, double free, double slack)
{
    const struct optimal_params *p = s->params;
    const int32_t all = p->quant_max - p->quant_min;
    const double wide = (double)scale, budget = s->candidates->bound - free + slack;
    double excess[2][QOBS_OPTIMAL_STEPS];
    const double up = lowest_cap(s, 0, wide, budget), down = lowest_cap(s, 1, wide, budget), margin = 0x1p-20;
    if (!(up + down <= all + margin))
        return;
    const int32_t lowest[2] = {optimal_ceiling(up - margin * up), optimal_ceiling(down - margin * down)};
    if (lowest[0] + lowest[1] > all)
        return;
    const size_t caps = (size_t)all + 1 - (size_t)lowest[0] - (size_t)lowest[1];
    add_excess(s, wide, lowest, caps, excess);
    for (size_t c = 0; c < caps; c++)
        qobs_candidates_add(s->candidates, scale, p->quant_min + lowest[1] + (int32_t)c,
                           free + excess[0][caps - 1 - c] + excess[1][c], slack);
}

enum { STRETCH = 16 };

/* The lowest error of every STRETCH points of a curve; returns the lowest of all. Capacity for a multiple of STRETCH is
 * filled. */
static double find_lowest(double *error, size_t n, double *lowest)
{
    double min_error = HUGE_VAL;
    for (size_t i = n; i % STRETCH != 0; i++)
        error[i] = HUGE_VAL;
    for (size_t i = 0; i < n; i += STRETCH) {
        enum { LANES = 4 }; /* so that no comparison waits for the one before */
        double lane[LANES];
        for (size_t l = 0; l < LANES; l++)
            lane[l] = error[i + l];
        for (size_t k = LANES; k < STRETCH; k += LANES)
            for (size_t l = 0; l < LANES; l++)
                lane[l] = error[i + k + l] < lane[l] ? error[i + k + l] : lane[l];
        const double one = lane[0] < lane[1] ? lane[0] : lane[1], other = lane[2] < lane[3] ? lane[2] : lane[3];
        lowest[i / STRETCH] = one < other ? one : other;
        min_error = lowest[i / STRETCH] < min_error ? lowest[i / STRETCH] : min_error;
    }
    return min_error;
}

static void add_candidate(struct group_search *s, float scale, double error)
{
    const double slack = qobs_curve_slack(s, (double)scale);
    if (error - slack > s->candidates->bound)
        return;
    if (!s->params->symmetric)
        add_zero_points(s, scale, error, slack);
    else if (s->params->signed_scale)
        add_signs(s, scale, error, slack);
    else
        qobs_candidates_add(s->candidates, scale, 0, error, slack);
}

void qobs_search_curve(struct group_search *s)
{
    const struct optimal_params *p = s->params;
    for (int side = 0; side < 2 && (!p->symmetric || p->signed_scale); side++)
        qobs_find_threshold(s, side);
    const size_t from = qobs_candidate_below(s, qobs_min_scale(s)), count = s->count - from;
    const float *const scale = s->arrays.scale + from;
    double *const error = s->arrays.error, lowest[OPTIMAL_MOST_SCALES / STRETCH + 1];
    s->kernels->optimal_curve(s->arrays.steps, s->group->w, s->group->h, s->group->n, bits_of_float(*scale) >> 16,
                              count, s->sums.energy, error, s->arrays.curve);
    const double most = qobs_curve_slack(s, (double)scale[count - 1]); /* no slack is larger */
    const double min_error = find_lowest(error, count, lowest) + 2 * most;
    double limit = s->candidates->bound + most;
    if (p->symmetric && !p->signed_scale) /* these errors are not bounds: the lowest of them leaves few others */
        limit = min_error < limit ? min_error : limit;
    const size_t stride = p->symmetric ? 1 : 4; /* the first scales lower the bound for the others */
    for (size_t first = 0; first < stride; first++)
        for (size_t at = 0; at < count; at += STRETCH)
            for (size_t k = at + first; lowest[at / STRETCH] <= limit && k < at + STRETCH; k += stride)
                if (error[k] <= limit)
                    add_candidate(s, scale[k], error[k]);
    qobs_candidates_finish(s->candidates);
}

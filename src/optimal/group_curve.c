/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* All scales at once, from the errors without limits (optimal_curve of the kernels). */
#include <math.h>

#include "number/number.h"
#include "optimal/group_search.h"

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

/* Enters both signs of a scale whose error without limits is `free`. */
static void enter_signs(struct group_search *s, float scale, double free, double slack)
{
    const struct optimal_params *p = s->params;
    const double wide = (double)scale, *t = s->threshold;
    const double up = optimal_limit_of(p, 0) * wide, down = optimal_limit_of(p, 1) * wide;
    const int32_t lowest[2] = {p->quant_max, p->quant_max};
    double excess[2][QOBS_OPTIMAL_STEPS];
    add_excess(s, wide, lowest, 2, excess);
    if (up >= t[0] && down >= t[1])
        qobs_contest_enter(s->contest, scale, 0, free + excess[0][0] + excess[1][1], slack);
    if (down >= t[0] && up >= t[1])
        qobs_contest_enter(s->contest, -scale, 0, free + excess[0][1] + excess[1][0], slack);
}

/* Enters zero points in the same way. The limits of positive elements are quant_max - z, those of negative ones
 * z - quant_min. */
static void enter_zero_points(struct group_search *s, float scale, double free, double slack)
{
    const struct optimal_params *p = s->params;
    const int32_t all = p->quant_max - p->quant_min;
    const double wide = (double)scale, budget = s->contest->bound - free + slack;
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
        qobs_contest_enter(s->contest, scale, p->quant_min + lowest[1] + (int32_t)c,
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

static void enter(struct group_search *s, float scale, double error)
{
    const double slack = qobs_curve_slack(s, (double)scale);
    if (error - slack > s->contest->bound)
        return;
    if (!s->params->symmetric)
        enter_zero_points(s, scale, error, slack);
    else if (s->params->signed_scale)
        enter_signs(s, scale, error, slack);
    else
        qobs_contest_enter(s->contest, scale, 0, error, slack);
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
                              count, s->moments.energy, error, s->arrays.curve);
    const double most = qobs_curve_slack(s, (double)scale[count - 1]); /* no slack is larger */
    const double min_error = find_lowest(error, count, lowest) + 2 * most;
    double limit = s->contest->bound + most;
    if (p->symmetric && !p->signed_scale) /* these errors are not bounds: the lowest of them leaves few others */
        limit = min_error < limit ? min_error : limit;
    const size_t stride = p->symmetric ? 1 : 4; /* the first scales lower the bound for the others */
    for (size_t first = 0; first < stride; first++)
        for (size_t at = 0; at < count; at += STRETCH)
            for (size_t k = at + first; lowest[at / STRETCH] <= limit && k < at + STRETCH; k += stride)
                if (error[k] <= limit)
                    enter(s, scale[k], error[k]);
    qobs_contest_finish(s->contest);
}

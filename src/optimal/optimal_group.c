/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The best candidate of one group. Bounds leave out scales that cannot win:
 *   clipping   the error is at least sum h * max(0, |w| - limit * scale)^2, which grows as the scale falls
 *   free       limits only add to the error: that of quantized numbers without limits is a bound, of every zero point
 *   doubling   twice a scale that clips nothing is not better, because its numbers are a part of the others
 * Errors without limits are those of a curve over all scales (optimal_curve of the kernels). */
#include <math.h>

#include "number/number.h"
#include "optimal/group_search.h"

/* True if each group has its own candidates. */
static bool around_range(const struct optimal_params *p)
{
    return p->scales == OPTIMAL_BF16 || p->scales == OPTIMAL_F16;
}

static size_t most_steps(const struct optimal_params *p)
{
    return p->e2m1 ? 7 : ((size_t)1 << p->num_bits) - (p->symmetric ? (size_t)1 << (p->num_bits - 1) : 1);
}

static size_t lay_out(const struct optimal_params *p, size_t n, void *scratch, struct group_arrays *a)
{
    struct array_layout l = {scratch, 0};
    const size_t capacity = optimal_padded(n);
    a->count = qobs_layout_add(&l, sizeof *a->count);
    a->scale = qobs_layout_add(&l, OPTIMAL_MOST_SCALES * sizeof *a->scale);
    a->error = qobs_layout_add(&l, (OPTIMAL_MOST_SCALES + 16) * sizeof *a->error);
    a->steps = qobs_layout_add(&l, sizeof *a->steps);
    for (int side = 0; side < 2; side++) {
        a->large[side] = qobs_layout_add(&l, capacity * sizeof(float));
        a->large_weight[side] = qobs_layout_add(&l, capacity * sizeof(double));
    }
    a->curve = qobs_layout_add(&l, QOBS_OPTIMAL_CURVE_SCRATCH(OPTIMAL_MOST_SCALES, most_steps(p)));
    return l.used;
}

size_t qobs_optimal_scratch(const struct optimal_params *p, size_t n)
{
    struct group_arrays unused;
    return lay_out(p, n, NULL, &unused);
}

/* The magnitudes of integers, or of e2m1. */
static void make_steps(const struct optimal_params *p, struct optimal_steps *s)
{
    static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const size_t count = most_steps(p);
    const bool one_lane = p->symmetric && !p->signed_scale && !p->e2m1;
    s->negative = count;
    s->positive = one_lane ? count - 1 : count;
    s->taken[0][0] = s->taken[0][1] = 0;
    for (size_t j = 0; j < count; j++) {
        const double from = p->e2m1 ? e2m1[j] : (double)j, to = p->e2m1 ? e2m1[j + 1] : (double)(j + 1);
        s->inverse_mid[j] = (float)(2 / (from + to));
        s->gain[j][0] = to - from;
        s->gain[j][1] = (to - from) * (from + to);
        s->taken[j + 1][0] = to;
        s->taken[j + 1][1] = to * to;
    }
}

void qobs_optimal_prepare(const struct optimal_params *p, float global_scale, size_t n, void *scratch)
{
    struct group_arrays a;
    lay_out(p, n, scratch, &a);
    make_steps(p, a.steps);
    if (!around_range(p))
        *a.count = qobs_optimal_scales(p, 1, global_scale, a.scale);
}

/* ---- Candidates ------------------------------------------------------------------------------------------------- */

static void candidates_begin(struct candidate_set *c, const struct kernel_table *kernels,
                             const struct optimal_params *params, const struct optimal_group *group)
{
    c->kernels = kernels;
    c->number = qobs_optimal_number(params);
    c->group = group;
    c->best = (struct optimal_choice){.error = HUGE_VAL};
    c->bound = HUGE_VAL;
    c->pending = 0;
}

/* True if a goes before b on equal errors. */
static bool goes_before(float a, int32_t zero_a, float b, int32_t zero_b)
{
    const float size_a = fabsf(a), size_b = fabsf(b);
    if (size_a != size_b)
        return size_a < size_b;
    return a != b ? a > 0 : zero_a < zero_b;
}

/* Takes a candidate whose error is known. */
static void candidates_update(struct candidate_set *c, float scale, int32_t zero_point, double error)
{
    struct optimal_choice *best = &c->best;
    if (error < best->error ||
        (error == best->error && goes_before(scale, zero_point, best->scale, best->zero_point))) {
        best->error = error;
        best->scale = scale;
        best->zero_point = zero_point;
    }
    c->bound = error < c->bound ? error : c->bound;
}

double qobs_candidates_evaluate(struct candidate_set *c, float scale, int32_t zero_point)
{
    const struct optimal_group *g = c->group;
    const double error = c->kernels->optimal_error(&c->number, g->w, g->h, g->n, scale, (float)zero_point);
    candidates_update(c, scale, zero_point, error);
    return error;
}

/* Drops those that cannot win. */
static void drop_losers(struct candidate_set *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->pending; i++)
        if (c->pending_bounds[i].lowest <= c->bound)
            c->pending_bounds[n++] = c->pending_bounds[i];
    c->pending = n;
}

void qobs_candidates_finish(struct candidate_set *c)
{
    for (size_t i = 0; i < c->pending; i++)
        if (c->pending_bounds[i].lowest <= c->bound)
            qobs_candidates_evaluate(c, c->pending_bounds[i].scale, c->pending_bounds[i].zero_point);
    c->pending = 0;
}

void qobs_candidates_add(struct candidate_set *c, float scale, int32_t zero_point, double nearly, double slack)
{
    const double lowest = nearly - slack, most = nearly + slack;
    if (lowest > c->bound)
        return;
    c->bound = most < c->bound ? most : c->bound;
    if (c->pending == PENDING_CANDIDATES)
        drop_losers(c);
    if (c->pending == PENDING_CANDIDATES)
        qobs_candidates_finish(c);
    c->pending_bounds[c->pending++] = (struct candidate_bound){scale, zero_point, lowest};
}

/* ---- One group ----------------------------------------------------------------------------------- */

/* A candidate that is nearly as good as the best, for the bounds: the more bits, the less is clipped. */
static void decide_guess(struct group_search *s)
{
    static const float part[] = {1, 1, 0.62f, 0.76f, 0.88f, 0.94f, 0.97f, 0.99f, 1};
    const struct optimal_params *p = s->params;
    const double wanted = (double)(s->range.scale * (p->e2m1 ? 0.94f : part[p->num_bits]));
    const float scale = s->arrays.scale[qobs_candidate_below(s, wanted)];
    const double middle = ((double)s->range.lo + (double)s->range.hi) / 2;
    double z = p->symmetric ? 0 : rint((p->quant_min + p->quant_max) / 2.0 - middle / (double)scale);
    z = z < p->quant_min ? p->quant_min : z > p->quant_max ? p->quant_max : z;
    qobs_candidates_evaluate(s->candidates, scale, (int32_t)z);
}

/* A bound from the error of the range's scale, without a candidate that has been decided. At the nearest candidate,
 * errors with the same quantized numbers are larger by the difference of the scales times these numbers, whose norm
 * times the scale is at most sqrt(energy) + sqrt(error). */
static void bound_by_range(struct group_search *s, double error)
{
    const float scale = s->range.scale;
    const size_t below = qobs_candidate_below(s, (double)scale), next = below + 1 < s->count ? below + 1 : below;
    const double down = fabs((double)(s->arrays.scale[below] - scale)), up = (double)(s->arrays.scale[next] - scale);
    const float nearest = s->arrays.scale[up >= 0 && up < down ? next : below];
    const double difference = fabs((double)(nearest - scale)) / (double)scale * (1 + 0x1p-20);
    const double root = sqrt(error) + difference * (sqrt(s->sums.energy) + sqrt(error));
    s->candidates->bound = root * root * (1 + 0x1p-20) + qobs_curve_slack(s, (double)nearest);
}

/* True if candidates are numbers with 8 significant bits without a gap. */
static bool is_without_gaps(const struct group_search *s)
{
    const struct optimal_params *p = s->params;
    const uint32_t first = bits_of_float(s->arrays.scale[0]) >> 16,
                   last = bits_of_float(s->arrays.scale[s->count - 1]) >> 16;
    const bool narrow = p->scales == OPTIMAL_F16 || p->f16_results; /* normal numbers of f16 */
    return around_range(p) && s->count < 4096 && last - first + 1 == s->count && (!narrow || first >= 0x3880);
}

void qobs_optimal_group(const struct kernel_table *kernels, const struct optimal_params *p,
                        const struct optimal_group *g, void *scratch, struct optimal_choice *choice)
{
    struct group_search s = {.kernels = kernels, .params = p, .group = g};
    kernels->optimal_moments(g->w, g->h, g->n, &s.sums);
    s.range = qobs_optimal_range_of(p, s.sums.lo, s.sums.hi);
    if (!qobs_optimal_is_searched(p, &s.range, g, choice))
        return;
    lay_out(p, g->n, scratch, &s.arrays);
    s.steps = (double)((1 << p->num_bits) - 1);
    s.count = *s.arrays.count;
    if (around_range(p))
        s.count = qobs_optimal_scales(p, s.range.scale, g->global_scale, s.arrays.scale);
    struct candidate_set candidates;
    candidates_begin(&candidates, kernels, p, g);
    s.candidates = &candidates;
    if (s.count == 0) /* f16 has no number there */
        s.arrays.scale[s.count++] = s.range.scale < 1 ? 0x1p-24f : 65504;
    s.without_gaps = is_without_gaps(&s);
    const double minmax_error =
        kernels->optimal_error(&candidates.number, g->w, g->h, g->n, s.range.scale,
                               (float)qobs_optimal_zero_point(p, &s.range));
    if (s.without_gaps && p->symmetric && !p->signed_scale)
        bound_by_range(&s, minmax_error);
    else if (!p->e2m1 || s.without_gaps)
        decide_guess(&s);
    if (p->e2m1 && !s.without_gaps)
        qobs_search_e2m1(&s);
    else if (s.without_gaps)
        qobs_search_curve(&s);
    else
        qobs_search_scales(&s);
    *choice = candidates.best;
    choice->minmax_error = minmax_error;
    choice->energy = s.sums.energy;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The best candidate of one group. Bounds leave out scales that cannot win:
 *   clipping   the error is at least sum h * max(0, |w| - limit * scale)^2, which grows as the scale falls
 *   free       limits only add to the error: that of quantized numbers without limits is a bound, of every zero point
 *   doubling   twice a scale that clips nothing is not better, because its numbers are a part of the others
 * Errors without limits are those of a curve over all scales (optimal_curve of the kernels). */
#include <math.h>

#include "number/number.h"
#include "range/optimal_contest.h"
#include "range/optimal_group.h"

/* ---- Setting up -------------------------------------------------------------------------------------------------- */

static size_t padded(size_t n) { return (n + QOBS_OPTIMAL_LANES - 1) / QOBS_OPTIMAL_LANES * QOBS_OPTIMAL_LANES; }

/* True if each group has its own candidates. */
static bool around_range(const struct optimal_params *p)
{
    return p->scales == OPTIMAL_BF16 || p->scales == OPTIMAL_F16;
}

static size_t most_steps(const struct optimal_params *p)
{
    return p->e2m1 ? 7 : ((size_t)1 << p->num_bits) - (p->symmetric ? (size_t)1 << (p->num_bits - 1) : 1);
}

/* The arrays of the scratch. */
struct arrays {
    size_t *count;             /* of candidates, if they are the same for all groups */
    float *scale;              /* candidates */
    double *error;             /* on the curve */
    struct optimal_steps *steps;
    float *large[2];           /* magnitudes above the thresholds, of positive and of negative elements */
    double *large_weight[2];
    void *curve;
};

/* Block after block of a scratch; without one (NULL) only their size is counted. */
struct blocks {
    unsigned char *start;
    size_t used;
};

static void *take(struct blocks *b, size_t size)
{
    void *const block = b->start ? b->start + b->used : NULL;
    b->used += (size + 63) / 64 * 64;
    return block;
}

static size_t lay_out(const struct optimal_params *p, size_t n, void *scratch, struct arrays *a)
{
    struct blocks b = {scratch, 0};
    const size_t room = padded(n);
    a->count = take(&b, sizeof *a->count);
    a->scale = take(&b, OPTIMAL_MOST_SCALES * sizeof *a->scale);
    a->error = take(&b, (OPTIMAL_MOST_SCALES + 8) * sizeof *a->error);
    a->steps = take(&b, sizeof *a->steps);
    for (int side = 0; side < 2; side++) {
        a->large[side] = take(&b, room * sizeof(float));
        a->large_weight[side] = take(&b, room * sizeof(double));
    }
    a->curve = take(&b, QOBS_OPTIMAL_CURVE_SCRATCH(OPTIMAL_MOST_SCALES, most_steps(p)));
    return b.used;
}

size_t qobs_optimal_scratch(const struct optimal_params *p, size_t n)
{
    struct arrays unused;
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
    struct arrays a;
    lay_out(p, n, scratch, &a);
    make_steps(p, a.steps);
    if (!around_range(p))
        *a.count = qobs_optimal_scales(p, 1, global_scale, a.scale);
}

/* ---- One group --------------------------------------------------------------------------------------------------- */

struct search {
    const struct kernel_table *kernels;
    const struct optimal_params *params;
    const struct optimal_group *group;
    struct optimal_moments moments;
    struct optimal_range range;
    struct arrays arrays;
    size_t count;              /* of candidates */
    size_t large[2];           /* elements above the thresholds */
    double threshold[2];       /* a scale whose limit is below this magnitude of one side costs more than the bound */
    double steps;              /* from the smallest to the largest integer */
    struct contest *contest;
};

/* fmax and ceil are calls on some machines. */
static double larger(double a, double b) { return a > b ? a : b; }

static int32_t ceiling(double x) { return (int32_t)x + ((double)(int32_t)x < x); }

static double amax_of(const struct search *s) { return larger((double)s->range.hi, -(double)s->range.lo); }

static double limit_of(const struct optimal_params *p, int side)
{
    return p->e2m1 ? 6 : side ? (double)-p->quant_min : (double)p->quant_max;
}

/* The index of the largest candidate that is not above s, or 0. */
static size_t candidate_below(const struct search *s, double scale)
{
    size_t low = 0, high = s->count;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if ((double)s->arrays.scale[middle] <= scale)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A candidate that is nearly as good as the best, for the bounds: the more bits, the less is clipped. */
static void decide_guess(struct search *s)
{
    static const float share[] = {1, 1, 0.62f, 0.76f, 0.88f, 0.94f, 0.97f, 0.99f, 1};
    const struct optimal_params *p = s->params;
    const double wanted = (double)(s->range.scale * (p->e2m1 ? 0.94f : share[p->num_bits]));
    const float scale = s->arrays.scale[candidate_below(s, wanted)];
    const double middle = ((double)s->range.lo + (double)s->range.hi) / 2;
    double z = p->symmetric ? 0 : rint((p->quant_min + p->quant_max) / 2.0 - middle / (double)scale);
    z = z < p->quant_min ? p->quant_min : z > p->quant_max ? p->quant_max : z;
    qobs_contest_decide(s->contest, scale, (int32_t)z);
}

/* ---- Thresholds -------------------------------------------------------------------------------------------------- */

/* Copies the elements of a side whose magnitude is nearly `least` or above; returns how many. */
static size_t gather_large(const struct search *s, bool negative, float least, float *w, double *h)
{
    enum { PART = 1024 };
    const struct optimal_group *g = s->group;
    size_t n = 0;
    for (size_t from = 0; from < g->n; from += PART) {
        uint32_t index[PART + QOBS_OPTIMAL_LANES];
        const size_t left = g->n - from < PART ? g->n - from : PART;
        const size_t found = s->kernels->optimal_large(g->w + from, left, negative, least, index);
        for (size_t i = 0; i < found; i++, n++) {
            w[n] = fabsf(g->w[from + index[i]]);
            h[n] = g->h[from + index[i]];
        }
    }
    for (size_t i = n; i < padded(n); i++)
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

/* Finds a threshold from below: beyond it the elements of the side cost more than the bound. */
static void find_threshold(struct search *s, int side)
{
    enum { HALVINGS = 5 };
    const float top = side ? -s->range.lo : s->range.hi;
    const float share = s->params->num_bits > 3 || s->params->e2m1 ? 0.5f : s->params->num_bits > 2 ? 0.35f : 0.2f;
    float *const w = s->arrays.large[side], low = top * share, high = top;
    double *const h = s->arrays.large_weight[side], beyond[2];
    s->threshold[side] = 0;
    s->large[side] = gather_large(s, side, low, w, h);
    s->kernels->optimal_beyond(w, h, s->large[side], low, 0, beyond);
    if (!(beyond[0] > s->contest->bound)) {
        s->large[side] = gather_large(s, side, 0, w, h);
        sort(w, h, s->large[side]);
        return;
    }
    for (int i = 0; i < HALVINGS; i++) {
        const float middle = (low + high) / 2;
        s->kernels->optimal_beyond(w, h, s->large[side], middle, 0, beyond);
        if (beyond[0] > s->contest->bound)
            low = middle;
        else
            high = middle;
    }
    size_t n = 0; /* smaller ones are not clipped by any scale that is left */
    for (size_t i = 0; i < s->large[side]; i++) {
        const float x = w[i];
        const double weight = h[i];
        w[n] = x;
        h[n] = weight;
        n += x > low;
    }
    for (size_t i = n; i < padded(n); i++)
        w[i] = 0, h[i] = 0;
    s->large[side] = n;
    sort(w, h, n);
    s->threshold[side] = (double)low * (1 - 0x1p-20);
}

/* No scale below it can win. */
static double least_scale(const struct search *s)
{
    const double *t = s->threshold, up = limit_of(s->params, 0), down = limit_of(s->params, 1);
    if (!s->params->symmetric)
        return (t[0] + t[1]) / s->steps;
    const double one = larger(t[0] / up, t[1] / down), other = larger(t[0] / down, t[1] / up);
    return s->params->signed_scale && other < one ? other : one;
}

/* How far an error of the curve may be off: elements that round differently, and rounding of the sums. */
static double slack_of(const struct search *s, double scale)
{
    const double shifted = s->params->symmetric ? 0 : 0x1p-22 * (1 << s->params->num_bits);
    return 0x1p-19 * scale * s->moments.magnitude + shifted * scale * scale * s->moments.weight +
           1e-13 * s->moments.energy;
}

/* ---- One scale after the other ----------------------------------------------------------------------------------- */

/* The index of a candidate from which on none can win: twice a scale that clips nothing, or all elements become 0.
 * Halves of e4m3 numbers are candidates from number 16 on. */
static size_t direct_end(const struct search *s)
{
    const struct optimal_params *p = s->params;
    const double amax = amax_of(s);
    const size_t zero = candidate_below(s, 4 * amax) + 2;
    size_t end = zero < s->count ? zero : s->count;
    if (p->scales != OPTIMAL_E4M3 && p->scales != OPTIMAL_E8M0)
        return end;
    const double unclipped = !p->symmetric ? amax
                                           : larger((double)s->range.hi / limit_of(p, 0),
                                                    -(double)s->range.lo / limit_of(p, 1));
    const size_t k = candidate_below(s, unclipped) + 1, step = p->scales == OPTIMAL_E8M0 ? 1 : 8;
    const size_t doubled = k < step ? 2 * step : k + step;
    return doubled + 1 < end ? doubled + 1 : end;
}

/* True if a scale clips more than the bound, whatever the zero point. Smaller scales do, too. */
static bool clips_too_much(const struct search *s, float scale)
{
    const struct optimal_params *p = s->params;
    if (!p->symmetric || p->signed_scale)
        return (double)scale < least_scale(s);
    const float above = scale * (1 + 0x1p-20f); /* the limits are rounded */
    double beyond[2];
    s->kernels->optimal_beyond(s->group->w, s->group->h, s->group->n, above * (float)limit_of(p, 0),
                               above * (float)limit_of(p, 1), beyond);
    return beyond[0] + beyond[1] > s->contest->bound;
}

static void try_scale(struct search *s, float scale)
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
static double narrow(const struct search *s, float *w, float *h)
{
    const struct optimal_group *g = s->group;
    const double factor = amax_of(s) / s->moments.magnitude;
    s->kernels->optimal_narrow(g->w, g->h, g->n, factor, w, h);
    return factor;
}

/* Enters QOBS_OPTIMAL_SCALES scales from number k on, with their errors in float. */
static void enter_scales(struct search *s, size_t k, const float *w, const float *h, double factor)
{
    float scale[QOBS_OPTIMAL_SCALES], error[QOBS_OPTIMAL_SCALES];
    for (size_t i = 0; i < QOBS_OPTIMAL_SCALES; i++)
        scale[i] = s->arrays.scale[k + i < s->count ? k + i : s->count - 1];
    s->kernels->optimal_nearly(w, h, s->group->n, scale, error);
    for (size_t i = 0; i < QOBS_OPTIMAL_SCALES && k + i < s->count; i++) {
        const double nearly = (double)error[i] / factor, rounding = sqrt(nearly * s->moments.energy);
        qobs_contest_enter(s->contest, scale[i], 0, nearly,
                           slack_of(s, (double)scale[i]) + 0x1p-19 * (nearly + rounding));
    }
}

/* e2m1 has one zero point and, under e4m3, few scales. */
static void search_e2m1(struct search *s)
{
    const size_t end = direct_end(s), n = s->group->n;
    const float amax = (float)amax_of(s);
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

static void search_directly(struct search *s)
{
    const size_t start = candidate_below(s, (double)s->contest->best.scale), end = direct_end(s);
    if (!s->params->symmetric || s->params->signed_scale)
        for (int side = 0; side < 2; side++)
            find_threshold(s, side);
    for (size_t k = start; k < end; k++)
        try_scale(s, s->arrays.scale[k]);
    for (size_t k = start; k-- > 0 && !clips_too_much(s, s->arrays.scale[k]);)
        try_scale(s, s->arrays.scale[k]);
}

/* ---- All scales at once ------------------------------------------------------------------------------------------ */

/* A limit below which one of the two largest elements of a side costs more than `budget`: beyond it an element adds the
 * square of the distance to that of at most half a scale. */
static double least_cap(const struct search *s, int side, double scale, double budget)
{
    enum { LARGEST = 2 };
    const float *const w = s->arrays.large[side];
    const double *const h = s->arrays.large_weight[side], free = scale / 2, end = s->steps * scale + free;
    double least = s->threshold[side]; /* smaller elements are not in the lists */
    for (size_t i = 0; i < s->large[side] && i < LARGEST; i++) {
        const double limit = (double)w[i] - sqrt(budget / h[i] + free * free);
        least = (double)w[i] <= end && limit > least ? limit : least;
    }
    return least / scale;
}

static void add_excess(const struct search *s, double scale, const int32_t lowest[2], size_t caps,
                       double excess[2][QOBS_OPTIMAL_STEPS])
{
    for (int side = 0; side < 2; side++)
        s->kernels->optimal_excess(s->arrays.large[side], s->arrays.large_weight[side], s->large[side], scale,
                                   (double)s->arrays.steps->negative, (double)lowest[side], caps, excess[side]);
}

/* Enters both signs of a scale whose error without limits is `free`. */
static void enter_signs(struct search *s, float scale, double free, double slack)
{
    const struct optimal_params *p = s->params;
    const double wide = (double)scale, *t = s->threshold, up = limit_of(p, 0) * wide, down = limit_of(p, 1) * wide;
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
static void enter_zero_points(struct search *s, float scale, double free, double slack)
{
    const struct optimal_params *p = s->params;
    const int32_t all = p->quant_max - p->quant_min;
    const double wide = (double)scale, budget = s->contest->bound - free + slack;
    double excess[2][QOBS_OPTIMAL_STEPS];
    const double up = least_cap(s, 0, wide, budget), down = least_cap(s, 1, wide, budget), margin = 0x1p-20;
    if (!(up + down <= all + margin))
        return;
    const int32_t lowest[2] = {ceiling(up - margin * up), ceiling(down - margin * down)};
    if (lowest[0] + lowest[1] > all)
        return;
    const size_t caps = (size_t)(all - lowest[0] - lowest[1] + 1);
    add_excess(s, wide, lowest, caps, excess);
    for (size_t c = 0; c < caps; c++)
        qobs_contest_enter(s->contest, scale, p->quant_min + lowest[1] + (int32_t)c,
                           free + excess[0][caps - 1 - c] + excess[1][c], slack);
}

static void search_curve(struct search *s)
{
    const struct optimal_params *p = s->params;
    for (int side = 0; side < 2; side++)
        find_threshold(s, side);
    const size_t from = candidate_below(s, least_scale(s)), count = s->count - from;
    const float *const scale = s->arrays.scale + from;
    s->kernels->optimal_curve(s->arrays.steps, s->group->w, s->group->h, s->group->n, bits_of_float(*scale) >> 16, count,
                              s->moments.energy, s->arrays.error, s->arrays.curve);
    const double limit = s->contest->bound + slack_of(s, (double)scale[count - 1]); /* no slack is larger */
    const size_t stride = p->symmetric ? 1 : 4; /* the first scales lower the bound for the others */
    for (size_t first = 0, k = 0; first < stride && k < count; k = k + stride < count ? k + stride : ++first) {
        if (s->arrays.error[k] > limit)
            continue;
        const double slack = slack_of(s, (double)scale[k]);
        if (s->arrays.error[k] - slack > s->contest->bound)
            continue;
        if (!p->symmetric)
            enter_zero_points(s, scale[k], s->arrays.error[k], slack);
        else if (p->signed_scale)
            enter_signs(s, scale[k], s->arrays.error[k], slack);
        else
            qobs_contest_enter(s->contest, scale[k], 0, s->arrays.error[k], slack);
    }
    qobs_contest_finish(s->contest);
}

/* True if candidates are numbers with 8 significant bits without a gap. */
static bool is_without_gaps(const struct search *s)
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
    struct search s = {.kernels = kernels, .params = p, .group = g};
    kernels->optimal_moments(g->w, g->h, g->n, &s.moments);
    s.range = qobs_optimal_range_of(p, s.moments.lo, s.moments.hi);
    if (!qobs_optimal_is_searched(p, &s.range, g, choice))
        return;
    lay_out(p, g->n, scratch, &s.arrays);
    s.steps = (double)((1 << p->num_bits) - 1);
    s.count = *s.arrays.count;
    if (around_range(p))
        s.count = qobs_optimal_scales(p, s.range.scale, g->global_scale, s.arrays.scale);
    struct contest contest;
    qobs_contest_begin(&contest, kernels, p, g);
    s.contest = &contest;
    if (s.count == 0) /* f16 has no number there */
        s.arrays.scale[s.count++] = s.range.scale < 1 ? 0x1p-24f : 65504;
    const bool curve = is_without_gaps(&s);
    if (!p->e2m1 || curve)
        decide_guess(&s);
    if (p->e2m1 && !curve)
        search_e2m1(&s);
    else if (curve)
        search_curve(&s);
    else
        search_directly(&s);
    *choice = contest.best;
    choice->minmax_error = kernels->optimal_error(&contest.number, g->w, g->h, g->n, s.range.scale,
                                                  (float)qobs_optimal_zero_point(p, &s.range));
    choice->energy = s.moments.energy;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The best candidate of one group. Bounds leave out scales that cannot win:
 *   clipping   the error is at least sum h * max(0, |w| - limit * scale)^2, which grows as the scale falls
 *   free       limits only add to the error: that of quantized numbers without limits is a bound, of every zero point
 *   doubling   twice a scale that clips nothing is not better, because its numbers are a part of the others
 * Errors without limits are those of a curve over all scales (optimal_curve of the kernels). */

#include "optimal/optimal.h"

/* Candidates whose errors are known up to some slack. Those that may win are decided by their errors, which are then
 * computed as the definition says. The winner does not depend on the order or the slack. */
enum { PENDING_CANDIDATES = 64 };

struct candidate_bound {
    float scale;
    int32_t zero_point;
    double lowest; /* the error is not below it */
};

/* The arrays of the scratch. */
struct group_arrays {
    struct scale_list *fixed; /* the candidates of all groups, if they are the same */
    float *scale;
    double *error; /* on the curve */
    struct optimal_steps *steps;
    float *large[2]; /* magnitudes above the thresholds, of positive and of negative elements */
    double *large_weight[2];
    void *curve;
};

struct group_search {
    const struct kernel_table *kernels;
    const struct optimal_params *params;
    const struct optimal_group *group;
    struct optimal_number number;
    struct optimal_moments sums;
    struct optimal_range range;
    struct group_arrays arrays;
    struct scale_list scales;
    size_t large[2];     /* elements above the thresholds */
    double threshold[2]; /* a scale whose limit is below this magnitude of one side costs more than the bound */

    struct optimal_choice best; /* of the candidates that have been decided */
    double bound;               /* the lowest error is not above it */
    size_t pending;
    struct candidate_bound pending_bounds[PENDING_CANDIDATES];
};

/* fmax and ceil are calls on some machines. */
static double larger(double a, double b) { return a > b ? a : b; }

static int32_t ceiling(double x) { return (int32_t)x + ((double)(int32_t)x < x); }

static double amax_of(const struct group_search *s) { return larger((double)s->range.hi, -(double)s->range.lo); }

static double limit_of(const struct optimal_params *p, int side)
{
    return p->e2m1 ? 6 : side ? (double)-p->quant_min : (double)p->quant_max;
}

/* The elements and their padding. */
static size_t padded_to_lanes(size_t n)
{
    return (n + QOBS_OPTIMAL_LANES - 1) / QOBS_OPTIMAL_LANES * QOBS_OPTIMAL_LANES;
}

/* ---- What all groups have in common ------------------------------------------------------------------------------ */

static size_t most_steps(const struct optimal_params *p)
{
    return p->e2m1 ? 7 : ((size_t)1 << p->num_bits) - (p->symmetric ? (size_t)1 << (p->num_bits - 1) : 1);
}

static size_t lay_out(const struct optimal_params *p, size_t n, void *scratch, struct group_arrays *a)
{
    struct array_layout l = {scratch, 0};
    const size_t capacity = padded_to_lanes(n);
    a->fixed = qobs_layout_add(&l, sizeof *a->fixed);
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
    if (!optimal_around_range(p))
        *a.fixed = qobs_optimal_scales(p, 1, global_scale, a.scale);
}

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

/* True if a goes before b on equal errors. */
static bool goes_before(float a, int32_t zero_a, float b, int32_t zero_b)
{
    const float size_a = fabsf(a), size_b = fabsf(b);
    if (size_a != size_b)
        return size_a < size_b;
    return a != b ? a > 0 : zero_a < zero_b;
}

/* Computes the error of a candidate now. */
static void evaluate(struct group_search *s, float scale, int32_t zero_point)
{
    const struct optimal_group *g = s->group;
    struct optimal_choice *best = &s->best;
    const double error = s->kernels->optimal_error(&s->number, g->w, g->h, g->n, scale, (float)zero_point);
    if (error < best->error ||
        (error == best->error && goes_before(scale, zero_point, best->scale, best->zero_point))) {
        best->error = error;
        best->scale = scale;
        best->zero_point = zero_point;
    }
    s->bound = error < s->bound ? error : s->bound;
}

/* Decides what is pending. s->best is then the winner. */
static void finish(struct group_search *s)
{
    for (size_t i = 0; i < s->pending; i++)
        if (s->pending_bounds[i].lowest <= s->bound)
            evaluate(s, s->pending_bounds[i].scale, s->pending_bounds[i].zero_point);
    s->pending = 0;
}

/* Adds a candidate whose error is from `nearly` - slack to `nearly` + slack. */
static void add(struct group_search *s, float scale, int32_t zero_point, double nearly, double slack)
{
    const double lowest = nearly - slack, most = nearly + slack;
    if (lowest > s->bound)
        return;
    s->bound = most < s->bound ? most : s->bound;
    if (s->pending == PENDING_CANDIDATES)
        finish(s);
    s->pending_bounds[s->pending++] = (struct candidate_bound){scale, zero_point, lowest};
}

/* ---- Bounds ------------------------------------------------------------------------------------------------------ */

/* Copies the elements of a side whose magnitude is nearly `lower` or above; returns how many. */
static size_t gather_large(const struct group_search *s, bool negative, float lower, float *w, double *h)
{
    const struct optimal_group *g = s->group;
    const float sign = negative ? -1 : 1, least = lower * (1 - 0x1p-19f); /* thresholds are rounded */
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++) {
        const float x = sign * g->w[i];
        w[n] = x;
        h[n] = g->h[i];
        n += x > least;
    }
    for (size_t i = n; i < padded_to_lanes(n); i++)
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

static bool is_above(const struct group_search *s, double clipped)
{
    return clipped > s->bound && clipped > LEAST_CLIPPED;
}

/* Below it too much of the largest elements is clipped by most groups. */
static float low_part(const struct optimal_params *p)
{
    return p->num_bits > 3 || p->e2m1 ? 0.5f : p->num_bits > 2 ? 0.35f : 0.2f;
}

/* Finds a threshold from below: beyond it the elements of the side cost more than the bound. */
static void find_threshold(struct group_search *s, int side)
{
    const float top = side ? -s->range.lo : s->range.hi;
    float *const w = s->arrays.large[side], low = top * low_part(s->params);
    double *const h = s->arrays.large_weight[side], beyond[2];
    s->threshold[side] = 0;
    s->large[side] = gather_large(s, side, low, w, h);
    s->kernels->optimal_beyond(w, h, s->large[side], low, 0, beyond);
    if (!is_above(s, beyond[0])) {
        low = 0;
        s->large[side] = gather_large(s, side, low, w, h);
        s->kernels->optimal_beyond(w, h, s->large[side], low, 0, beyond);
    }
    if (!is_above(s, beyond[0])) {
        sort(w, h, s->large[side]);
        return;
    }
    for (int i = 0; i < TANGENTS && is_above(s, beyond[0]); i++) {
        low += (float)to_bound(beyond[0], beyond[1], s->bound);
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
    s->large[side] = n;
    sort(w, h, n);
}

/* A bound of both sides, for one sign and no zero point. The slope is at most that of the larger limit. */
static double min_symmetric_scale(const struct group_search *s)
{
    const double up = limit_of(s->params, 0), down = limit_of(s->params, 1);
    double scale = (double)(s->range.scale * low_part(s->params));
    for (int i = 0; i < 2; i++) { /* a third takes as much time as it saves */
        double beyond[2];
        s->kernels->optimal_beyond(s->group->w, s->group->h, s->group->n, (float)(up * scale), (float)(down * scale),
                                   beyond);
        if (is_above(s, beyond[0]))
            scale += to_bound(beyond[0], larger(up, down) * beyond[1], s->bound);
        else if (i > 0)
            break;
        else
            scale = 0;
    }
    return scale * (1 - 0x1p-20);
}

/* No scale below it can win. Needs the thresholds, but for symmetric integers of one sign. */
static double min_scale(const struct group_search *s)
{
    const double *t = s->threshold, up = limit_of(s->params, 0), down = limit_of(s->params, 1);
    if (!s->params->symmetric)
        return (t[0] + t[1]) / (double)(s->params->quant_max - s->params->quant_min);
    if (!s->params->signed_scale)
        return min_symmetric_scale(s);
    const double one = larger(t[0] / up, t[1] / down), other = larger(t[0] / down, t[1] / up);
    return other < one ? other : one;
}

/* The largest error of a point of the curve: elements that round differently, and rounding of the sums. */
static double curve_slack(const struct group_search *s, double scale)
{
    const double shifted = s->params->symmetric ? 0 : 0x1p-22 * (1 << s->params->num_bits);
    return 0x1p-19 * scale * s->sums.magnitude + shifted * scale * scale * s->sums.weight + 1e-13 * s->sums.energy;
}

/* ---- One by one, or some at a time ------------------------------------------------------------------------------- */

/* The index of a candidate from which on none can win: twice a scale that clips nothing, or all elements become 0.
 * Halves of e4m3 numbers are candidates from number 16 on. After 6, e2m1 would have 8: up to 7 nothing is clipped. Its
 * numbers at the double scale have even codes, to which ties go, so that rounded quotients change nothing. */
static size_t direct_end(const struct group_search *s)
{
    const struct optimal_params *p = s->params;
    const double amax = amax_of(s);
    const size_t zero = qobs_scale_below(&s->scales, 4 * amax) + 2;
    size_t end = zero < s->scales.count ? zero : s->scales.count;
    if (p->scales != OPTIMAL_E4M3 && p->scales != OPTIMAL_E8M0)
        return end;
    double unclipped = amax;
    if (p->e2m1)
        unclipped = amax / 7;
    else if (p->symmetric)
        unclipped = larger((double)s->range.hi / limit_of(p, 0), -(double)s->range.lo / limit_of(p, 1));
    const size_t k = qobs_scale_below(&s->scales, unclipped) + 1, step = p->scales == OPTIMAL_E8M0 ? 1 : 8;
    const size_t doubled = (k < step ? 2 * step : k + step) + (p->e2m1 ? 0 : 1);
    return doubled < end ? doubled : end;
}

/* True if a scale clips more than the bound, whatever the zero point. Smaller scales do, too. */
static bool clips_too_much(const struct group_search *s, float scale)
{
    const struct optimal_params *p = s->params;
    if (!p->symmetric || p->signed_scale)
        return (double)scale < min_scale(s);
    const float above = scale * (1 + 0x1p-20f); /* the limits are rounded */
    double beyond[2];
    s->kernels->optimal_beyond(s->group->w, s->group->h, s->group->n, above * (float)limit_of(p, 0),
                               above * (float)limit_of(p, 1), beyond);
    return beyond[0] > s->bound;
}

static void try_scale(struct group_search *s, float scale)
{
    const struct optimal_params *p = s->params;
    if (p->symmetric) {
        evaluate(s, scale, 0);
        if (p->signed_scale)
            evaluate(s, -scale, 0);
        return;
    }
    for (int32_t z = p->quant_min; z <= p->quant_max; z++)
        evaluate(s, scale, z);
}

/* Magnitudes and weights in float, of which weight * magnitude sums up to the largest magnitude: a weight is then
 * neither too large nor too small for float where it matters. Returns the factor. */
static double narrow(const struct group_search *s, float *w, float *h)
{
    const struct optimal_group *g = s->group;
    const double factor = amax_of(s) / s->sums.magnitude, most = 1e30;
    for (size_t i = 0; i < padded_to_lanes(g->n); i++) {
        const double weight = g->h[i] * factor;
        w[i] = fabsf(g->w[i]);
        h[i] = (float)(weight < most ? weight : most);
    }
    return factor;
}

/* A part of the errors in float and of the energy. Rounding of (q * scale - w)^2 is in proportion to
 * sqrt(error * energy), which is below their mean. */
#define NARROW_SLACK 0x1p-19

/* Adds a scale with its error in float. */
static void add_scale(struct group_search *s, float scale, double nearly)
{
    const double rounding = (nearly + s->sums.energy) / 2;
    const double slack = curve_slack(s, (double)scale) + NARROW_SLACK * (nearly + rounding);
    if (nearly - slack <= s->bound)
        add(s, scale, 0, nearly, slack);
}

/* Errors in float above it belong to scales up to `largest` that cannot win. */
static float largest_error(const struct group_search *s, float largest, double factor)
{
    const double slack = curve_slack(s, (double)largest) + NARROW_SLACK / 2 * s->sums.energy;
    return (float)((s->bound + slack) * (1 + 2 * NARROW_SLACK) * factor * (1 + 0x1p-20));
}

/* Adds QOBS_OPTIMAL_SCALES scales from number k on, with their errors in float; the best of them goes first, because
 * it leaves out most of the others. */
static void add_scales(struct group_search *s, size_t k, const float *w, const float *h, double factor)
{
    const size_t n = s->scales.count - k < QOBS_OPTIMAL_SCALES ? s->scales.count - k : QOBS_OPTIMAL_SCALES;
    float scale[QOBS_OPTIMAL_SCALES], error[QOBS_OPTIMAL_SCALES];
    size_t best = 0;
    for (size_t i = 0; i < QOBS_OPTIMAL_SCALES; i++)
        scale[i] = s->scales.scale[i < n ? k + i : s->scales.count - 1];
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
static void search_e2m1(struct group_search *s)
{
    const size_t end = direct_end(s), n = s->group->n;
    const float amax = (float)amax_of(s);
    float *const w = s->arrays.large[0], *const h = s->arrays.large[1];
    const bool fits = n <= 32 && amax > 1e-12f && amax < 1e12f && s->sums.magnitude > 0;
    const double factor = fits ? narrow(s, w, h) : 1;
    size_t k = end;
    do {
        const size_t last = k;
        k = k > QOBS_OPTIMAL_SCALES ? k - QOBS_OPTIMAL_SCALES : 0;
        if (fits && s->scales.scale[k] > amax * 0x1p-20f)
            add_scales(s, k, w, h, factor);
        else
            for (size_t i = k; i < last; i++)
                evaluate(s, s->scales.scale[i], 0);
    } while (k > 0 && !clips_too_much(s, s->scales.scale[k - 1]));
    finish(s);
}

static void search_scales(struct group_search *s)
{
    const size_t start = qobs_scale_below(&s->scales, (double)s->best.scale), end = direct_end(s);
    if (!s->params->symmetric || s->params->signed_scale)
        for (int side = 0; side < 2; side++)
            find_threshold(s, side);
    for (size_t k = start; k < end; k++)
        try_scale(s, s->scales.scale[k]);
    for (size_t k = start; k > 0 && !clips_too_much(s, s->scales.scale[k - 1]); k--)
        try_scale(s, s->scales.scale[k - 1]);
}

/* ---- All at once ------------------------------------------------------------------------------------------------- */

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
    const double up = limit_of(p, 0) * wide, down = limit_of(p, 1) * wide;
    const int32_t lowest[2] = {p->quant_max, p->quant_max};
    double excess[2][QOBS_OPTIMAL_STEPS];
    add_excess(s, wide, lowest, 2, excess);
    if (up >= t[0] && down >= t[1])
        add(s, scale, 0, free + excess[0][0] + excess[1][1], slack);
    if (down >= t[0] && up >= t[1])
        add(s, -scale, 0, free + excess[0][1] + excess[1][0], slack);
}

/* Adds zero points in the same way. The limits of positive elements are quant_max - z, those of negative ones
 * z - quant_min. */
static void add_zero_points(struct group_search *s, float scale, double free, double slack)
{
    const struct optimal_params *p = s->params;
    const int32_t all = p->quant_max - p->quant_min;
    const double wide = (double)scale;
    double excess[2][QOBS_OPTIMAL_STEPS];
    const double up = s->threshold[0] / wide, down = s->threshold[1] / wide, margin = 0x1p-20;
    if (!(up + down <= all + margin))
        return;
    const int32_t lowest[2] = {ceiling(up - margin * up), ceiling(down - margin * down)};
    if (lowest[0] + lowest[1] > all)
        return;
    const size_t caps = (size_t)all + 1 - (size_t)lowest[0] - (size_t)lowest[1];
    add_excess(s, wide, lowest, caps, excess);
    for (size_t c = 0; c < caps; c++)
        add(s, scale, p->quant_min + lowest[1] + (int32_t)c, free + excess[0][caps - 1 - c] + excess[1][c], slack);
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
    const double slack = curve_slack(s, (double)scale);
    if (error - slack > s->bound)
        return;
    if (!s->params->symmetric)
        add_zero_points(s, scale, error, slack);
    else if (s->params->signed_scale)
        add_signs(s, scale, error, slack);
    else
        add(s, scale, 0, error, slack);
}

static void search_curve(struct group_search *s)
{
    const struct optimal_params *p = s->params;
    for (int side = 0; side < 2 && (!p->symmetric || p->signed_scale); side++)
        find_threshold(s, side);
    const size_t from = qobs_scale_below(&s->scales, min_scale(s)), count = s->scales.count - from;
    const float *const scale = s->scales.scale + from;
    double *const error = s->arrays.error, lowest[OPTIMAL_MOST_SCALES / STRETCH + 1];
    s->kernels->optimal_curve(s->arrays.steps, s->group->w, s->group->h, s->group->n, bits_of_float(*scale) >> 16,
                              count, s->sums.energy, error, s->arrays.curve);
    const double most = curve_slack(s, (double)scale[count - 1]); /* no slack is larger */
    const double min_error = find_lowest(error, count, lowest) + 2 * most;
    double limit = s->bound + most;
    if (p->symmetric && !p->signed_scale) /* these errors are not bounds: the lowest of them leaves few others */
        limit = min_error < limit ? min_error : limit;
    const size_t stride = p->symmetric ? 1 : 4; /* the first scales lower the bound for the others */
    for (size_t first = 0; first < stride; first++)
        for (size_t at = 0; at < count; at += STRETCH)
            for (size_t k = at + first; lowest[at / STRETCH] <= limit && k < at + STRETCH; k += stride)
                if (error[k] <= limit)
                    add_candidate(s, scale[k], error[k]);
    finish(s);
}

/* ---- One group ----------------------------------------------------------------------------------- */

/* A candidate that is nearly as good as the best, for the bounds: the more bits, the less is clipped. */
static void decide_guess(struct group_search *s)
{
    static const float part[] = {1, 1, 0.62f, 0.76f, 0.88f, 0.94f, 0.97f, 0.99f, 1};
    const struct optimal_params *p = s->params;
    const double wanted = (double)(s->range.scale * (p->e2m1 ? 0.94f : part[p->num_bits]));
    const float scale = s->scales.scale[qobs_scale_below(&s->scales, wanted)];
    const double middle = ((double)s->range.lo + (double)s->range.hi) / 2;
    double z = p->symmetric ? 0 : rint((p->quant_min + p->quant_max) / 2.0 - middle / (double)scale);
    z = z < p->quant_min ? p->quant_min : z > p->quant_max ? p->quant_max : z;
    evaluate(s, scale, (int32_t)z);
}

void qobs_optimal_group(const struct kernel_table *kernels, const struct optimal_params *p,
                        const struct optimal_group *g, void *scratch, struct optimal_choice *choice)
{
    struct group_search s;
    kernels->optimal_moments(g->w, g->h, g->n, &s.sums);
    s.range = qobs_optimal_range_of(p, s.sums.lo, s.sums.hi);
    if (!qobs_optimal_is_searched(p, &s.range, g, choice))
        return;
    s.kernels = kernels;
    s.params = p;
    s.group = g;
    s.number = qobs_optimal_number(p);
    s.best = (struct optimal_choice){.error = HUGE_VAL, .energy = s.sums.energy};
    s.bound = HUGE_VAL;
    s.pending = 0;
    lay_out(p, g->n, scratch, &s.arrays);
    s.scales = *s.arrays.fixed;
    if (optimal_around_range(p))
        s.scales = qobs_optimal_scales(p, s.range.scale, g->global_scale, s.arrays.scale);
    const bool on_curve = optimal_around_range(p) && s.scales.lattice.exact;
    if (on_curve || !p->e2m1)
        decide_guess(&s);
    if (on_curve)
        search_curve(&s);
    else if (p->e2m1)
        search_e2m1(&s);
    else
        search_scales(&s);
    *choice = s.best;
    choice->minmax_error =
        kernels->optimal_error(&s.number, g->w, g->h, g->n, s.range.scale, (float)qobs_optimal_zero_point(p, &s.range));
}

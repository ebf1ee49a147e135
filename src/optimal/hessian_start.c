/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The start of the search by a Hessian: each group gets the scale with its smallest error, without the other groups. */
#include <math.h>
#include <string.h>

#include "optimal/hessian_search.h"
#include "optimal/optimal_group.h"

struct hessian_scales qobs_hessian_scales_of(const struct hessian_tile *t, const float *w, size_t n)
{
    if (t->fixed_scales)
        return qobs_hessian_scales(t->params, t->fixed_scales, t->fixed_count);
    const struct optimal_group group = {.w = w, .n = n, .global_scale = t->global_scale};
    const struct optimal_range range = qobs_optimal_range(t->params, &group);
    const size_t count = qobs_optimal_scales(t->params, range.scale, t->global_scale, t->scales);
    return qobs_hessian_scales(t->params, t->scales, count);
}

void qobs_hessian_multiply(const struct hessian_tile *t, const double *x, int64_t from, const double *h, int64_t n,
                           int64_t k, bool add, double *out)
{
    const size_t span = (size_t)qobs_hessian_span(t->block), padded = (size_t)t->block->padded;
    double *const to = out + k * t->block->padded;
    for (size_t r = 0; r < (size_t)t->rows && !add; r++)
        memset(to + r * span, 0, padded * sizeof *to);
    t->search->kernels->hessian_product(x + from, span, (size_t)t->rows, h, padded, (size_t)n, padded, to, span);
}

static void residual(const struct hessian_tile *t, const float *w, int64_t n, float scale, int zero_point, double *e)
{
    t->search->kernels->hessian_residual(&t->number, w, (size_t)n, scale, (float)zero_point, e);
}

static double dot_of_floats(const float *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static void store(const struct hessian_tile *t, int64_t r, int64_t k, const struct optimal_choice *c)
{
    const size_t q = (size_t)(t->qparam + r * t->stride + k);
    t->scale[r * t->block->groups + k] = c->scale;
    t->result->scale[q] = qobs_optimal_stored(t->params, c->scale, t->global_scale);
    t->result->zero_point[q] = c->zero_point;
    t->result->error[q] = c->error;
    t->result->minmax_error[q] = c->minmax_error;
    t->result->energy[q] = c->energy;
}

static bool is_finite(const float *w, int64_t n)
{
    bool finite = true;
    for (int64_t i = 0; i < n; i++)
        finite &= isfinite(w[i]) != 0;
    return finite;
}

/* True if H says something about an element other than 0; `h` is its diagonal, `padded` + 1 apart. */
static bool is_seen(const float *w, int64_t n, const double *h, int64_t padded)
{
    bool seen = false;
    for (int64_t i = 0; i < n; i++)
        seen |= w[i] != 0 && h[i * (padded + 1)] > 0;
    return seen;
}

static bool has_importance(const struct hessian_tile *t, int64_t k, int64_t n)
{
    bool any = false;
    for (int64_t i = 0; i < n; i++)
        any |= t->importance[k * t->block->group + i] > 0;
    return any;
}

/* Decides groups without H: those that are not finite or all 0, and those that no activation has reached, whose errors
 * count alike. Writes the range of the others. */
static bool is_live(struct hessian_tile *t, int64_t r, int64_t k, float *w, int64_t n, bool reached,
                    struct optimal_range *range)
{
    const struct optimal_group group = {w, t->ones, (size_t)n, t->global_scale};
    struct optimal_choice choice = {.scale = NAN, .error = NAN, .minmax_error = NAN, .energy = NAN};
    if (!is_finite(w, n)) {
        store(t, r, k, &choice);
        memset(w, 0, (size_t)n * sizeof *w);
        return false;
    }
    *range = qobs_optimal_range(t->params, &group);
    if (!qobs_optimal_is_searched(t->params, range, &group, &choice)) {
        store(t, r, k, &choice);
        return false;
    }
    if (reached && is_seen(w, n, qobs_hessian_own(t->block, k), t->block->padded))
        return true;
    qobs_optimal_group(t->search->kernels, t->params, &group, t->scratch, &choice);
    store(t, r, k, &choice);
    return false;
}

/* The zero point that the diagonal of H alone chooses. */
static int centre_of(struct hessian_tile *t, const float *w, int64_t n, const double *h)
{
    double *const diagonal = t->workspace.u; /* which the search of the group fills later */
    struct optimal_choice choice;
    for (int64_t i = 0; i < n; i++)
        diagonal[i] = h[i * (t->block->padded + 1)];
    for (int64_t i = n; i % OPTIMAL_PADDING != 0; i++)
        diagonal[i] = 0;
    const struct optimal_group group = {w, diagonal, (size_t)n, t->global_scale};
    qobs_optimal_group(t->search->kernels, t->params, &group, t->scratch, &choice);
    return choice.zero_point;
}

static int limited(const struct optimal_params *p, int z)
{
    return z < p->quant_min ? p->quant_min : z > p->quant_max ? p->quant_max : z;
}

static float amax_of(const struct optimal_range *r) { return -r->lo > r->hi ? -r->lo : r->hi; }

/* The facts about a group before its search. */
struct prospect {
    struct optimal_range range;
    double energy;
    int centre, first, last; /* zero points */
    double known;            /* error of a candidate */
};

/* Writes the errors of the scale of the range. t->g and the range of group k must be set. */
static void look(struct hessian_tile *t, int64_t r, int64_t k, int64_t n, struct prospect *look)
{
    const struct optimal_params *p = t->params;
    const size_t at = (size_t)(r * qobs_hessian_span(t->block) + k * t->block->padded);
    const float *const w = t->w + at;
    const int centre = p->symmetric ? 0 : centre_of(t, w, n, qobs_hessian_own(t->block, k));
    const int radius = p->symmetric ? 0 : p->zero_point_radius;
    look->energy = dot_of_floats(w, t->g + at, n);
    look->first = p->symmetric ? 0 : limited(p, centre - radius);
    look->last = p->symmetric ? 0 : limited(p, centre + radius);
    look->centre = centre;
    residual(t, w, n, look->range.scale, qobs_optimal_zero_point(p, &look->range), t->other + at);
}

/* Writes the errors of the candidate next to the scale of the range. */
static void look_near(struct hessian_tile *t, int64_t r, int64_t k, int64_t n, const struct prospect *look)
{
    const size_t at = (size_t)(r * qobs_hessian_span(t->block) + k * t->block->padded);
    const struct hessian_scales scales = qobs_hessian_scales_of(t, t->w + at, (size_t)n);
    const size_t near = qobs_hessian_scale_below(&scales, (double)look->range.scale);
    residual(t, t->w + at, n, scales.scale[near], look->centre, t->e + at);
}

/* Writes the errors of the choice. */
static void choose(struct hessian_tile *t, int64_t r, int64_t k, int64_t n, const struct prospect *look)
{
    const struct optimal_params *p = t->params;
    const size_t at = (size_t)(r * qobs_hessian_span(t->block) + k * t->block->padded);
    const float *const w = t->w + at;
    const struct hessian_scales scales = qobs_hessian_scales_of(t, w, (size_t)n);
    const struct hessian_group group = {
        .w = w,
        .n = (size_t)n,
        .h = qobs_hessian_own(t->block, k),
        .columns = (size_t)t->block->padded,
        .h_stride = (size_t)t->block->padded,
        .g = t->g + at,
        .constant = look->energy,
        .first = look->first,
        .last = look->last,
        .lowest = qobs_hessian_lowest(p, &scales, w, (size_t)n, t->g + at, NULL, t->largest, look->energy,
                                      look->known - look->energy, look->first, look->last),
    };
    const struct hessian_choice best =
        qobs_hessian_group(t->search->kernels, p, t->levels, &scales, &group, &t->workspace);
    const float scale = best.negative ? -scales.scale[best.index] : scales.scale[best.index];
    const struct optimal_choice choice = {
        .scale = scale, .zero_point = best.zero_point, .energy = group.constant};
    store(t, r, k, &choice);
    residual(t, w, n, scale, best.zero_point, t->e + at);
}

/* Groups that H does not decide still have errors, which those of other groups meet. */
static void leave(struct hessian_tile *t, int64_t r, int64_t k, int64_t n)
{
    const size_t at = (size_t)(r * qobs_hessian_span(t->block) + k * t->block->padded);
    const size_t q = (size_t)(t->qparam + r * t->stride + k);
    const float scale = t->scale[r * t->block->groups + k];
    const struct optimal_group plain = {.w = t->w + at, .n = (size_t)n, .global_scale = t->global_scale};
    const struct optimal_range range = qobs_optimal_range(t->params, &plain);
    for (int64_t i = 0; i < n; i++)
        t->e[at + (size_t)i] = t->other[at + (size_t)i] = 0;
    if (range.scale == 0)
        return;
    residual(t, t->w + at, n, scale, t->result->zero_point[q], t->e + at);
    residual(t, t->w + at, n, range.scale, qobs_optimal_zero_point(t->params, &range),
                          t->other + at);
}

/* e^T H e of a row, after product = H e. */
static double error_of(const struct hessian_tile *t, const double *e, int64_t r, int64_t k, int64_t n)
{
    const int64_t at = r * qobs_hessian_span(t->block) + k * t->block->padded;
    return qobs_hessian_dot(e + at, t->product + at, n);
}

/* The error of a candidate of one row. */
static double error_of_scale(struct hessian_tile *t, int64_t r, int64_t k, int64_t n, float scale)
{
    const size_t span = (size_t)qobs_hessian_span(t->block), padded = (size_t)t->block->padded;
    const size_t at = (size_t)r * span + (size_t)k * padded;
    residual(t, t->w + at, n, scale, 0, t->e + at);
    memset(t->product + at, 0, padded * sizeof *t->product);
    t->search->kernels->hessian_product(t->e + at, span, 1, qobs_hessian_own(t->block, k), padded, (size_t)n, padded,
                                        t->product + at, span);
    return error_of(t, t->e, r, k, n);
}

/* The same choice by bounds: H has a factor. Contenders are ascending, and the first of equal errors wins. */
static void choose_by_bounds(struct hessian_tile *t, int64_t r, int64_t k, int64_t n, const struct prospect *look)
{
    const size_t at = (size_t)(r * qobs_hessian_span(t->block) + k * t->block->padded);
    const struct hessian_scales scales = qobs_hessian_scales_of(t, t->w + at, (size_t)n);
    struct hessian_contenders c;
    qobs_hessian_lanes(t->search->kernels, &t->block->factor[k], &scales, t->w + at, amax_of(&look->range),
                       t->global_scale, &c);
    float scale = scales.scale[c.index[0]];
    if (c.count > 1) {
        double least = INFINITY;
        for (size_t i = 0; i < c.count; i++) {
            const double error = error_of_scale(t, r, k, n, scales.scale[c.index[i]]);
            scale = error < least ? scales.scale[c.index[i]] : scale;
            least = error < least ? error : least;
        }
    }
    const struct optimal_choice choice = {.scale = scale, .energy = look->energy};
    store(t, r, k, &choice);
    residual(t, t->w + at, n, scale, 0, t->e + at);
}

/* Groups that bounds do not decide are compared with the error of a candidate that is known before. */
static void choose_groups(struct hessian_tile *t, int64_t k, int64_t n, struct prospect prospect[HESSIAN_TILE])
{
    const int64_t span = qobs_hessian_span(t->block), groups = t->block->groups, first = k * t->block->padded;
    const struct hessian_factor *const factor = t->block->factor ? &t->block->factor[k] : NULL;
    bool left[HESSIAN_TILE] = {false}, any = false;
    for (int64_t r = 0; r < t->rows; r++) {
        left[r] = t->live[r * groups + k];
        if (!left[r])
            continue;
        if (factor) {
            const struct hessian_scales scales = qobs_hessian_scales_of(t, t->w + r * span + first, (size_t)n);
            left[r] = !qobs_hessian_lanes_fit(factor, &scales, amax_of(&prospect[r].range));
        }
        if (left[r])
            look_near(t, r, k, n, &prospect[r]);
        else
            choose_by_bounds(t, r, k, n, &prospect[r]);
        any |= left[r];
    }
    if (!any)
        return;
    qobs_hessian_multiply(t, t->e, first, qobs_hessian_own(t->block, k), n, k, false, t->product);
    for (int64_t r = 0; r < t->rows; r++)
        if (left[r]) {
            prospect[r].known = error_of(t, t->e, r, k, n);
            choose(t, r, k, n, &prospect[r]);
        }
}

static void start_group(struct hessian_tile *t, int64_t k)
{
    const int64_t span = qobs_hessian_span(t->block), groups = t->block->groups;
    const int64_t n = qobs_hessian_group_width(t->block, k), first = k * t->block->padded;
    const double *const h = qobs_hessian_own(t->block, k);
    const bool reached = has_importance(t, k, n);
    struct prospect prospect[HESSIAN_TILE] = {0};
    qobs_hessian_set_largest(t, h, n);
    for (int64_t r = 0; r < t->rows; r++) {
        const int64_t at = r * span + first;
        t->live[r * groups + k] = is_live(t, r, k, t->w + at, n, reached, &prospect[r].range);
        for (int64_t i = 0; i < n; i++)
            t->x[at + i] = (double)t->w[at + i];
    }
    qobs_hessian_multiply(t, t->x, first, h, n, k, false, t->g);
    for (int64_t r = 0; r < t->rows; r++) {
        if (t->live[r * groups + k])
            look(t, r, k, n, &prospect[r]);
        else
            leave(t, r, k, n);
    }
    choose_groups(t, k, n, prospect);
    qobs_hessian_multiply(t, t->e, first, h, n, k, false, t->product);
    for (int64_t r = 0; r < t->rows; r++)
        if (t->live[r * groups + k])
            t->result->error[t->qparam + r * t->stride + k] = error_of(t, t->e, r, k, n);
    qobs_hessian_multiply(t, t->other, first, h, n, k, false, t->product);
    for (int64_t r = 0; r < t->rows; r++)
        if (t->live[r * groups + k])
            t->result->minmax_error[t->qparam + r * t->stride + k] = error_of(t, t->other, r, k, n);
}

void qobs_hessian_start(struct hessian_tile *t)
{
    for (int64_t k = 0; k < t->block->groups; k++)
        start_group(t, k);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search of a tile of rows. Each group gets the scale with its smallest error, without the other groups. Blocks of
 * several groups go on with coordinate descent over the scales of a row: errors of different groups may cancel, as in
 * GPTQ, but weights stay rounded to nearest. */

#include "optimal/hessian_search.h"

/* The place of group k of row r in arrays of numbers, and its qparam. */
static size_t place_of(const struct hessian_tile *t, int64_t r, int64_t k)
{
    return (size_t)(r * qobs_hessian_span(&t->run->block) + k * t->run->block.padded);
}

static size_t qparam_of(const struct hessian_tile *t, int64_t r, int64_t k)
{
    const struct hessian_block *b = &t->run->block;
    return (size_t)((t->row + r) * t->run->row_groups + b->start / b->group + k);
}

/* H of group k: as its own search has it, and as that of its block has it, with another dampening. */
static const double *diagonal_of(const struct hessian_block *b, int64_t k)
{
    return b->diagonal + k * b->group * b->padded;
}

static const double *columns_of(const struct hessian_block *b, int64_t k)
{
    return b->columns + k * b->groups * b->padded * b->padded;
}

static const double *inside(const struct hessian_block *b, int64_t k)
{
    return columns_of(b, k) + k * b->padded * b->padded;
}

/* ---- Arithmetic of groups ---------------------------------------------------------------------------------------- */

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* out = x h for group k of every row: `n` rows of h, from the column `from` of x on. add: to what is there. */
static void multiply(const struct hessian_tile *t, const double *x, int64_t from, const double *h, int64_t n, int64_t k,
                     bool add, double *out)
{
    const size_t span = (size_t)qobs_hessian_span(&t->run->block), padded = (size_t)t->run->block.padded;
    double *const to = out + place_of(t, 0, k);
    for (size_t r = 0; r < (size_t)t->rows && !add; r++)
        memset(to + r * span, 0, padded * sizeof *to);
    t->run->search->kernels->hessian_product(x + from, span, (size_t)t->rows, h, padded, (size_t)n, padded, to, span);
}

/* The errors of a choice, to e of the tile's arrays. */
static void residual(const struct hessian_tile *t, int64_t r, int64_t k, float scale, int zero_point, double *e)
{
    const size_t at = place_of(t, r, k), n = (size_t)qobs_hessian_group_width(&t->run->block, k);
    t->run->search->kernels->hessian_residual(&t->run->number, t->w + at, n, scale, (float)zero_point, e + at);
}

/* e^T of group k times a product with H. */
static double error_of(const struct hessian_tile *t, const double *e, const double *product, int64_t r, int64_t k)
{
    const size_t at = place_of(t, r, k);
    return dot(e + at, product + at, qobs_hessian_group_width(&t->run->block, k));
}

static int limited(const struct optimal_params *p, int z)
{
    return z < p->quant_min ? p->quant_min : z > p->quant_max ? p->quant_max : z;
}

static struct optimal_range range_of(const struct hessian_tile *t, int64_t r, int64_t k)
{
    const size_t n = (size_t)qobs_hessian_group_width(&t->run->block, k);
    const struct optimal_group group = {.w = t->w + place_of(t, r, k), .n = n};
    return qobs_optimal_range(t->run->params, &group);
}

static struct scale_list scales_of(const struct hessian_tile *t, int64_t r, int64_t k)
{
    const struct hessian_run *run = t->run;
    if (run->fixed.count > 0)
        return run->fixed;
    return qobs_optimal_scales(run->params, range_of(t, r, k).scale, run->global_scale, t->scales);
}

struct group_choice {
    float scale;
    int zero_point;
};

/* The best choice among zero points first to last. h: H of the group, t->g: H w, less H e of the other groups.
 * constant: w^T H w, or 0 if only differences of errors matter. */
static struct group_choice best_choice(struct hessian_tile *t, int64_t r, int64_t k, const double *h, double constant,
                                       int first, int last)
{
    const struct hessian_run *run = t->run;
    const size_t padded = (size_t)run->block.padded;
    const struct scale_list scales = scales_of(t, r, k);
    const struct hessian_group group = {.w = t->w + place_of(t, r, k),
                                        .n = (size_t)qobs_hessian_group_width(&run->block, k),
                                        .h = h,
                                        .columns = padded,
                                        .h_stride = padded,
                                        .g = t->g + place_of(t, r, k),
                                        .constant = constant,
                                        .first = first,
                                        .last = last};
    const struct hessian_choice best =
        qobs_hessian_group(run->search->kernels, run->params, &run->levels, &scales, &group, &t->workspace);
    return (struct group_choice){best.negative ? -scales.scale[best.index] : scales.scale[best.index], best.zero_point};
}

/* ---- Groups without the others of their block -------------------------------------------------------------------- */

static void store(const struct hessian_tile *t, int64_t r, int64_t k, const struct optimal_choice *c)
{
    const size_t q = qparam_of(t, r, k);
    struct optimal_result *const result = t->run->result;
    t->scale[r * t->run->block.groups + k] = c->scale;
    result->scale[q] = qobs_optimal_stored(t->run->params, c->scale, t->run->global_scale);
    result->zero_point[q] = c->zero_point;
    result->error[q] = c->error;
    result->minmax_error[q] = c->minmax_error;
    result->energy[q] = c->energy;
}

static bool is_finite(const float *w, int64_t n)
{
    bool finite = true;
    for (int64_t i = 0; i < n; i++)
        finite &= isfinite(w[i]) != 0;
    return finite;
}

/* True if H says something about an element other than 0. */
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
        any |= t->run->importance[t->run->block.start + k * t->run->block.group + i] > 0;
    return any;
}

/* A group before its search. */
struct initial {
    struct optimal_range range;
    double energy;
    int centre, first, last; /* zero points */
};

/* Decides groups without H: those that are not finite or all 0, and those that no activation has reached, whose errors
 * count alike. Writes the range of the others. */
static bool needs_search(struct hessian_tile *t, int64_t r, int64_t k, bool reached, struct optimal_range *range)
{
    const struct hessian_run *run = t->run;
    const int64_t n = qobs_hessian_group_width(&run->block, k);
    float *const w = t->w + place_of(t, r, k);
    const struct optimal_group group = {w, run->ones, (size_t)n, run->global_scale};
    struct optimal_choice choice = {.scale = NAN, .error = NAN, .minmax_error = NAN, .energy = NAN};
    if (!is_finite(w, n)) {
        memset(w, 0, (size_t)n * sizeof *w);
    } else {
        *range = qobs_optimal_range(run->params, &group);
        if (qobs_optimal_is_searched(run->params, range, &group, &choice)) {
            if (reached && is_seen(w, n, diagonal_of(&run->block, k), run->block.padded))
                return true;
            qobs_optimal_group(run->search->kernels, run->params, &group, t->scratch, &choice);
        }
    }
    store(t, r, k, &choice);
    return false;
}

/* The zero point that the diagonal of H alone chooses. */
static int centre_of(struct hessian_tile *t, int64_t r, int64_t k)
{
    const int64_t n = qobs_hessian_group_width(&t->run->block, k);
    const double *const h = diagonal_of(&t->run->block, k);
    double *const diagonal = t->workspace.u; /* which the search of the group fills later */
    struct optimal_choice choice;
    for (int64_t i = 0; i < n; i++)
        diagonal[i] = h[i * (t->run->block.padded + 1)];
    for (int64_t i = n; i % OPTIMAL_PADDING != 0; i++)
        diagonal[i] = 0;
    const struct optimal_group group = {t->w + place_of(t, r, k), diagonal, (size_t)n, t->run->global_scale};
    qobs_optimal_group(t->run->search->kernels, t->run->params, &group, t->scratch, &choice);
    return choice.zero_point;
}

static float amax_of(const struct optimal_range *r) { return -r->lo > r->hi ? -r->lo : r->hi; }

/* Writes the errors of the scale of the range. t->g and the range must be set. */
static void set_initial(struct hessian_tile *t, int64_t r, int64_t k, struct initial *start)
{
    const struct optimal_params *p = t->run->params;
    const int radius = p->symmetric ? 0 : p->zero_point_radius;
    start->centre = p->symmetric ? 0 : centre_of(t, r, k);
    start->energy = error_of(t, t->x, t->g, r, k);
    start->first = p->symmetric ? 0 : limited(p, start->centre - radius);
    start->last = p->symmetric ? 0 : limited(p, start->centre + radius);
    residual(t, r, k, start->range.scale, qobs_optimal_zero_point(p, &start->range), t->other);
}

/* Groups that H does not decide still have errors, which those of other groups meet. */
static void set_decided(struct hessian_tile *t, int64_t r, int64_t k)
{
    const size_t at = place_of(t, r, k), n = (size_t)qobs_hessian_group_width(&t->run->block, k);
    const struct optimal_range range = range_of(t, r, k);
    for (size_t i = at; i < at + n; i++)
        t->e[i] = t->other[i] = 0;
    if (range.scale == 0)
        return;
    residual(t, r, k, t->scale[r * t->run->block.groups + k], t->run->result->zero_point[qparam_of(t, r, k)], t->e);
    residual(t, r, k, range.scale, qobs_optimal_zero_point(t->run->params, &range), t->other);
}

/* The choice and its errors. */
static void store_choice(struct hessian_tile *t, int64_t r, int64_t k, struct group_choice c, double energy)
{
    const struct optimal_choice choice = {.scale = c.scale, .zero_point = c.zero_point, .energy = energy};
    store(t, r, k, &choice);
    residual(t, r, k, c.scale, c.zero_point, t->e);
}

/* The error of a candidate of one row. */
static double error_of_scale(struct hessian_tile *t, int64_t r, int64_t k, float scale)
{
    const struct hessian_block *b = &t->run->block;
    const size_t span = (size_t)qobs_hessian_span(b), padded = (size_t)b->padded, at = place_of(t, r, k);
    residual(t, r, k, scale, 0, t->e);
    memset(t->product + at, 0, padded * sizeof *t->product);
    t->run->search->kernels->hessian_product(t->e + at, span, 1, diagonal_of(b, k), padded,
                                             (size_t)qobs_hessian_group_width(b, k), padded, t->product + at, span);
    return error_of(t, t->e, t->product, r, k);
}

/* The best scale by bounds: H has a factor. Candidates are ascending, and the first of equal errors wins. */
static void choose_by_bounds(struct hessian_tile *t, int64_t r, int64_t k, const struct initial *start)
{
    const struct scale_list scales = scales_of(t, r, k);
    struct hessian_candidate_list c;
    qobs_hessian_lanes(t->run->search->kernels, &t->run->block.factor[k], &scales, t->w + place_of(t, r, k),
                       amax_of(&start->range), &c);
    float scale = scales.scale[c.index[0]];
    if (c.count > 1) {
        double least = INFINITY;
        for (size_t i = 0; i < c.count; i++) {
            const double error = error_of_scale(t, r, k, scales.scale[c.index[i]]);
            scale = error < least ? scales.scale[c.index[i]] : scale;
            least = error < least ? error : least;
        }
    }
    store_choice(t, r, k, (struct group_choice){scale, 0}, start->energy);
}

static void choose_group(struct hessian_tile *t, int64_t r, int64_t k, const struct initial *start)
{
    const struct hessian_block *b = &t->run->block;
    const struct scale_list scales = scales_of(t, r, k);
    if (b->factor && qobs_hessian_lanes_fit(&b->factor[k], &scales, amax_of(&start->range)))
        choose_by_bounds(t, r, k, start);
    else
        store_choice(t, r, k, best_choice(t, r, k, diagonal_of(b, k), start->energy, start->first, start->last),
                     start->energy);
}

/* Writes e^T H e of the group for all rows that were searched. */
static void store_errors(struct hessian_tile *t, int64_t k, const double *e, double *error)
{
    const struct hessian_block *b = &t->run->block;
    multiply(t, e, k * b->padded, diagonal_of(b, k), qobs_hessian_group_width(b, k), k, false, t->product);
    for (int64_t r = 0; r < t->rows; r++)
        if (t->searched[r * b->groups + k])
            error[qparam_of(t, r, k)] = error_of(t, e, t->product, r, k);
}

static void search_group(struct hessian_tile *t, int64_t k)
{
    const struct hessian_block *b = &t->run->block;
    const int64_t n = qobs_hessian_group_width(b, k);
    const double *const h = diagonal_of(b, k);
    const bool reached = has_importance(t, k, n);
    struct initial start[HESSIAN_TILE] = {0};
    for (int64_t r = 0; r < t->rows; r++) {
        const size_t at = place_of(t, r, k);
        t->searched[r * b->groups + k] = needs_search(t, r, k, reached, &start[r].range);
        for (size_t i = at; i < at + (size_t)n; i++)
            t->x[i] = (double)t->w[i];
    }
    multiply(t, t->x, k * b->padded, h, n, k, false, t->g);
    for (int64_t r = 0; r < t->rows; r++) {
        if (t->searched[r * b->groups + k])
            set_initial(t, r, k, &start[r]);
        else
            set_decided(t, r, k);
    }
    for (int64_t r = 0; r < t->rows; r++)
        if (t->searched[r * b->groups + k])
            choose_group(t, r, k, &start[r]);
    store_errors(t, k, t->e, t->run->result->error);
    store_errors(t, k, t->other, t->run->result->minmax_error);
}

/* ---- Blocks of several groups ------------------------------------------------------------------------------------ */

/* H e of group k from the columns before it, to `before`. */
static void multiply_before(struct hessian_tile *t, const double *e, int64_t k)
{
    const struct hessian_block *b = &t->run->block;
    multiply(t, e, 0, columns_of(b, k), k * b->padded, k, false, t->before);
}

/* The same from all columns outside it in ascending order, to `linear`. */
static void multiply_outside(struct hessian_tile *t, const double *e, int64_t k)
{
    const struct hessian_block *b = &t->run->block;
    const int64_t span = qobs_hessian_span(b), end = (k + 1) * b->padded;
    multiply_before(t, e, k);
    for (int64_t r = 0; r < t->rows; r++)
        memcpy(t->linear + place_of(t, r, k), t->before + place_of(t, r, k), (size_t)b->padded * sizeof *t->linear);
    multiply(t, e, end, columns_of(b, k) + end * b->padded, span - end, k, true, t->linear);
}

/* Twice the product of the errors of group k with what other groups add to H e. */
static double cross(const struct hessian_tile *t, const double *e, const double *others, int64_t r, int64_t k)
{
    return 2 * error_of(t, e, others, r, k);
}

/* The parts of groups in e^T H e for the scales of the range: with H of their own columns and twice that of the columns
 * before. */
static void store_minmax_parts(struct hessian_tile *t)
{
    const struct hessian_block *b = &t->run->block;
    for (int64_t k = 0; k < b->groups; k++) {
        multiply_before(t, t->other, k);
        multiply(t, t->other, k * b->padded, inside(b, k), qobs_hessian_group_width(b, k), k, false, t->product);
        for (int64_t r = 0; r < t->rows; r++)
            if (t->searched[r * b->groups + k])
                t->run->result->minmax_error[qparam_of(t, r, k)] =
                    error_of(t, t->other, t->product, r, k) + cross(t, t->other, t->before, r, k);
    }
}

/* The new choice of a row for group k; its errors go to `other`. g is H w and loses `linear`. */
static struct group_choice choose_again(struct hessian_tile *t, int64_t r, int64_t k)
{
    const struct optimal_params *p = t->run->params;
    const int present = t->run->result->zero_point[qparam_of(t, r, k)];
    const int first = p->symmetric ? 0 : limited(p, present - p->zero_point_radius);
    const int last = p->symmetric ? 0 : limited(p, present + p->zero_point_radius);
    const size_t at = place_of(t, r, k), n = (size_t)qobs_hessian_group_width(&t->run->block, k);
    for (size_t i = at; i < at + n; i++)
        t->g[i] -= t->linear[i];
    const struct group_choice c = best_choice(t, r, k, inside(&t->run->block, k), 0, first, last);
    residual(t, r, k, c.scale, c.zero_point, t->other);
    return c;
}

static void take(struct hessian_tile *t, int64_t r, int64_t k, struct group_choice c)
{
    const size_t at = place_of(t, r, k), n = (size_t)qobs_hessian_group_width(&t->run->block, k);
    const size_t q = qparam_of(t, r, k);
    memcpy(t->e + at, t->other + at, n * sizeof *t->e);
    t->scale[r * t->run->block.groups + k] = c.scale;
    t->run->result->scale[q] = qobs_optimal_stored(t->run->params, c.scale, t->run->global_scale);
    t->run->result->zero_point[q] = c.zero_point;
}

/* The errors of rows: before the descent, as the sum over groups of their parts with the columns after them, and after
 * a pass, in which the columns before a group are decided. */
struct row_errors {
    double start[HESSIAN_TILE], end[HESSIAN_TILE];
};

/* Returns true if a row has changed. */
static bool descend_group(struct hessian_tile *t, int64_t k, struct row_errors *rows)
{
    const struct hessian_block *b = &t->run->block;
    const int64_t n = qobs_hessian_group_width(b, k), first = k * b->padded;
    struct group_choice choice[HESSIAN_TILE] = {{0}};
    double present[HESSIAN_TILE] = {0}, part[HESSIAN_TILE] = {0};
    bool changed = false;
    multiply_outside(t, t->e, k);
    multiply(t, t->x, first, inside(b, k), n, k, false, t->g);
    multiply(t, t->e, first, inside(b, k), n, k, false, t->product);
    for (int64_t r = 0; r < t->rows; r++) {
        const double alone = error_of(t, t->e, t->product, r, k), outside = cross(t, t->e, t->linear, r, k);
        const double before = cross(t, t->e, t->before, r, k);
        present[r] = alone + outside;
        part[r] = alone + before;
        rows->start[r] += alone + (outside - before);
        if (t->searched[r * b->groups + k] && t->run->params->passes > 0)
            choice[r] = choose_again(t, r, k);
    }
    multiply(t, t->other, first, inside(b, k), n, k, false, t->product);
    for (int64_t r = 0; r < t->rows; r++) {
        if (t->searched[r * b->groups + k]) {
            const double alone = error_of(t, t->other, t->product, r, k);
            if (t->run->params->passes > 0 && alone + cross(t, t->other, t->linear, r, k) < present[r]) {
                take(t, r, k, choice[r]);
                part[r] = alone + cross(t, t->e, t->before, r, k);
                changed = true;
            }
            t->run->result->error[qparam_of(t, r, k)] = part[r];
        }
        rows->end[r] += part[r];
    }
    return changed;
}

static void descend(struct hessian_tile *t)
{
    const int passes = t->run->params->passes > 0 ? t->run->params->passes : 1;
    struct row_errors rows[2] = {{{0}, {0}}, {{0}, {0}}}; /* of the first and of the last pass */
    bool changed = true;
    store_minmax_parts(t);
    for (int pass = 0; pass < passes && changed; pass++) {
        struct row_errors *const of_pass = &rows[pass > 0];
        *of_pass = (struct row_errors){{0}, {0}};
        changed = false;
        for (int64_t k = 0; k < t->run->block.groups; k++)
            changed |= descend_group(t, k, of_pass);
        rows[1] = *of_pass;
    }
    for (int64_t r = 0; r < t->rows; r++) { /* there are blocks before */
        t->run->result->start_row_error[t->row + r] += rows[0].start[r];
        t->run->result->row_error[t->row + r] += rows[1].end[r];
    }
}

void qobs_hessian_tile_search(struct hessian_tile *t)
{
    for (int64_t k = 0; k < t->run->block.groups; k++)
        search_group(t, k);
    if (t->run->block.columns)
        descend(t);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of several groups: coordinate descent over the scales of a row. Errors of different groups may cancel, as in
 * GPTQ, but weights stay rounded to nearest. */
#include <string.h>

#include "optimal/hessian_search.h"

static const double *inside(const struct hessian_block *b, int64_t k)
{
    return qobs_hessian_joint(b, k) + k * b->padded * b->padded;
}

/* H e of group k from the columns before it, to `before`. */
static void multiply_before(struct hessian_tile *t, const double *e, int64_t k)
{
    const int64_t n = k * t->block->padded;
    qobs_hessian_multiply(t, e, 0, qobs_hessian_joint(t->block, k), n, k, false, t->before);
}

/* The same from all columns outside it in ascending order, to `linear`. */
static void multiply_outside(struct hessian_tile *t, const double *e, int64_t k)
{
    const struct hessian_block *b = t->block;
    const int64_t span = qobs_hessian_span(b), first = k * b->padded, end = first + b->padded;
    const double *const h = qobs_hessian_joint(b, k);
    multiply_before(t, e, k);
    for (int64_t r = 0; r < t->rows; r++)
        memcpy(t->linear + r * span + first, t->before + r * span + first, (size_t)b->padded * sizeof *t->linear);
    qobs_hessian_multiply(t, e, end, h + end * b->padded, span - end, k, true, t->linear);
}

/* Twice the product of the errors of group k with what other groups add to H e. */
static double cross(const struct hessian_tile *t, const double *e, const double *others, int64_t r, int64_t k,
                    int64_t n)
{
    const int64_t at = r * qobs_hessian_span(t->block) + k * t->block->padded;
    return 2 * qobs_hessian_dot(e + at, others + at, n);
}

/* e^T H e of the columns of group k; product is H e of these. */
static double own(const struct hessian_tile *t, const double *e, int64_t r, int64_t k, int64_t n)
{
    return cross(t, e, t->product, r, k, n) / 2;
}

/* The shares of groups in e^T H e for the scales of the range: with H of their own columns and twice that of the
 * columns before. */
static void find_minmax_shares(struct hessian_tile *t)
{
    const struct hessian_block *b = t->block;
    for (int64_t k = 0; k < b->groups; k++) {
        const int64_t n = qobs_hessian_group_width(b, k);
        multiply_before(t, t->other, k);
        qobs_hessian_multiply(t, t->other, k * b->padded, inside(b, k), n, k, false, t->product);
        for (int64_t r = 0; r < t->rows; r++)
            if (t->live[r * b->groups + k])
                t->result->minmax_error[t->qparam + r * t->stride + k] =
                    own(t, t->other, r, k, n) + cross(t, t->other, t->before, r, k, n);
    }
}

static int limited(const struct optimal_params *p, int z)
{
    return z < p->quant_min ? p->quant_min : z > p->quant_max ? p->quant_max : z;
}

/* The new choice of a row for group k; its errors go to `other`. */
struct proposal {
    float scale;
    int zero_point;
};

/* g is H w; it becomes g of the search. */
static struct proposal propose(struct hessian_tile *t, int64_t r, int64_t k, int64_t n, double present_error)
{
    const struct optimal_params *p = t->params;
    const size_t at = (size_t)(r * qobs_hessian_span(t->block) + k * t->block->padded);
    const int present = t->result->zero_point[t->qparam + r * t->stride + k];
    const int first = p->symmetric ? 0 : limited(p, present - p->zero_point_radius);
    const int last = p->symmetric ? 0 : limited(p, present + p->zero_point_radius);
    const struct hessian_scales scales = qobs_hessian_scales_of(t, t->w + at, (size_t)n);
    const double energy = qobs_hessian_dot(t->x + at, t->g + at, n);
    const double known = present_error - (energy - 2 * qobs_hessian_dot(t->x + at, t->linear + at, n));
    const size_t lowest = qobs_hessian_lowest(p, &scales, t->w + at, (size_t)n, t->g + at, t->linear + at, t->largest,
                                              energy, known, first, last);
    for (int64_t i = 0; i < n; i++)
        t->g[at + (size_t)i] -= t->linear[at + (size_t)i];
    const struct hessian_group group = {.w = t->w + at,
                                        .n = (size_t)n,
                                        .h = inside(t->block, k),
                                        .columns = (size_t)t->block->padded,
                                        .h_stride = (size_t)t->block->padded,
                                        .g = t->g + at,
                                        .first = first,
                                        .last = last,
                                        .lowest = lowest};
    const struct hessian_choice best =
        qobs_hessian_group(t->search->kernels, p, t->levels, &scales, &group, &t->workspace);
    const float scale = best.negative ? -scales.scale[best.index] : scales.scale[best.index];
    t->search->kernels->hessian_residual(&t->number, t->w + at, (size_t)n, scale, (float)best.zero_point,
                                         t->other + at);
    return (struct proposal){scale, best.zero_point};
}

/* Takes the proposal. */
static void take(struct hessian_tile *t, int64_t r, int64_t k, int64_t n, const struct proposal *proposal)
{
    const int64_t at = r * qobs_hessian_span(t->block) + k * t->block->padded, q = t->qparam + r * t->stride + k;
    for (int64_t i = at; i < at + n; i++)
        t->e[i] = t->other[i];
    t->scale[r * t->block->groups + k] = proposal->scale;
    t->result->scale[q] = qobs_optimal_stored(t->params, proposal->scale, t->global_scale);
    t->result->zero_point[q] = proposal->zero_point;
}

/* The errors of rows: before the descent, as the sum over groups of what they share with the columns after them, and
 * after a pass, in which the columns before a group are decided. */
struct row_errors {
    double start[HESSIAN_TILE], end[HESSIAN_TILE];
};

/* Returns true if a row has changed. */
static bool descend_group(struct hessian_tile *t, int64_t k, struct row_errors *rows)
{
    const struct hessian_block *b = t->block;
    const int64_t n = qobs_hessian_group_width(b, k), first = k * b->padded;
    struct proposal proposal[HESSIAN_TILE] = {{0}};
    double present[HESSIAN_TILE] = {0}, share[HESSIAN_TILE] = {0};
    bool changed = false;
    qobs_hessian_set_largest(t, inside(b, k), n);
    multiply_outside(t, t->e, k);
    qobs_hessian_multiply(t, t->x, first, inside(b, k), n, k, false, t->g);
    qobs_hessian_multiply(t, t->e, first, inside(b, k), n, k, false, t->product);
    for (int64_t r = 0; r < t->rows; r++) {
        const double alone = own(t, t->e, r, k, n), outside = cross(t, t->e, t->linear, r, k, n);
        const double before = cross(t, t->e, t->before, r, k, n);
        present[r] = alone + outside;
        share[r] = alone + before;
        rows->start[r] += alone + (outside - before);
        if (t->live[r * b->groups + k] && t->params->passes > 0)
            proposal[r] = propose(t, r, k, n, present[r]);
    }
    qobs_hessian_multiply(t, t->other, first, inside(b, k), n, k, false, t->product);
    for (int64_t r = 0; r < t->rows; r++) {
        const bool live = t->live[r * b->groups + k];
        if (live) {
            const double alone = own(t, t->other, r, k, n);
            if (t->params->passes > 0 && alone + cross(t, t->other, t->linear, r, k, n) < present[r]) {
                take(t, r, k, n, &proposal[r]);
                share[r] = alone + cross(t, t->e, t->before, r, k, n);
                changed = true;
            }
            t->result->error[t->qparam + r * t->stride + k] = share[r];
        }
        rows->end[r] += share[r];
    }
    return changed;
}

void qobs_hessian_descend(struct hessian_tile *t)
{
    struct row_errors rows[2] = {{{0}, {0}}, {{0}, {0}}}; /* of the first and of the last pass */
    bool changed = true;
    find_minmax_shares(t);
    for (int pass = 0; pass < (t->params->passes > 0 ? t->params->passes : 1) && changed; pass++) {
        struct row_errors *const of_pass = &rows[pass > 0];
        *of_pass = (struct row_errors){{0}, {0}};
        changed = false;
        for (int64_t k = 0; k < t->block->groups; k++)
            changed |= descend_group(t, k, of_pass);
        rows[1] = *of_pass;
    }
    for (int64_t r = 0; r < t->rows; r++) { /* there are blocks before */
        t->result->start_row_error[t->row + r] += rows[0].start[r];
        t->result->row_error[t->row + r] += rows[1].end[r];
    }
}

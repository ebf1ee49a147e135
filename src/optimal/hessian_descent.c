/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of several groups: coordinate descent over the scales of a row. Errors of different groups may cancel, as in
 * GPTQ, but weights stay rounded to nearest. */
#include "optimal/hessian_search.h"

/* H e of group k from the columns outside it, in ascending order; or only from those before it. */
static void multiply_outside(struct hessian_tile *t, const double *e, int64_t k, bool after, double *out)
{
    const struct hessian_block *b = t->block;
    const int64_t first = k * b->padded, end = first + b->padded;
    const double *const h = qobs_hessian_joint(b, k);
    qobs_hessian_multiply(t, e, 0, h, first, k, false, out);
    if (after)
        qobs_hessian_multiply(t, e, end, h + end * b->padded, qobs_hessian_span(b) - end, k, true, out);
}

static const double *inside(const struct hessian_block *b, int64_t k)
{
    return qobs_hessian_joint(b, k) + k * b->padded * b->padded;
}

/* The shares of groups in e^T H e: with H of their own columns and twice that of the columns before. Writes each to
 * `shares` and adds them to rows; either may be NULL. */
static void add_shares(struct hessian_tile *t, const double *e, double *shares, double *rows)
{
    const struct hessian_block *b = t->block;
    const int64_t span = qobs_hessian_span(b);
    for (int64_t k = 0; k < b->groups; k++) {
        const int64_t n = qobs_hessian_group_width(b, k), first = k * b->padded;
        multiply_outside(t, e, k, false, t->linear);
        qobs_hessian_multiply(t, e, first, inside(b, k), n, k, false, t->product);
        for (int64_t r = 0; r < t->rows; r++) {
            const int64_t at = r * span + first;
            const double share =
                qobs_hessian_dot(e + at, t->product + at, n) + 2 * qobs_hessian_dot(e + at, t->linear + at, n);
            if (shares && t->live[r * b->groups + k])
                shares[t->qparam + r * t->stride + k] = share;
            if (rows)
                rows[t->row + r] += share;
        }
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

/* The part of a row's error that depends on the errors e of group k; product is H e of the group. */
static double group_error(const struct hessian_tile *t, const double *e, int64_t r, int64_t k, int64_t n)
{
    const int64_t at = r * qobs_hessian_span(t->block) + k * t->block->padded;
    return qobs_hessian_dot(e + at, t->product + at, n) + 2 * qobs_hessian_dot(e + at, t->linear + at, n);
}

static bool descend_group(struct hessian_tile *t, int64_t k)
{
    const struct hessian_block *b = t->block;
    const int64_t n = qobs_hessian_group_width(b, k), first = k * b->padded;
    struct proposal proposal[HESSIAN_TILE];
    double present[HESSIAN_TILE] = {0};
    bool changed = false;
    qobs_hessian_set_largest(t, inside(b, k), n);
    multiply_outside(t, t->e, k, true, t->linear);
    qobs_hessian_multiply(t, t->x, first, inside(b, k), n, k, false, t->g);
    qobs_hessian_multiply(t, t->e, first, inside(b, k), n, k, false, t->product);
    for (int64_t r = 0; r < t->rows; r++)
        if (t->live[r * b->groups + k]) {
            present[r] = group_error(t, t->e, r, k, n);
            proposal[r] = propose(t, r, k, n, present[r]);
        }
    qobs_hessian_multiply(t, t->other, first, inside(b, k), n, k, false, t->product);
    for (int64_t r = 0; r < t->rows; r++)
        if (t->live[r * b->groups + k] && group_error(t, t->other, r, k, n) < present[r]) {
            take(t, r, k, n, &proposal[r]);
            changed = true;
        }
    return changed;
}

void qobs_hessian_descend(struct hessian_tile *t)
{
    struct optimal_result *result = t->result;
    bool changed = true;
    add_shares(t, t->other, result->minmax_error, NULL);
    add_shares(t, t->e, NULL, result->start_row_error);
    for (int pass = 0; pass < t->params->passes && changed; pass++) {
        changed = false;
        for (int64_t k = 0; k < t->block->groups; k++)
            changed |= descend_group(t, k);
    }
    add_shares(t, t->e, result->error, result->row_error);
}

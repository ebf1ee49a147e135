/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "optimal/optimal_contest.h"

#include <math.h>

void qobs_contest_begin(struct contest *c, const struct kernel_table *kernels, const struct optimal_params *params,
                        const struct optimal_group *group)
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

void qobs_contest_decided(struct contest *c, float scale, int32_t zero_point, double error)
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

double qobs_contest_decide(struct contest *c, float scale, int32_t zero_point)
{
    const struct optimal_group *g = c->group;
    const double error = c->kernels->optimal_error(&c->number, g->w, g->h, g->n, scale, (float)zero_point);
    qobs_contest_decided(c, scale, zero_point, error);
    return error;
}

/* Drops those that cannot win. */
static void drop_losers(struct contest *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->pending; i++)
        if (c->contender[i].lowest <= c->bound)
            c->contender[n++] = c->contender[i];
    c->pending = n;
}

void qobs_contest_finish(struct contest *c)
{
    for (size_t i = 0; i < c->pending; i++)
        if (c->contender[i].lowest <= c->bound)
            qobs_contest_decide(c, c->contender[i].scale, c->contender[i].zero_point);
    c->pending = 0;
}

void qobs_contest_enter(struct contest *c, float scale, int32_t zero_point, double nearly, double slack)
{
    const double lowest = nearly - slack, most = nearly + slack;
    if (lowest > c->bound)
        return;
    c->bound = most < c->bound ? most : c->bound;
    if (c->pending == CONTEST_PENDING)
        drop_losers(c);
    if (c->pending == CONTEST_PENDING)
        qobs_contest_finish(c);
    c->contender[c->pending++] = (struct contender){scale, zero_point, lowest};
}

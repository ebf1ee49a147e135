/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The best candidate of one group. */
#include <math.h>

#include "range/optimal_search.h"

static double energy_of(const struct optimal_group *g)
{
    double sum = 0;
    for (size_t i = 0; i < g->n; i++)
        sum += g->h[i] * ((double)g->w[i] * (double)g->w[i]);
    return sum;
}

size_t qobs_optimal_scratch(const struct optimal_params *p, size_t n)
{
    (void)p, (void)n;
    return OPTIMAL_MOST_SCALES * sizeof(float);
}

void qobs_optimal_group(const struct kernel_table *kernels, const struct optimal_params *p,
                        const struct optimal_group *g, void *scratch, struct optimal_choice *choice)
{
    const struct optimal_number number = qobs_optimal_number(p);
    const struct optimal_range range = qobs_optimal_range(p, g);
    float *const scale = scratch;
    if (!qobs_optimal_is_searched(p, &range, g, choice))
        return;
    const size_t count = qobs_optimal_scales(p, range.scale, g->global_scale, scale);
    const int32_t from = p->symmetric ? 0 : p->quant_min, to = p->symmetric ? 0 : p->quant_max;
    const float zero_point = (float)qobs_optimal_zero_point(p, &range);
    *choice = (struct optimal_choice){.error = HUGE_VAL};
    for (size_t k = 0; k < count; k++)
        for (int sign = 0; sign <= p->signed_scale; sign++)
            for (int32_t z = from; z <= to; z++) {
                const float s = sign ? -scale[k] : scale[k];
                const double error = kernels->optimal_error(&number, g->w, g->h, g->n, s, (float)z);
                if (error < choice->error)
                    *choice = (struct optimal_choice){.scale = s, .zero_point = z, .error = error};
            }
    choice->minmax_error = kernels->optimal_error(&number, g->w, g->h, g->n, range.scale, zero_point);
    choice->energy = energy_of(g);
}

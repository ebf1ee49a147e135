/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "search/search_errors.h"

#include <math.h>
#include <string.h>

#include "number/grid.h"

/* e = q * down - x, with q = x * up limited and rounded. */
static void factor_residual(const struct quantizer *quantizer, const float *x, size_t n, float up, double down,
                            double *e)
{
    const struct grid_float grid = {quantizer->min_normal, quantizer->shifter};
    const float quant_min = (float)quantizer->quant_min, quant_max = (float)quantizer->quant_max;
    for (size_t i = 0; i < n; i++) {
        const float v = x[i] * up, low = v < quant_min ? quant_min : v;
        e[i] = (double)grid_round_float(grid, low > quant_max ? quant_max : low) * down - (double)x[i];
    }
}

/* Eight sums of products 8 apart, added in one tree. */
static double dot(const double *a, const double *b, size_t n)
{
    double s[8] = {0};
    for (size_t i = 0; i < n; i += 8)
        for (size_t j = 0; j < 8; j++)
            s[j] += a[i + j] * b[i + j];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static bool is_finite(const float *x, size_t n)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++)
        finite &= isfinite(x[i]) != 0;
    return finite;
}

void qobs_hessian_errors(const struct kernel_table *kernels, const struct gram *gram, int64_t index,
                         const struct hessian_candidates *candidates, const float *x, double *error)
{
    static const struct optimal_number e2m1 = {.e2m1 = true};
    const double *const h = qobs_gram_block(gram, index).sum;
    const size_t n = (size_t)gram->block, most = HESSIAN_ERRORS / n;
    const double unit = is_finite(x, n) ? 1 / (double)gram->tokens : (double)NAN;
    double e[HESSIAN_ERRORS], product[HESSIAN_ERRORS];
    for (size_t c = 0, some; c < candidates->count; c += some) {
        some = candidates->count - c < most ? candidates->count - c : most;
        for (size_t i = 0; i < some; i++)
            if (candidates->down)
                factor_residual(candidates->quantizer, x, n, candidates->up[c + i], candidates->down[c + i], e + i * n);
            else
                kernels->hessian_residual(&e2m1, x, n, candidates->up[c + i], 0, e + i * n);
        memset(product, 0, some * n * sizeof *product);
        kernels->hessian_product(e, n, some, h, n, n, n, product, n);
        for (size_t i = 0; i < some; i++)
            error[c + i] += dot(e + i * n, product + i * n, n) * unit;
    }
}

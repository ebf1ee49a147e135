/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors of any scales and zero points, for elements that are not prescaled. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "number/grid.h"
#include "search/search_errors.h"

enum { CANDIDATES = 64 }; /* in one kernel call */

struct error_block {
    _Alignas(64) float x[QOBS_SEARCH_MOST], weight[QOBS_SEARCH_MOST];
    _Alignas(64) float scale[CANDIDATES], inverse[CANDIDATES], offset[CANDIDATES], sum[CANDIDATES];
};

/* NaN if an element is not finite. */
static float magnitude_of(const struct kernel_table *kernels, const float *x, size_t n)
{
    float magnitude = 0;
    struct nonfinite_count nonfinite = {0};
    kernels->absmax_rows[QOBS_KERNEL_F32](x, 0, 1, n, &magnitude, 0, &nonfinite);
    return nonfinite.nan || nonfinite.inf ? NAN : magnitude;
}

void qobs_search_candidate(bool integers, float scale, float zero_point, float *inverse, float *offset)
{
    const float reciprocal = 1 / scale;
    *inverse = reciprocal > FLT_MAX ? FLT_MAX : reciprocal;
    *offset = integers ? 0x1.8p23f + zero_point : zero_point;
}

void qobs_search_errors(const struct kernel_table *kernels, const struct quantizer *quantizer,
                        const struct search_norm *norm, const float *x, const float *weight, size_t n,
                        size_t candidates, const float *scale, const float *zero_point, double *error)
{
    const bool integers = (double)quantizer->min_normal >= quantizer->quant_max, shifted = zero_point;
    const bool weighted = weight || (shifted && !integers); /* padding has an error otherwise */
    struct error_block r;
    const struct search_candidates arrays = {r.scale, r.inverse, r.offset, 1};
    for (size_t first = 0; first < n; first += QOBS_SEARCH_MOST) {
        const size_t length = n - first < QOBS_SEARCH_MOST ? n - first : QOBS_SEARCH_MOST;
        const float magnitude = magnitude_of(kernels, x + first, length);
        const int prescale_exp = qobs_search_prescale_exp((double)magnitude, QOBS_F32);
        const double unit = magnitude == magnitude ? qobs_search_error_unit(norm, prescale_exp) : (double)NAN;
        const float factor = ldexpf(1, prescale_exp);
        kernels->search_load[QOBS_KERNEL_F32](x + first, length, (double)factor, false, r.x);
        for (size_t i = 0; i < length && weighted; i++)
            r.weight[i] = weight ? weight[first + i] : 1;
        for (size_t i = length; i % QOBS_SEARCH_LANES != 0; i++)
            r.x[i] = r.weight[i] = 0;
        for (size_t c = 0; c < candidates; c += CANDIDATES) {
            const size_t some = candidates - c < CANDIDATES ? candidates - c : CANDIDATES;
            for (size_t i = 0; i < (some + 3) / 4 * 4; i++) {
                const size_t at = c + (i < some ? i : some - 1);
                r.scale[i] = fminf(scale[at] * factor, FLT_MAX);
                qobs_search_candidate(integers, r.scale[i], zero_point ? zero_point[at] : 0, &r.inverse[i],
                                      &r.offset[i]);
            }
            kernels->search_errors(quantizer, &norm->errors, shifted, r.x, weighted ? r.weight : NULL, length, &arrays,
                                   (some + 3) / 4 * 4, (struct prefetch_ahead){NULL, NULL}, r.sum);
            for (size_t i = 0; i < some; i++) {
                const float z = zero_point ? zero_point[c + i] : 0, s = scale[c + i];
                error[c + i] += s - s == 0 && z - z == 0 ? (double)r.sum[i] * unit : (double)NAN;
            }
        }
    }
}

/* ---- Errors under a Hessian -------------------------------------------------------------------------------------- */

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

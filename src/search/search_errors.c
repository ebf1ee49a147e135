/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors of any scales and zero points, for elements that are not prescaled. */
#include <float.h>
#include <math.h>

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

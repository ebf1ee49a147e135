/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "range/multiplier_search.h"

#include <math.h>

#include "number/convert.h"
#include "number/format.h"
#include "number/grid.h"
#include "range/candidate_errors.h"
#include "base/tensor.h"

static size_t multiplier_steps(const struct range_params *params) { return params->multiplier.count; }

static size_t e4m3_steps(const struct range_params *params)
{
    (void)params;
    return NVFP4_SCALES;
}

const struct range_ops qobs_range_multiplier = {
    .search = SEARCH_STATE, .steps = multiplier_steps, .reference = true, .sums = true};
const struct range_ops qobs_range_e4m3 = {.search = SEARCH_STATE, .steps = e4m3_steps, .reference = true};

/* torch.linspace in float, from both ends and with fused multiply-add. */
float qobs_multiple(const struct multiplier_params *params, size_t i)
{
    const size_t n = params->count;
    const float start = (float)params->start, stop = (float)params->stop;
    const float step = n > 1 ? (stop - start) / (float)(n - 1) : 0;
    return i < n / 2 || n == 1 ? fmaf(step, (float)i, start) : fmaf(-step, (float)(n - 1 - i), stop);
}

/* Code i + 1 of e4m3, relative to the largest. */
float qobs_e4m3_multiple(size_t i) { return qobs_format_decode(qobs_format_find("fp8_e4m3"), (uint32_t)i + 1) / 448; }

size_t qobs_least_multiple(const double *error, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n && !isnan(error[best]); i++)
        if (error[i] < error[best] || isnan(error[i]))
            best = i;
    return best;
}

/* ---- Scales
 * --------------------------------------------------------------------------------------------------------------- */

/* A Python number over a tensor is the tensor's reciprocal times the number; next to nothing counts as 1. */
static float over(float number, float amax) { return 1 / (amax <= 0x1p-24f ? 1 : amax) * number; }

/* Upstream multiplies by bound / amax and divides by that, for e4m3 multiplies by the reciprocal in float. Where amax is
 * next to nothing all becomes 0. */
static void factors_of(const struct multiplier_params *params, float amax, float *up, double *down)
{
    if (params->format) {
        *up = over(448, amax);
        *down = (double)(1 / *up);
        return;
    }
    const float bound = (float)params->quant_max;
    *up = amax < 0x1p-24f ? 0 : bound / amax;
    *down = amax < 0x1p-24f ? 0 : 1 / (double)*up;
}

/* amax / 6 in e4m3 under a scale that takes the whole tensor's amax / 6 to 448. */
static float nvfp4_scale(float whole, float amax)
{
    const float quant_min = whole / 6, up = over(448, quant_min), down = 1 / up;
    const float scaled = amax / 6 * up, limited = scaled > 448 ? 448 : scaled;
    const float scale = grid_round_e4m3(limited) * down;
    /* With a scale that large everything becomes 0, as upstream has it where the scale is 0. */
    return scale == 0 ? 0x1p127f : isfinite(scale) ? scale : 1;
}

struct multiples {
    const struct multiplier_params *params; /* NULL: the candidates are scales in e4m3 */
    struct qobs_quantizer quantizer;
    size_t count;
    const float *amax;
    qobs_dtype dtype; /* that multiples of amax are rounded to */
    float multiple[QOBS_MOST_MULTIPLES];
    double *sums; /* or */
    int32_t *best;
    double *error, *error_before;
};

/* A number without dimensions takes the dtype of the tensor it is multiplied with. */
static float product(const struct multiples *m, float amax, float multiple)
{
    return (float)qobs_round_to(m->dtype, (double)(amax * (float)qobs_round_to(m->dtype, (double)multiple)));
}

static void prepare_multiples(void *argument, size_t qparam, struct qobs_quantizer *quantizer, float *up, double *down)
{
    const struct multiples *m = argument;
    *quantizer = m->quantizer;
    for (size_t i = 0; i < m->count; i++)
        factors_of(m->params, product(m, m->amax[qparam], m->multiple[i]), &up[i], &down[i]);
}

static void prepare_scales(void *argument, size_t qparam, struct qobs_quantizer *quantizer, float *scale)
{
    const struct multiples *m = argument;
    (void)qparam;
    *quantizer = m->quantizer;
    for (size_t i = 0; i < m->count; i++)
        scale[i] = nvfp4_scale(m->amax[0], m->amax[0] * m->multiple[i]);
}

static void take(void *argument, size_t qparam, const double *error)
{
    const struct multiples *m = argument;
    if (m->sums) {
        for (size_t i = 0; i < m->count; i++)
            m->sums[qparam * m->count + i] += error[i];
        return;
    }
    const size_t best = qobs_least_multiple(error, m->count);
    m->best[qparam] = (int32_t)best;
    m->error[qparam] = error[best];
    m->error_before[qparam] = error[m->count - 1];
}

/* ---- Searches
 * ------------------------------------------------------------------------------------------------------------- */

static struct qobs_quantizer quantizer_of(const struct multiplier_params *params)
{
    struct qobs_quantizer quantizer;
    if (params->format)
        qobs_quantizer_for_format(&quantizer, params->format);
    else
        qobs_quantizer_for_integers(&quantizer, params->quant_min, params->quant_max, false);
    return quantizer;
}

size_t qobs_search_multiples_workspace(const qobs_plan *plan, const struct range_rule *rule)
{
    return qobs_candidates_workspace(plan, qobs_range_steps(rule));
}

static void search(struct multiples *m, const struct runtime *runtime, const struct qobs_kernels *kernels,
                   enum nonfinite_mode nonfinite, const qobs_plan *plan, const unsigned char *data, const float *weight,
                   double *workspace)
{
    const struct candidates c = {.count = m->count,
                                 .ignore_nonfinite = nonfinite == NONFINITE_IGNORE,
                                 .weight = weight,
                                 .argument = m,
                                 .prepare = prepare_scales,
                                 .prepare_factors = m->params ? prepare_multiples : NULL,
                                 .take = take};
    for (size_t i = 0; i < m->count; i++)
        m->multiple[i] = m->params ? qobs_multiple(m->params, i) : qobs_e4m3_multiple(i);
    qobs_candidates_search(runtime, kernels, plan, data, &c, workspace);
}

void qobs_search_multiples(const struct runtime *runtime, const struct qobs_kernels *kernels, const struct range_params *params,
                           const qobs_plan *plan, const unsigned char *data, const float *amax, qobs_dtype dtype,
                           const float *weight, double *workspace, double *sums)
{
    struct multiples m = {.params = &params->multiplier,
                          .quantizer = quantizer_of(&params->multiplier),
                          .count = multiplier_steps(params),
                          .amax = amax,
                          .dtype = dtype,
                          .sums = sums};
    search(&m, runtime, kernels, params->nonfinite, plan, data, weight, workspace);
}

void qobs_search_scales(const struct runtime *runtime, const struct qobs_kernels *kernels, const struct range_params *params,
                        const qobs_plan *plan, const unsigned char *data, const float *amax, const float *weight,
                        double *workspace, int32_t *best, double *error, double *error_before)
{
    struct multiples m = {.count = e4m3_steps(params), .amax = amax, .best = best, .error = error, .error_before = error_before};
    qobs_quantizer_for_format(&m.quantizer, qobs_format_find("fp4_e2m1"));
    search(&m, runtime, kernels, params->nonfinite, plan, data, weight, workspace);
}

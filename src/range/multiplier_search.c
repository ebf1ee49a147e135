/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "range/multiplier_search.h"

#include <math.h>

#include "number/convert.h"
#include "number/format.h"
#include "number/grid.h"
#include "range/candidate_errors.h"
#include "base/tensor.h"

static bool is_nvfp4(const qobs_config *config) { return config->preset->statistic == STATISTIC_LEAST_SCALE; }

size_t qobs_multiples(const qobs_config *config)
{
    if (is_nvfp4(config))
        return NVFP4_SCALES;
    return (size_t)ceil((config->stop_multiplier - config->start_multiplier) / config->step_size) + 1;
}

/* torch.linspace in float, from both ends and with fused multiply-add; or code i + 1 of e4m3, relative to the largest. */
float qobs_multiple(const qobs_config *config, size_t i)
{
    if (is_nvfp4(config))
        return qobs_format_decode(qobs_format_find("fp8_e4m3"), (uint32_t)i + 1) / 448;
    const size_t n = qobs_multiples(config);
    const float start = (float)config->start_multiplier, stop = (float)config->stop_multiplier;
    const float step = n > 1 ? (stop - start) / (float)(n - 1) : 0;
    return i < n / 2 || n == 1 ? fmaf(step, (float)i, start) : fmaf(-step, (float)(n - 1 - i), stop);
}

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
static void factors_of(const qobs_config *config, float amax, float *up, double *down)
{
    if (config->num_bits == NUM_BITS_E4M3) {
        *up = over(448, amax);
        *down = (double)(1 / *up);
        return;
    }
    const float bound = (float)((1 << (config->num_bits - 1 + config->is_unsigned)) - 1);
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
    const qobs_config *config;
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
        factors_of(m->config, product(m, m->amax[qparam], m->multiple[i]), &up[i], &down[i]);
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

static struct qobs_quantizer quantizer_of(const qobs_config *config)
{
    struct qobs_quantizer quantizer;
    if (is_nvfp4(config)) {
        qobs_quantizer_for_format(&quantizer, qobs_format_find("fp4_e2m1"));
    } else if (config->num_bits == NUM_BITS_E4M3) {
        qobs_quantizer_for_format(&quantizer, qobs_format_find("fp8_e4m3"));
    } else {
        const int64_t bound = (INT64_C(1) << (config->num_bits - 1 + config->is_unsigned)) - 1;
        qobs_quantizer_for_integers(&quantizer,
                                    config->is_unsigned    ? 0
                                    : config->narrow_range ? -bound
                                                           : -bound - 1,
                                    bound, false);
    }
    return quantizer;
}

size_t qobs_search_multiples_workspace(const qobs_plan *plan, const qobs_config *config)
{
    return qobs_candidates_workspace(plan, qobs_multiples(config));
}

static void search(struct multiples *m, const struct runtime *runtime, const struct qobs_kernels *kernels,
                   const qobs_plan *plan, const unsigned char *data, const float *weight, double *workspace)
{
    const struct candidates c = {.count = m->count,
                                 .ignore_nonfinite = m->config->nonfinite == NONFINITE_IGNORE,
                                 .weight = weight,
                                 .argument = m,
                                 .prepare = prepare_scales,
                                 .prepare_factors = is_nvfp4(m->config) ? NULL : prepare_multiples,
                                 .take = take};
    for (size_t i = 0; i < m->count; i++)
        m->multiple[i] = qobs_multiple(m->config, i);
    qobs_candidates_search(runtime, kernels, plan, data, &c, workspace);
}

void qobs_search_multiples(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                           const qobs_plan *plan, const unsigned char *data, const float *amax, qobs_dtype dtype,
                           const float *weight, double *workspace, double *sums)
{
    struct multiples m = {.config = config,
                          .quantizer = quantizer_of(config),
                          .count = qobs_multiples(config),
                          .amax = amax,
                          .dtype = dtype,
                          .sums = sums};
    search(&m, runtime, kernels, plan, data, weight, workspace);
}

void qobs_search_scales(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                        const qobs_plan *plan, const unsigned char *data, const float *amax, const float *weight,
                        double *workspace, int32_t *best, double *error, double *error_before)
{
    struct multiples m = {.config = config,
                          .quantizer = quantizer_of(config),
                          .count = qobs_multiples(config),
                          .amax = amax,
                          .best = best,
                          .error = error,
                          .error_before = error_before};
    search(&m, runtime, kernels, plan, data, weight, workspace);
}

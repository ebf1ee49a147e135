/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "range/exponent_search.h"

#include <math.h>
#include <string.h>

#include "config/dtypes.h"
#include "number/convert.h"
#include "number/exponent.h"
#include "number/format.h"
#include "range/candidate_errors.h"

static bool ignores_nonfinite(const qobs_config *config) { return config->nonfinite == NONFINITE_IGNORE; }

/* ---- Powers of two
 * -------------------------------------------------------------------------------------------------------- */

struct powers {
    struct quark_number number;
    bool per_tensor;
    const float *scale;
    const void *zero_point;
    double *error; /* [qparams][POWERS_AROUND] */
};

size_t qobs_search_powers_workspace(const qobs_plan *plan)
{
    return (size_t)plan->qparams * POWERS_AROUND + qobs_candidates_workspace(plan, POWERS_AROUND);
}

static float around(float scale, int i)
{
    const double limited = scale < 0x1p-127f ? 0x1p-127 : scale > 0x1p127f ? 0x1p127 : (double)scale;
    return (float)ldexp(limited, 2 - i);
}

/* Upstream rounds before it adds the zero point and clamps after: the same as between limits less the zero point. */
static void prepare_powers(void *argument, size_t qparam, struct qobs_quantizer *quantizer, float *scale)
{
    const struct powers *p = argument;
    const double zero_point =
        p->per_tensor ? (double)((const float *)p->zero_point)[qparam] : (double)((const int32_t *)p->zero_point)[qparam];
    qobs_quantizer_for_integers(quantizer, (int64_t)(p->number.quant_min - zero_point),
                                (int64_t)(p->number.quant_max - zero_point), false);
    for (int i = 0; i < POWERS_AROUND; i++)
        scale[i] = around(p->scale[qparam], i);
}

static void take_powers(void *argument, size_t qparam, const double *error)
{
    const struct powers *p = argument;
    memcpy(p->error + qparam * POWERS_AROUND, error, POWERS_AROUND * sizeof *error);
}

int qobs_search_powers(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                       const qobs_plan *plan, const unsigned char *data, float *scale, const void *zero_point, double *workspace,
                       double error[POWERS_AROUND])
{
    const size_t qparams = (size_t)plan->qparams;
    struct powers p = {.number = qobs_quark_number(config->quark_dtype),
                       .per_tensor = config->preset->granularity == GRANULARITY_TENSOR,
                       .scale = scale,
                       .zero_point = zero_point,
                       .error = workspace};
    const struct candidates c = {.count = POWERS_AROUND,
                                 .ignore_nonfinite = ignores_nonfinite(config),
                                 .argument = &p,
                                 .prepare = prepare_powers,
                                 .take = take_powers};
    qobs_candidates_search(runtime, kernels, plan, data, &c, workspace + qparams * POWERS_AROUND);
    memset(error, 0, POWERS_AROUND * sizeof *error);
    for (size_t q = 0; q < qparams; q++)
        for (int i = 0; i < POWERS_AROUND; i++)
            error[i] += p.error[q * POWERS_AROUND + (size_t)i];
    int best = -1;
    double quant_min = INFINITY;
    for (int i = 0; i < POWERS_AROUND; i++)
        if (error[i] < quant_min) {
            best = i;
            quant_min = error[i];
        }
    for (size_t q = 0; best >= 0 && q < qparams; q++)
        scale[q] = around(scale[q], best);
    return best;
}

/* ---- Blocks
 * ---------------------------------------------------------------------------------------------------------------- */

struct blocks {
    const qobs_config *config;
    qobs_dtype dtype;
    struct qobs_quantizer quantizer;
    const unsigned char *amax;
    int32_t *best_step;
    double *error, *error_before;
};

size_t qobs_search_blocks_workspace(const qobs_plan *plan, const qobs_config *config)
{
    return qobs_candidates_workspace(plan, (size_t)config->scope + 1);
}

static double amax_of(const struct blocks *b, size_t qparam)
{
    return qobs_element(b->amax + qparam * qobs_dtype_size(b->dtype), b->dtype);
}

static void prepare_block(void *argument, size_t qparam, struct qobs_quantizer *quantizer, float *scale)
{
    const struct blocks *b = argument;
    const double exponent = qobs_ceil_log2(b->dtype, amax_of(b, qparam)) - qobs_quark_element(b->config).emax;
    *quantizer = b->quantizer;
    for (int step = 0; step <= b->config->scope; step++)
        scale[step] = (float)qobs_round_to(b->dtype, exp2(exponent - step));
}

static void take_block(void *argument, size_t qparam, const double *error)
{
    const struct blocks *b = argument;
    const bool zeros = amax_of(b, qparam) == 0;
    int32_t best = -1;
    double quant_min = INFINITY;
    for (int step = 0; step <= b->config->scope; step++)
        if (error[step] < quant_min) {
            best = step;
            quant_min = error[step];
        }
    b->best_step[qparam] = best < 0 || zeros ? 0 : best;
    b->error[qparam] = zeros ? 0 : best < 0 ? error[0] : quant_min;
    b->error_before[qparam] = zeros ? 0 : error[0];
}

/* The format of the elements, by Quark's name of the dtype. */
static const qobs_format *element_format(const qobs_config *config)
{
    return qobs_format_find(qobs_quark_dtype_text(config->quark_dtype));
}

void qobs_search_blocks(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                        const qobs_plan *plan, const unsigned char *data, const void *amax, double *workspace, int32_t *best_step,
                        double *error, double *error_before)
{
    struct blocks b = {.config = config,
                       .dtype = plan->dtype,
                       .amax = amax,
                       .best_step = best_step,
                       .error = error,
                       .error_before = error_before};
    const struct candidates c = {.count = (size_t)config->scope + 1,
                                 .ignore_nonfinite = ignores_nonfinite(config),
                                 .argument = &b,
                                 .prepare = prepare_block,
                                 .take = take_block};
    qobs_quantizer_for_format(&b.quantizer, element_format(config));
    qobs_candidates_search(runtime, kernels, plan, data, &c, workspace);
}

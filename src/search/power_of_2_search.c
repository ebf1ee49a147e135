/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's PerTensorPowOf2MinMSEObserver and PerChannelPowOf2MinMSEObserver. The candidates are the formula's
 * power-of-two scales, times 4, 2, 1, 1/2 and 1/4, the same factor for all qparams. The one with the smallest squared
 * error over all elements of the batch is counted in the mode of all batches. */
#include <math.h>

#include "measure/accumulators.h"
#include "plan/plan.h"
#include "search/search_errors.h"

enum { SCALES = 5, UNCHANGED = 2 };

static size_t steps(const struct range_params *params)
{
    (void)params;
    return SCALES;
}

/* Errors of every qparam first, then partial sums. */
static size_t workspace(const struct range_params *params, const qobs_plan *plan)
{
    (void)params;
    return (size_t)plan->qparams * SCALES + qobs_candidates_workspace(plan, SCALES, 0);
}

struct power_search {
    const struct exponent_params *params;
    const float *scale;
    const void *zero_point;
    double *error; /* [qparams][SCALES] */
};

static float scale_at(float scale, int i)
{
    const double limited = scale < 0x1p-127f ? 0x1p-127 : scale > 0x1p127f ? 0x1p127 : (double)scale;
    return (float)ldexp(limited, UNCHANGED - i);
}

/* Upstream rounds, adds the zero point and clamps. Clamping to limits less the zero point is the same. */
static void prepare(void *argument, size_t qparam, struct quantizer *quantizer, float *scale)
{
    const struct power_search *p = argument;
    const double zero_point = p->params->float_zero_points ? (double)((const float *)p->zero_point)[qparam]
                                                           : (double)((const int32_t *)p->zero_point)[qparam];
    qobs_quantizer_for_integers(quantizer, (int64_t)(p->params->quant_min - zero_point),
                                (int64_t)(p->params->quant_max - zero_point), false);
    for (int i = 0; i < SCALES; i++)
        scale[i] = scale_at(p->scale[qparam], i);
}

static void store(void *argument, size_t qparam, const double *error)
{
    const struct power_search *p = argument;
    memcpy(p->error + qparam * SCALES, error, SCALES * sizeof *error);
}

/* Replaces the scales by the best candidate, the first of several. Returns its index, or -1 if every error is NaN or
 * infinite. */
static int choose(size_t qparams, const double *errors, float *scale)
{
    double total[SCALES] = {0}, min = INFINITY;
    int best = -1;
    for (size_t q = 0; q < qparams; q++)
        for (int i = 0; i < SCALES; i++)
            total[i] += errors[q * SCALES + (size_t)i];
    for (int i = 0; i < SCALES; i++)
        if (total[i] < min) {
            best = i;
            min = total[i];
        }
    for (size_t q = 0; best >= 0 && q < qparams; q++)
        scale[q] = scale_at(scale[q], best);
    return best;
}

/* A batch for which the formula fails is not counted. */
static void search(const struct search_batch *b, const struct search_state *s)
{
    const size_t next = s->mode_count->candidates, qparams = s->record->qparams;
    float *scale = (float *)(void *)qobs_mode_scale(s->mode_count, next);
    void *zero_point = qobs_mode_zero_point(s->mode_count, next);
    const struct range_view ranges = {
        .dtype = s->dtype, .n = s->qparams, .rank = s->rank, .min = s->min, .max = s->max};
    const bool counted = qobs_formula_qparams(b->formula, &ranges, scale, zero_point, NULL) == QOBS_OK;
    int best = -1;
    if (counted) {
        struct power_search p = {
            .params = &s->params->exponent, .scale = scale, .zero_point = zero_point, .error = b->workspace};
        const struct candidates c = {.count = SCALES, .argument = &p, .prepare = prepare, .store = store};
        qobs_candidates_search(b, s, &c, b->workspace + qparams * SCALES);
        best = choose(qparams, p.error, scale);
        qobs_mode_add(s->mode_count, 1);
    }
    for (size_t q = 0; q < qparams; q++) {
        const double *error = b->workspace + q * SCALES;
        s->record->best_step[q] = best;
        s->record->error_before[q] = counted ? error[UNCHANGED] : (double)NAN;
        s->record->error[q] = best >= 0 ? error[best] : s->record->error_before[q];
    }
}

const struct range_ops qobs_range_power_of_2 = {
    .state = &(const struct state_range){.steps = steps, .min_step = -1, .workspace = workspace, .search = search}};

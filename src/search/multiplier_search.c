/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "search/search_errors.h"

#include "number/grid.h"
#include "number/multiply_add.h"
#include "quantize/fake_quantize.h"

static size_t steps(const struct range_params *params) { return params->multiplier.count; }

static size_t workspace(const struct range_params *params, const qobs_plan *plan)
{
    return qobs_candidates_workspace(plan, params->multiplier.count, params->hessian_block);
}

/* torch.linspace in float, from both ends and with fused multiply-add. */
float qobs_multiplier(const struct multiplier_params *params, size_t i)
{
    const size_t n = params->count;
    const float start = (float)params->start, stop = (float)params->stop;
    const float step = n > 1 ? (stop - start) / (float)(n - 1) : 0;
    return i < n / 2 || n == 1 ? multiply_add(step, (float)i, start) : multiply_add(-step, (float)(n - 1 - i), stop);
}

float qobs_e4m3_multiplier(size_t i) { return qobs_format_decode(qobs_format_find("fp8_e4m3"), (uint32_t)i + 1) / 448; }

/* The first of the smallest errors; NaN counts as the smallest, as in torch.argmin. */
static size_t argmin(const double *error, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n && !isnan(error[best]); i++)
        if (error[i] < error[best] || isnan(error[i]))
            best = i;
    return best;
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static int check_weights(const struct search_batch *b, const struct search_reference *r, qobs_error *error)
{
    const struct view *v = &b->plan->value;
    const struct axis *last = &b->plan->axis[b->plan->axes - 1];
    if (r->weight && (v->ndim == 0 || v->strides[v->ndim - 1] != last->stride || (int64_t)r->weights != last->extent))
        return qobs_invalid(error, "value: its groups are not %zu long, as the error weights that were given",
                            r->weights);
    return QOBS_OK;
}

/* A block of the Hessian lies in one qparam. */
static int check_hessian(const struct search_batch *b, qobs_error *error)
{
    const struct shape *range = &b->plan->range;
    if (b->gram && range->ndim > 1 && range->extent[range->ndim - 1] > 1)
        return qobs_invalid(error, "value: axis keeps its last dimension, which hessian_block_size needs reduced");
    return QOBS_OK;
}

static int check_multipliers(const struct search_batch *b, const struct search_state *s, const void *min,
                             const char *name, qobs_error *error)
{
    const struct search_reference *r = s->reference;
    const struct shape *shape = &b->plan->range;
    const struct multiplier_params *p = &s->params->multiplier;
    const bool is_unsigned = !p->format && p->quant_min == 0;
    (void)name;
    for (size_t q = 0; is_unsigned && q < s->qparams; q++)
        if (((const float *)min)[q] < 0)
            return qobs_invalid(error, "value: has negative elements, which unsigned=true does not take");
    if (r->amax && !qobs_same_shape(&r->shape, shape))
        return qobs_invalid(error,
                            "value: gives %zu magnitudes in %d dimensions, the amax that was given has %zu in %d",
                            s->qparams, shape->ndim, r->count, r->shape.ndim);
    RETURN_IF_FAILED(check_hessian(b, error));
    return check_weights(b, r, error);
}

static int check_e4m3(const struct search_batch *b, const struct search_state *s, const void *min, const char *name,
                      qobs_error *error)
{
    (void)min;
    if (b->batches > 0)
        return qobs_invalid(error, "value: %s takes one tensor, reset it before another", name);
    return check_weights(b, s->reference, error);
}

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

/* Upstream divides by the factor; for e4m3 it multiplies by the reciprocal in float. */
static void factors_of(const struct multiplier_params *params, float amax, float *up, double *down)
{
    *up = qobs_amax_factor(params->format != NULL, (float)params->quant_max, amax, params->zero_amax);
    *down = params->format ? (double)(1 / *up) : amax <= params->zero_amax ? 0 : 1 / (double)*up;
}

/* amax / 6 in e4m3, under the scale that takes global_amax / 6 to 448, or with four over six to 256. */
static float nvfp4_scale(const struct multiplier_params *params, float global_amax, float amax)
{
    const float widest = params->four_over_six ? global_amax * (448.0f / 256) : global_amax;
    const float up = qobs_e4m3_factor(widest / 6, params->zero_amax), down = 1 / up;
    const float scaled = amax / 6 * up, limited = scaled > 448 ? 448 : scaled;
    const float scale = grid_round_e4m3(limited) * down;
    /* A scale of 0 makes all numbers 0 in upstream; so does a very large one. */
    return scale == 0 ? 0x1p127f : isfinite(scale) ? scale : 1;
}

struct multiplier_search {
    const struct search_state *state;
    struct quantizer quantizer;
    size_t count;
    double times;      /* upstream counts the error of a block of a Hessian for each of its elements */
    float global_amax; /* of e4m3 scales */
    float multiplier[QOBS_MAX_MULTIPLIERS];
};

/* A number times a tensor is computed in float and rounded to the dtype of the tensor. Upstream's multipliers are
 * 0-dimensional F32, so that the product with a 0-dimensional amax is F32. */
static float product(const struct search_state *s, float amax, float multiplier)
{
    const qobs_dtype dtype = s->rank == RANK_SCALAR ? QOBS_F32 : s->reference->dtype;
    return (float)qobs_round_to(dtype, (double)(amax * multiplier));
}

static void prepare_factors(void *argument, size_t qparam, struct quantizer *quantizer, float *up, double *down)
{
    const struct multiplier_search *m = argument;
    const float amax = ((const float *)(const void *)m->state->max)[qparam];
    *quantizer = m->quantizer;
    for (size_t i = 0; i < m->count; i++)
        factors_of(&m->state->params->multiplier, product(m->state, amax, m->multiplier[i]), &up[i], &down[i]);
}

static void add_errors(void *argument, size_t qparam, const double *error)
{
    const struct multiplier_search *m = argument;
    for (size_t i = 0; i < m->count; i++)
        m->state->sums[qparam * m->count + i] += m->times * error[i];
}

static void prepare_scales(void *argument, size_t qparam, struct quantizer *quantizer, float *scale)
{
    const struct multiplier_search *m = argument;
    (void)qparam;
    *quantizer = m->quantizer;
    for (size_t i = 0; i < m->count; i++)
        scale[i] = nvfp4_scale(&m->state->params->multiplier, m->global_amax, m->global_amax * m->multiplier[i]);
}

static void record(struct search_record *r, size_t qparam, const double *error, size_t n)
{
    const size_t best = argmin(error, n);
    r->best_step[qparam] = (int32_t)best;
    r->error[qparam] = error[best];
    r->error_before[qparam] = error[n - 1];
}

static void choose_scale(void *argument, size_t qparam, const double *error)
{
    const struct multiplier_search *m = argument;
    record(m->state->record, qparam, error, m->count);
}

/* ---- MseCalibrator: errors are summed over batches --------------------------------------------------------------- */

static void choose_multipliers(const struct search_state *s)
{
    const size_t n = s->params->multiplier.count;
    for (size_t q = 0; q < s->record->qparams; q++)
        record(s->record, q, s->sums + q * n, n);
}

/* The amax that is multiplied is the reference, or else that of the first batch. */
static void set_amax(const struct search_batch *b, const struct search_state *s)
{
    float *min = (float *)(void *)s->min, *max = (float *)(void *)s->max;
    if (!s->reference->amax)
        s->reference->dtype = b->plan->dtype;
    for (size_t q = 0; s->reference->amax && q < s->reference->count; q++) {
        max[q] = s->reference->amax[q];
        min[q] = -max[q];
    }
}

static void search_multipliers(const struct search_batch *b, const struct search_state *s)
{
    const struct multiplier_params *p = &s->params->multiplier;
    struct multiplier_search m = {
        .state = s, .count = p->count, .times = b->gram ? (double)s->params->hessian_block : 1};
    const struct candidates c = {
        .count = m.count, .argument = &m, .prepare_factors = prepare_factors, .store = add_errors};
    if (b->batches == 0)
        set_amax(b, s);
    if (p->format)
        qobs_quantizer_for_format(&m.quantizer, p->format);
    else
        qobs_quantizer_for_integers(&m.quantizer, p->quant_min, p->quant_max, false);
    for (size_t i = 0; i < m.count; i++)
        m.multiplier[i] = qobs_multiplier(p, i);
    qobs_candidates_search(b, s, &c, b->workspace);
    choose_multipliers(s);
}

static void read_amax(const struct search_state *s, float *amax)
{
    const float *max = (const float *)(const void *)s->max;
    for (size_t q = 0; q < s->record->qparams; q++)
        amax[q] = max[q] * qobs_multiplier(&s->params->multiplier, (size_t)s->record->best_step[q]);
}

const struct range_ops qobs_range_multiplier = {.reads = READS_MULTIPLIERS,
                                                .state = &(const struct state_range){.steps = steps,
                                                                                     .reference = REFERENCE_OF_QPARAMS,
                                                                                     .sums = true,
                                                                                     .check = check_multipliers,
                                                                                     .workspace = workspace,
                                                                                     .search = search_multipliers,
                                                                                     .after_merge = choose_multipliers,
                                                                                     .amax = read_amax}};

/* ---- NVFP4MSECalibrator: one tensor ------------------------------------------------------------------------------ */

/* The result replaces the amax of every block. */
static void search_e4m3(const struct search_batch *b, const struct search_state *s)
{
    float *min = (float *)(void *)s->min, *max = (float *)(void *)s->max;
    struct multiplier_search m = {.state = s, .count = s->params->multiplier.count};
    const struct candidates c = {.count = m.count, .argument = &m, .prepare = prepare_scales, .store = choose_scale};
    for (size_t q = 0; q < s->record->qparams; q++)
        m.global_amax = max[q] > m.global_amax || max[q] != max[q] ? max[q] : m.global_amax;
    if (s->reference->amax)
        m.global_amax = s->reference->amax[0];
    qobs_quantizer_for_format(&m.quantizer, qobs_format_find("fp4_e2m1"));
    for (size_t i = 0; i < m.count; i++)
        m.multiplier[i] = qobs_e4m3_multiplier(i);
    qobs_candidates_search(b, s, &c, b->workspace);
    for (size_t q = 0; q < s->record->qparams; q++) {
        max[q] = m.global_amax * qobs_e4m3_multiplier((size_t)s->record->best_step[q]);
        min[q] = -max[q];
    }
}

const struct range_ops qobs_range_e4m3 = {.reads = READS_FOUR_OVER_SIX,
                                          .state = &(const struct state_range){.steps = steps,
                                                                               .reference = REFERENCE_OF_TENSOR,
                                                                               .check = check_e4m3,
                                                                               .workspace = workspace,
                                                                               .search = search_e4m3}};

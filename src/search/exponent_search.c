/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's PerBlockMXDiffsObserver. The first candidate of a block is 2^(ceil(log2(amax)) - emax) with the amax of all
 * batches; each further one has the exponent below, `scope` of them. The one with the smallest squared error on the
 * last batch wins. */

#include "number/convert.h"
#include "number/exponent.h"
#include "number/native.h"
#include "search/search_errors.h"

#define NATIVE_BODY "number/exponent.inl.h"
#include "number/native_each.inl.h"

static size_t steps(const struct range_params *params) { return (size_t)params->exponent.scope + 1; }

static size_t workspace(const struct range_params *params, const qobs_plan *plan)
{
    return qobs_candidates_workspace(plan, steps(params), 0);
}

struct exponent_search {
    const struct search_state *state;
    struct quantizer quantizer;
};

static double amax_of(const struct search_state *s, size_t qparam)
{
    return qobs_element(s->max + qparam * qobs_dtype_size(s->dtype), s->dtype);
}

/* ceil(log2(amax)) with the logarithm rounded to `dtype`. */
static double ceil_log2(qobs_dtype dtype, double amax)
{
    double exponent = 0;
    FOR_NATIVE(dtype, exponent = integer_log2, amax, true)
    return exponent;
}

/* The exponent of the first candidate. */
static double first_exponent(const struct search_state *s, size_t qparam)
{
    return ceil_log2(s->dtype, amax_of(s, qparam)) - s->params->exponent.emax;
}

static void prepare(void *argument, size_t qparam, struct quantizer *quantizer, float *scale)
{
    const struct exponent_search *e = argument;
    const double exponent = first_exponent(e->state, qparam);
    *quantizer = e->quantizer;
    for (int step = 0; step <= e->state->params->exponent.scope; step++)
        scale[step] = (float)qobs_round_to(e->state->dtype, exp2(exponent - step));
}

/* The first of the smallest errors; step 0 if all are NaN. Blocks of zeros have no error. */
static void store(void *argument, size_t qparam, const double *error)
{
    const struct exponent_search *e = argument;
    const bool zeros = amax_of(e->state, qparam) == 0;
    struct search_record *record = e->state->record;
    int32_t best = -1;
    double min = INFINITY;
    for (int step = 0; step <= e->state->params->exponent.scope; step++)
        if (error[step] < min) {
            best = step;
            min = error[step];
        }
    record->best_step[qparam] = best < 0 || zeros ? 0 : best;
    record->error[qparam] = zeros ? 0 : best < 0 ? error[0] : min;
    record->error_before[qparam] = zeros ? 0 : error[0];
}

static void search(const struct search_batch *b, const struct search_state *s)
{
    struct exponent_search e = {.state = s};
    const struct candidates c = {.count = steps(s->params), .argument = &e, .prepare = prepare, .store = store};
    qobs_quantizer_for_format(&e.quantizer, s->params->exponent.format);
    qobs_candidates_search(b, s, &c, b->workspace);
}

/* ---- Merging ----------------------------------------------------------------------------------------------------- */

/* During a merge best_step holds exponents, which are far from the limits of int32. */
enum { NO_EXPONENT = INT32_MAX };

static void before_merge(const struct search_state *s)
{
    int32_t *step = s->record->best_step;
    for (size_t q = 0; q < s->record->qparams; q++) {
        const double exponent = first_exponent(s, q);
        step[q] = isfinite(exponent) ? (int32_t)exponent - step[q] : NO_EXPONENT;
    }
}

/* A block's exponent stays, if the merged amax has it among its candidates. */
static void after_merge(const struct search_state *s)
{
    const int scope = s->params->exponent.scope;
    int32_t *best = s->record->best_step;
    for (size_t q = 0; q < s->record->qparams; q++) {
        const double exponent = first_exponent(s, q);
        const double step = isfinite(exponent) && best[q] != NO_EXPONENT ? exponent - best[q] : 0;
        best[q] = step < 0 ? 0 : step > scope ? scope : (int32_t)step;
    }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Lowers each scale by its step. */
static int lower_scales(const struct search_state *s, qobs_dtype dtype, void *scale, qobs_error *error)
{
    const size_t size = qobs_dtype_size(dtype);
    for (size_t q = 0; q < s->record->qparams; q++) {
        if (isnan(s->record->error[q]))
            return qobs_fail(error, QOBS_ERROR_NO_RESULT, "scale: block %zu holds NaN once it is quantized", q);
        if (!scale)
            continue;
        unsigned char *at = (unsigned char *)scale + q * size;
        const double lowered = qobs_round_to(dtype, ldexp(qobs_element(at, dtype), -s->record->best_step[q]));
        qobs_put_element(at, dtype, lowered == 0 ? 0x1p-23 : lowered);
    }
    return QOBS_OK;
}

/* In f32; 0 is not yet replaced by eps. */
static void init_scale(const struct search_state *s, float *scale)
{
    for (size_t q = 0; q < s->qparams; q++)
        scale[q] = (float)exp2(first_exponent(s, q));
}

const struct range_ops qobs_range_exponent = {.reads = READS_SCOPE,
                                              .state = &(const struct state_range){.steps = steps,
                                                                                   .workspace = workspace,
                                                                                   .search = search,
                                                                                   .before_merge = before_merge,
                                                                                   .after_merge = after_merge,
                                                                                   .scale = lower_scales,
                                                                                   .init_scale = init_scale}};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torchao's AffineQuantizedMSEObserver: of thresholds t = max|x| / steps * i for i = 1 .. steps, the range (-t, t) with
 * the smallest mean squared error of the batch. Each operation is rounded to the dtype that torch gives it. Sums are
 * double. */
#include <math.h>

#include "base/fpenv.h"
#include "base/split.h"
#include "number/convert.h"
#include "plan/block_reader.h"
#include "stages/range_rule.h"
#include "search/search_record.h"

enum { TOGETHER = 32 }; /* candidates whose errors are computed together */

struct line_search {
    const struct search_batch *batch;
    const struct search_state *state;
    const struct line_params *params;
    struct block_tasks tasks;
    qobs_dtype value, scale, product, sum; /* dtypes of x, of scales, of x / scale, of that with the zero point */
    qobs_dtype zero_point;
};

/* Candidates first to first + n of a qparam. */
struct candidates_of {
    double scale[TOGETHER], inverse[TOGETHER], zero_point[TOGETHER], error[TOGETHER];
    size_t n;
};

static size_t steps(const struct range_params *params) { return (size_t)params->line.steps; }

static size_t workspace(const struct range_params *params, const qobs_plan *plan)
{
    struct block_tasks tasks;
    qobs_block_tasks_of(&tasks, plan, 1, BLOCK_ELEMENTS);
    return tasks.parts > 1 ? tasks.parts * (size_t)plan->qparams * steps(params) : 0;
}

static int check(const struct search_batch *b, const struct search_state *s, const void *min, const char *name,
                 qobs_error *error)
{
    (void)s, (void)min;
    if (b->plan->dtype == QOBS_F64)
        return qobs_invalid(error, "value: dtype is F64, %s takes F32, BF16 and F16", name);
    return QOBS_OK;
}

/* ---- Dtypes ------------------------------------------------------------------------------------------------------ */

static inline double round_as(qobs_dtype dtype, double x)
{
    return dtype == QOBS_F32 ? (double)(float)x : dtype == QOBS_F64 ? x : qobs_round_to(dtype, x);
}

static bool is_float(qobs_dtype dtype) { return dtype >= QOBS_F32 && dtype <= QOBS_F64; }

/* torch.promote_types of two floating-point dtypes. */
static qobs_dtype promote(qobs_dtype a, qobs_dtype b)
{
    return a == b ? a : a == QOBS_F64 || b == QOBS_F64 ? QOBS_F64 : QOBS_F32;
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

/* The threshold of candidate i of a qparam. */
static double threshold(const struct line_search *s, size_t qparam, size_t i)
{
    const size_t size = qobs_dtype_size(s->state->dtype);
    const double min = fabs(qobs_element(s->state->min + qparam * size, s->value)),
                 max = qobs_element(s->state->max + qparam * size, s->value);
    const double amax = min > max || isnan(min) ? min : max;
    return round_as(s->value, round_as(s->value, amax / s->params->steps) * (double)(i + 1));
}

static void prepare(const struct line_search *s, size_t qparam, size_t first, struct candidates_of *c)
{
    double min[TOGETHER], max[TOGETHER], scale[TOGETHER], zero_point[TOGETHER]; /* room for every dtype */
    const struct range_view ranges = {.dtype = s->value, .n = c->n, .rank = RANK_TENSOR, .min = min, .max = max};
    for (size_t i = 0; i < c->n; i++) {
        const double t = threshold(s, qparam, first + i), minus = -t;
        qobs_store_doubles(min, s->value, i, 1, &minus);
        qobs_store_doubles(max, s->value, i, 1, &t);
    }
    qobs_formula_qparams(s->batch->formula, &ranges, scale, zero_point, NULL);
    for (size_t i = 0; i < c->n; i++) {
        const unsigned char *at = (const unsigned char *)zero_point + i * qobs_dtype_size(s->zero_point);
        c->scale[i] = qobs_element((const unsigned char *)scale + i * qobs_dtype_size(s->scale), s->scale);
        c->inverse[i] = round_as(s->scale, 1 / c->scale[i]);
        c->zero_point[i] = qobs_number_of(at, s->zero_point);
        c->error[i] = 0;
    }
}

static double clamp(double x, double min, double max) { return x < min ? min : x > max ? max : x; }

static double squared_error(const struct line_search *s, const struct candidates_of *c, size_t i, double x)
{
    const double min = round_as(s->sum, s->params->quant_min), max = round_as(s->sum, s->params->quant_max);
    const double quantized = rint(round_as(s->product, x * c->inverse[i]));
    const double code = clamp(round_as(s->sum, quantized + c->zero_point[i]), min, max);
    const double shifted = round_as(s->value, round_as(s->value, code) - round_as(s->value, c->zero_point[i]));
    const double result = round_as(s->value, round_as(promote(s->value, s->scale), shifted * c->scale[i]));
    const double error = round_as(s->value, result - x);
    return round_as(s->value, error * error);
}

/* Rounds to an integer, ties to even, without a call. */
static inline float round_integer(float v)
{
    const float magnitude = fabsf(v);
    return magnitude < 0x1p23f ? copysignf((magnitude + 0x1p23f) - 0x1p23f, v) : v;
}

/* The same if all dtypes are float. */
static inline float squared_error_f32(float inverse, float scale, float zero_point, float min, float max, float x)
{
    const float v = round_integer(x * inverse) + zero_point;
    const float code = v < min ? min : v > max ? max : v, error = (code - zero_point) * scale - x;
    return error * error;
}

enum { LANES = 16 };

static double sum_f32(const struct line_search *s, const struct candidates_of *c, size_t i, const float *x, size_t n)
{
    const float min = (float)s->params->quant_min, max = (float)s->params->quant_max;
    const float inverse = (float)c->inverse[i], scale = (float)c->scale[i], zero_point = (float)c->zero_point[i];
    double lane[LANES] = {0}, sum = 0;
    for (size_t k = 0; k + LANES <= n; k += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (double)squared_error_f32(inverse, scale, zero_point, min, max, x[k + j]);
    for (size_t k = n / LANES * LANES; k < n; k++)
        lane[k % LANES] += (double)squared_error_f32(inverse, scale, zero_point, min, max, x[k]);
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

static void add_errors(const struct line_search *s, struct candidates_of *c, const float *x, size_t n)
{
    const bool narrow = s->value == QOBS_F32 && s->product == QOBS_F32 && s->sum == QOBS_F32;
    for (size_t i = 0; i < c->n; i++) {
        double sum = 0;
        for (size_t k = 0; !narrow && k < n; k++)
            sum += squared_error(s, c, i, (double)x[k]);
        c->error[i] += narrow ? sum_f32(s, c, i, x, n) : sum;
    }
}

/* ---- Choice ------------------------------------------------------------------------------------------------------ */

/* The search of a qparam in upstream's order: losses above 1e9 are not chosen, and a NaN ends the search. */
struct best {
    double loss; /* of the best candidate, or NaN */
    int32_t step;
    double chosen, last; /* losses: of `step`, without one of the last candidate; of the last candidate */
};

static void compare(const struct line_search *s, struct best *best, size_t step, double sum, int64_t elements)
{
    const double loss = round_as(s->value, sum / (double)elements);
    if (loss < best->loss)
        best->step = (int32_t)step;
    if (best->step < 0 || best->step == (int32_t)step)
        best->chosen = loss;
    best->loss = isnan(loss) || isnan(best->loss) ? (double)NAN : loss < best->loss ? loss : best->loss;
    best->last = loss;
}

static void choose(const struct line_search *s, size_t qparam, const struct best *best)
{
    const struct search_state *state = s->state;
    const size_t at = qparam * qobs_dtype_size(state->dtype);
    state->record->best_step[qparam] = best->step;
    state->record->error[qparam] = isnan(best->chosen) ? (double)NAN : best->chosen;
    state->record->error_before[qparam] = isnan(best->last) ? (double)NAN : best->last;
    if (best->step < 0)
        return;
    const double t = threshold(s, qparam, (size_t)best->step);
    qobs_put_element(state->min + at, state->dtype, -t);
    qobs_put_element(state->max + at, state->dtype, t);
}

static struct best nothing_yet(const struct line_search *s)
{
    return (struct best){.loss = round_as(s->value, 1e9), .step = -1};
}

static void search_part(void *argument, size_t index)
{
    const struct line_search *s = argument;
    const size_t n = (size_t)s->params->steps, qparams = (size_t)s->batch->plan->qparams;
    const bool ignore = s->state->params->nonfinite == NONFINITE_IGNORE;
    struct qparam_block block;
    struct candidates_of c;
    float x[1][BLOCK_ELEMENTS];
    FP_SCOPE;
    struct best best = nothing_yet(s);
    int64_t from, end;
    const size_t part = qobs_block_task_at(&s->tasks, index, &block, &from, &end);
    for (size_t first = 0; first < n; first += TOGETHER) {
        c.n = n - first < TOGETHER ? n - first : TOGETHER;
        prepare(s, block.qparam, first, &c);
        for (int64_t at = from; at < end; at += BLOCK_ELEMENTS) {
            const size_t count = qobs_block_read(&block, s->batch->plan->dtype, s->batch->data, at, end, ignore, x);
            add_errors(s, &c, x[0], count);
        }
        for (size_t i = 0; i < c.n; i++)
            if (s->tasks.parts > 1)
                s->batch->workspace[(part * qparams + block.qparam) * n + first + i] = c.error[i];
            else
                compare(s, &best, first + i, c.error[i], block.elements);
    }
    if (s->tasks.parts == 1)
        choose(s, block.qparam, &best);
}

/* Adds up the parts in their order and chooses. */
static void join_parts(const struct line_search *s, size_t qparam)
{
    const size_t n = (size_t)s->params->steps, qparams = (size_t)s->batch->plan->qparams;
    struct qparam_block block;
    struct best best = nothing_yet(s);
    qobs_block_at(&s->tasks.blocks, 0, &block);
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t part = 0; part < s->tasks.parts; part++)
            sum += s->batch->workspace[(part * qparams + qparam) * n + i];
        compare(s, &best, i, sum, block.elements);
    }
    choose(s, qparam, &best);
}

static void search(const struct search_batch *batch, const struct search_state *state)
{
    struct line_search s = {
        .batch = batch, .state = state, .params = &state->params->line, .value = batch->plan->dtype};
    const struct range_view ranges = {.dtype = s.value, .n = 1, .rank = RANK_TENSOR};
    const struct qparam_dtypes dtypes = qobs_formula_dtypes(batch->formula, &ranges);
    s.scale = dtypes.scale;
    s.zero_point = dtypes.zero_point;
    s.product = promote(s.value, s.scale);
    s.sum = is_float(s.zero_point) ? promote(s.product, s.zero_point) : s.product;
    qobs_block_tasks_of(&s.tasks, batch->plan, 1, BLOCK_ELEMENTS);
    qobs_parallel_for(batch->runtime, search_part, &s, s.tasks.count);
    for (size_t q = 0; s.tasks.parts > 1 && q < (size_t)batch->plan->qparams; q++)
        join_parts(&s, q);
}

const struct range_ops qobs_range_line = {
    .reads = READS_LINE,
    .state = &(const struct state_range){
        .steps = steps, .min_step = -1, .check = check, .workspace = workspace, .search = search}};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "search/search_errors.h"

#include <math.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/split.h"
#include "number/grid.h"
#include "plan/block_reader.h"

/* Candidates of all qparams of a block. Limits the stack of a task, because some executors have small stacks. */
enum { BLOCK_CANDIDATES = 1024 };

struct candidate_run {
    const struct search_batch *batch;
    const struct candidates *candidates;
    bool ignore_nonfinite;
    const float *weight; /* of the errors of elements; NULL: all 1 */
    struct block_tasks tasks;
    struct search_norm norm;
    int64_t chunk;   /* elements of each qparam that are read at a time: whole blocks of the Hessian */
    double *partial; /* [parts][qparams][count] if there are several parts */
};

static int64_t chunk_of(int64_t hessian_block)
{
    return hessian_block > 0 ? BLOCK_ELEMENTS / hessian_block * hessian_block : BLOCK_ELEMENTS;
}

static void tasks_of(struct block_tasks *tasks, const qobs_plan *plan, size_t count, int64_t chunk)
{
    const size_t most = BLOCK_CANDIDATES / count;
    qobs_block_tasks_of(tasks, plan, most < BLOCK_QPARAMS ? (int)most : BLOCK_QPARAMS, chunk);
}

size_t qobs_candidates_workspace(const qobs_plan *plan, size_t count, int64_t hessian_block)
{
    struct block_tasks tasks;
    tasks_of(&tasks, plan, count, chunk_of(hessian_block));
    return tasks.parts > 1 ? tasks.parts * (size_t)plan->qparams * count : 0;
}

static void drop_nonfinite(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = isfinite(x[i]) ? x[i] : 0;
}

/* Does the same as qobs_search_errors for integers that need double. */
static void wide_errors(const struct quantizer *q, const float *x, size_t n, size_t count, const float *scale,
                        double *error)
{
    const struct grid_double grid = {q->wide_min_normal, q->wide_shifter};
    for (size_t c = 0; c < count; c++)
        for (size_t i = 0; i < n; i++) {
            const double v = (double)(x[i] * (1 / scale[c]));
            const double limited = v < q->quant_min ? q->quant_min : v > q->quant_max ? q->quant_max : v;
            const double e = grid_round_double(grid, limited) * (double)scale[c] - (double)x[i];
            error[c] += e * e;
        }
}

/* Partial sums of factor_errors, for the compiler to vectorise. */
enum { LANES = 16 };

/* Adds the errors of LANES elements for one candidate. */
static inline void add_lanes(struct grid_float grid, float quant_min, float quant_max, float up, double down,
                             const float *x, const float *weight, double *lane)
{
    float rounded[LANES];
    for (int i = 0; i < LANES; i++) {
        const float v = x[i] * up, low = v < quant_min ? quant_min : v;
        rounded[i] = grid_round_float(grid, low > quant_max ? quant_max : low);
    }
    for (int i = 0; i < LANES; i++) {
        const double e = (double)rounded[i] * down - (double)x[i];
        lane[i] += weight ? (double)weight[i] * (e * e) : e * e;
    }
}

static void factor_errors(const struct quantizer *q, const float *x, const float *weight, size_t n, size_t count,
                          const float *up, const double *down, double *error)
{
    const struct grid_float grid = {q->min_normal, q->shifter};
    const float quant_min = (float)q->quant_min, quant_max = (float)q->quant_max;
    const size_t full = n / LANES * LANES;
    float last[LANES] = {0}, last_weight[LANES] = {0};
    memcpy(last, x + full, (n - full) * sizeof *x);
    if (weight)
        memcpy(last_weight, weight + full, (n - full) * sizeof *weight);
    for (size_t c = 0; c < count; c++) {
        double lane[LANES] = {0};
        if (weight)
            for (size_t i = 0; i < full; i += LANES)
                add_lanes(grid, quant_min, quant_max, up[c], down[c], x + i, weight + i, lane);
        else
            for (size_t i = 0; i < full; i += LANES)
                add_lanes(grid, quant_min, quant_max, up[c], down[c], x + i, NULL, lane);
        if (n > full) /* padding with 0 has no error */
            add_lanes(grid, quant_min, quant_max, up[c], down[c], last, weight ? last_weight : NULL, lane);
        for (size_t i = 0; i < LANES; i++)
            error[c] += lane[i];
    }
}

/* The weights of elements first to first + n. They repeat with the last axis. */
static void load_weights(const struct qparam_block *block, const float *weight, int64_t first, size_t n, float *out)
{
    const int64_t period = block->extent[block->axes - 1];
    for (size_t j = 0; j < n; j++)
        out[j] = weight[(first + (int64_t)j) % period];
}

/* The candidates of a block of qparams and their errors. Index i * count is the first one of qparam i. */
struct block_candidates {
    struct qparam_block block;
    struct quantizer quantizer[BLOCK_QPARAMS];
    float scale[BLOCK_CANDIDATES]; /* or factors before rounding */
    double down[BLOCK_CANDIDATES]; /* factors after rounding */
    double error[BLOCK_CANDIDATES];
};

static size_t qparam_of(const struct block_candidates *b, int i) { return b->block.qparam + (size_t)i * b->block.next; }

static void prepare(const struct candidates *c, struct block_candidates *b)
{
    for (int i = 0; i < b->block.qparams; i++) {
        const size_t at = (size_t)i * c->count;
        if (c->prepare_factors)
            c->prepare_factors(c->argument, qparam_of(b, i), &b->quantizer[i], b->scale + at, b->down + at);
        else
            c->prepare(c->argument, qparam_of(b, i), &b->quantizer[i], b->scale + at);
        memset(b->error + at, 0, c->count * sizeof *b->error);
    }
}

/* Adds the errors of n elements of qparam i. */
static void add_errors(const struct candidate_run *s, struct block_candidates *b, int i, const float *x,
                       const float *weight, size_t n)
{
    const struct candidates *c = s->candidates;
    const struct quantizer *quantizer = &b->quantizer[i];
    const float *const scale = b->scale + (size_t)i * c->count;
    double *const error = b->error + (size_t)i * c->count;
    if (c->prepare_factors)
        factor_errors(quantizer, x, weight, n, c->count, scale, b->down + (size_t)i * c->count, error);
    else if (quantizer->in_double)
        wide_errors(quantizer, x, n, c->count, scale, error);
    else
        qobs_search_errors(s->batch->kernels, quantizer, &s->norm, x, weight, n, c->count, scale, NULL, error);
}

/* Elements first to first + n of qparam i. Qparams are in the order of the rows: of rows, or of blocks of them. */
static void add_hessian_errors(const struct candidate_run *s, struct block_candidates *b, int i, int64_t first,
                               const float *x, size_t n)
{
    const struct gram *gram = s->batch->gram;
    const size_t at = (size_t)i * s->candidates->count;
    const struct hessian_candidates candidates = {.quantizer = &b->quantizer[i],
                                                  .count = s->candidates->count,
                                                  .up = b->scale + at,
                                                  .down = s->candidates->prepare_factors ? b->down + at : NULL};
    const int64_t length = b->block.extent[b->block.axes - 1]; /* of the qparam's part of a row */
    const int64_t start = (int64_t)qparam_of(b, i) % (gram->columns / length) * length;
    for (int64_t j = 0; j < (int64_t)n; j += gram->block)
        qobs_hessian_errors(s->batch->kernels, gram, (start + (first + j) % length) / gram->block, &candidates, x + j,
                            b->error + at);
}

static void search_part(void *argument, size_t index)
{
    const struct candidate_run *s = argument;
    const struct candidates *c = s->candidates;
    const qobs_plan *plan = s->batch->plan;
    int64_t from, end;
    struct block_candidates b;
    float values[BLOCK_QPARAMS][BLOCK_ELEMENTS], weight[BLOCK_ELEMENTS];
    const fp_mode mode = fp_enter();
    const size_t part = qobs_block_task_at(&s->tasks, index, &b.block, &from, &end);
    prepare(c, &b);
    for (int64_t first = from; first < end; first += s->chunk) {
        const size_t n = (size_t)(end - first < s->chunk ? end - first : s->chunk);
        qobs_block_read(&b.block, plan->dtype, s->batch->data, first, n, values);
        if (s->weight)
            load_weights(&b.block, s->weight, first, n, weight);
        for (int i = 0; i < b.block.qparams; i++) {
            if (s->ignore_nonfinite)
                drop_nonfinite(n, values[i]);
            if (s->batch->gram)
                add_hessian_errors(s, &b, i, first, values[i], n);
            else
                add_errors(s, &b, i, values[i], s->weight ? weight : NULL, n);
        }
    }
    for (int i = 0; i < b.block.qparams; i++) {
        double *const error = b.error + (size_t)i * c->count;
        for (size_t k = 0; k < c->count; k++) /* the payload of a sum of NaN depends on the instruction set */
            error[k] = isnan(error[k]) ? (double)NAN : error[k];
        if (s->tasks.parts == 1)
            c->store(c->argument, qparam_of(&b, i), error);
        else
            memcpy(s->partial + (part * (size_t)plan->qparams + qparam_of(&b, i)) * c->count, error,
                   c->count * sizeof *error);
    }
    fp_leave(mode);
}

void qobs_candidates_search(const struct search_batch *batch, const struct search_state *state,
                            const struct candidates *candidates, double *workspace)
{
    struct candidate_run s = {.batch = batch, .candidates = candidates, .partial = workspace};
    const size_t count = candidates->count, qparams = (size_t)batch->plan->qparams;
    s.ignore_nonfinite = state->params->nonfinite == NONFINITE_IGNORE;
    s.weight = state->reference->weight;
    qobs_search_norm(&s.norm, 2, NULL);
    s.chunk = chunk_of(state->params->multiplier.hessian_block);
    tasks_of(&s.tasks, batch->plan, count, s.chunk);
    qobs_parallel_for(batch->runtime, search_part, &s, s.tasks.count);
    for (size_t q = 0; s.tasks.parts > 1 && q < qparams; q++) {
        double *sum = workspace + q * count;
        for (size_t part = 1; part < s.tasks.parts; part++)
            for (size_t i = 0; i < count; i++)
                sum[i] += workspace[(part * qparams + q) * count + i];
        candidates->store(candidates->argument, q, sum);
    }
}

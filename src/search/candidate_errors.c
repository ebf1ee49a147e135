/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "search/search_errors.h"

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

/* Zeros up to a multiple of QOBS_SEARCH_LANES. */
static void pad(size_t n, float *x)
{
    for (; n % QOBS_SEARCH_LANES != 0; n++)
        x[n] = 0;
}

/* ---- Errors of n elements for each candidate --------------------------------------------------------------------- */

/* Functions that are not inlined, so that their arrays are not on the stack together. */
#define APART static __attribute__((noinline))

/* NaN if an element is not finite. */
static float magnitude_of(const struct kernel_table *kernels, const float *x, size_t n)
{
    float magnitude = 0;
    struct nonfinite_count nonfinite = {0};
    kernels->absmax_rows[QOBS_KERNEL_F32](x, 0, 1, n, &magnitude, 0, &nonfinite);
    return nonfinite.nan || nonfinite.inf ? NAN : magnitude;
}

/* By kernels, whose elements are prescaled. Integers or a signed float format; not in_double. */
APART void kernel_errors(const struct candidate_run *s, const struct quantizer *quantizer, const float *x,
                         const float *weight, size_t n, const float *scale, double *error)
{
    enum { CANDIDATES = 64 }; /* in one kernel call */
    const struct kernel_table *kernels = s->batch->kernels;
    const bool integers = (double)quantizer->min_normal >= quantizer->quant_max;
    _Alignas(64) float scaled[BLOCK_ELEMENTS], sum[CANDIDATES];
    _Alignas(64) float up[CANDIDATES], inverse[CANDIDATES], offset[CANDIDATES];
    const struct search_candidates arrays = {up, inverse, offset, 1};
    const float magnitude = magnitude_of(kernels, x, n);
    const int prescale_exp = qobs_search_prescale_exp((double)magnitude, QOBS_F32);
    const double unit = magnitude == magnitude ? qobs_search_error_unit(&s->norm, prescale_exp) : (double)NAN;
    const float factor = ldexpf(1, prescale_exp);
    kernels->search_load[QOBS_KERNEL_F32](x, n, (double)factor, false, scaled);
    pad(n, scaled);
    for (size_t c = 0, some; c < s->candidates->count; c += some) {
        some = s->candidates->count - c < CANDIDATES ? s->candidates->count - c : CANDIDATES;
        const size_t padded = (some + 3) / 4 * 4;
        for (size_t i = 0; i < padded; i++) {
            up[i] = fminf(scale[c + (i < some ? i : some - 1)] * factor, FLT_MAX);
            qobs_search_candidate(integers, up[i], 0, &inverse[i], &offset[i]);
        }
        kernels->search_errors(quantizer, &s->norm.errors, false, scaled, weight, n, &arrays, padded,
                               (struct prefetch_ahead){NULL, NULL}, sum);
        for (size_t i = 0; i < some; i++)
            error[c + i] += isfinite(scale[c + i]) ? (double)sum[i] * unit : (double)NAN;
    }
}

/* The same for integers that need double, without weights. */
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

enum { LANES = QOBS_SEARCH_LANES };

/* Adds the errors of LANES elements for one candidate, in loops for the compiler to vectorise. */
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

/* x and weight are padded with zeros, which have no error. */
APART void factor_errors(const struct quantizer *q, const float *x, const float *weight, size_t n, size_t count,
                         const float *up, const double *down, double *error)
{
    const struct grid_float grid = {q->min_normal, q->shifter};
    const float quant_min = (float)q->quant_min, quant_max = (float)q->quant_max;
    for (size_t c = 0; c < count; c++) {
        double lane[LANES] = {0};
        if (weight)
            for (size_t i = 0; i < n; i += LANES)
                add_lanes(grid, quant_min, quant_max, up[c], down[c], x + i, weight + i, lane);
        else
            for (size_t i = 0; i < n; i += LANES)
                add_lanes(grid, quant_min, quant_max, up[c], down[c], x + i, NULL, lane);
        for (size_t i = 0; i < LANES; i++)
            error[c] += lane[i];
    }
}

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

/* e^T H e of the elements of a block of the gram. */
APART void hessian_errors(const struct candidate_run *s, int64_t index, const struct quantizer *quantizer,
                          const float *up, const double *down, const float *x, double *error)
{
    static const struct optimal_number e2m1 = {.e2m1 = true};
    const struct kernel_table *kernels = s->batch->kernels;
    const struct gram *gram = s->batch->gram;
    const double *const h = qobs_gram_block(gram, index).sum;
    const size_t n = (size_t)gram->block, most = HESSIAN_ERRORS / n;
    const double unit = isnan(magnitude_of(kernels, x, n)) ? (double)NAN : 1 / (double)gram->tokens;
    double e[HESSIAN_ERRORS], product[HESSIAN_ERRORS];
    for (size_t c = 0, some; c < s->candidates->count; c += some) {
        some = s->candidates->count - c < most ? s->candidates->count - c : most;
        for (size_t i = 0; i < some; i++)
            if (s->candidates->prepare_factors)
                factor_residual(quantizer, x, n, up[c + i], down[c + i], e + i * n);
            else
                kernels->hessian_residual(&e2m1, x, n, up[c + i], 0, e + i * n);
        memset(product, 0, some * n * sizeof *product);
        kernels->hessian_product(e, n, some, h, n, n, n, product, n);
        for (size_t i = 0; i < some; i++)
            error[c + i] += dot(e + i * n, product + i * n, n) * unit;
    }
}

/* ---- Blocks of qparams ------------------------------------------------------------------------------------------- */

/* The weights of elements first to first + n. They repeat with the last axis. */
static void load_weights(const struct qparam_block *block, const float *weight, int64_t first, size_t n, float *out)
{
    const int64_t period = block->extent[block->axes - 1];
    for (size_t j = 0; j < n; j++)
        out[j] = weight[(first + (int64_t)j) % period];
    pad(n, out);
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

/* Adds the errors of elements first to first + n of qparam i. With a gram, qparams are in the order of the rows: of
 * rows, or of blocks of them. */
static void add_errors(const struct candidate_run *s, struct block_candidates *b, int i, int64_t first, const float *x,
                       const float *weight, size_t n)
{
    const struct candidates *c = s->candidates;
    const struct gram *gram = s->batch->gram;
    const struct quantizer *quantizer = &b->quantizer[i];
    const float *const scale = b->scale + (size_t)i * c->count;
    const double *const down = b->down + (size_t)i * c->count;
    double *const error = b->error + (size_t)i * c->count;
    if (gram) {
        const int64_t length = b->block.extent[b->block.axes - 1]; /* of the qparam's part of a row */
        const int64_t start = (int64_t)qparam_of(b, i) % (gram->columns / length) * length;
        for (int64_t j = 0; j < (int64_t)n; j += gram->block)
            hessian_errors(s, (start + (first + j) % length) / gram->block, quantizer, scale, down, x + j, error);
    } else if (c->prepare_factors) {
        factor_errors(quantizer, x, weight, n, c->count, scale, down, error);
    } else if (quantizer->in_double) {
        wide_errors(quantizer, x, n, c->count, scale, error);
    } else {
        kernel_errors(s, quantizer, x, weight, n, scale, error);
    }
}

static void search_part(void *argument, size_t index)
{
    const struct candidate_run *s = argument;
    const struct candidates *c = s->candidates;
    const qobs_plan *plan = s->batch->plan;
    int64_t from, end;
    struct block_candidates b;
    _Alignas(64) float values[BLOCK_QPARAMS][BLOCK_ELEMENTS], weight[BLOCK_ELEMENTS];
    FP_SCOPE;
    const size_t part = qobs_block_task_at(&s->tasks, index, &b.block, &from, &end);
    prepare(c, &b);
    for (int64_t first = from; first < end; first += s->chunk) {
        const int64_t after = end - first < s->chunk ? end : first + s->chunk;
        const size_t n =
            qobs_block_read(&b.block, plan->dtype, s->batch->data, first, after, s->ignore_nonfinite, values);
        if (s->weight)
            load_weights(&b.block, s->weight, first, n, weight);
        for (int i = 0; i < b.block.qparams; i++) {
            pad(n, values[i]);
            add_errors(s, &b, i, first, values[i], s->weight ? weight : NULL, n);
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
}

void qobs_candidates_search(const struct search_batch *batch, const struct search_state *state,
                            const struct candidates *candidates, double *workspace)
{
    struct candidate_run s = {.batch = batch, .candidates = candidates, .partial = workspace};
    const size_t count = candidates->count, qparams = (size_t)batch->plan->qparams;
    s.ignore_nonfinite = state->params->nonfinite == NONFINITE_IGNORE;
    s.weight = state->reference->weight;
    qobs_search_norm(&s.norm, 2, NULL);
    s.chunk = chunk_of(state->params->hessian_block);
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

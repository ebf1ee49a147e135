/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* OCTAV's clipping scalar (arXiv 2206.06501, equation 6) as ai-edge-quantizer computes it
 * (algorithms/uniform_quantize/octav.py): from 1 on,
 *
 *     c = sum of |x| >= c / (noise * count of |x| < c + count of |x| >= c)
 *
 * for all qparams together, until no scalar changes or after params->iterations. The state's ranges become
 * (-bound, bound), with the largest magnitude, clipped by c, as the bound. The error of a bound is what OCTAV expects:
 * noise * bound^2 for an element within it, and (|x| - bound)^2 for others.
 *
 * Sums have the bits of numpy 2: a run of adjacent elements that are selected is summed in pairs, and runs are added in
 * order. A run ends if memory of a C-contiguous tensor goes on with another qparam. */
#include <math.h>

#include "base/fpenv.h"
#include "base/split.h"
#include "plan/block_reader.h"
#include "stages/range_rule.h"
#include "search/pairwise.h"
#include "search/search_record.h"

struct octav_search {
    const struct search_batch *batch;
    const struct search_state *state;
    const struct octav_params *params;
    struct qparam_blocks blocks;
    int64_t stretch;     /* elements of a qparam that are adjacent in a C-contiguous tensor */
    float *before, *now; /* [qparams] scalars */
};

static size_t steps(const struct range_params *params) { return (size_t)params->octav.iterations; }

static size_t workspace(const struct range_params *params, const qobs_plan *plan)
{
    (void)params;
    return (size_t)plan->qparams; /* two floats each */
}

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

struct octav_reader {
    const struct octav_search *search;
    struct qparam_block block;
    int64_t from;
    size_t n; /* elements in x, from that one on */
    float x[BLOCK_QPARAMS][BLOCK_ELEMENTS];
    float leaf[1][BLOCK_ELEMENTS]; /* blocks whose runs have several elements have one qparam */
};

static size_t read_elements(struct octav_reader *r, int64_t first, int64_t end, float out[][BLOCK_ELEMENTS])
{
    const struct search_batch *b = r->search->batch;
    return qobs_block_read(&r->block, b->plan->dtype, b->data, first, end,
                           r->search->state->params->nonfinite == NONFINITE_IGNORE, out);
}

static bool read_next(struct octav_reader *r)
{
    r->from += (int64_t)r->n;
    if (r->from >= r->block.elements)
        return false;
    r->n = read_elements(r, r->from, r->block.elements, r->x);
    return true;
}

static void open_block(struct octav_reader *r, const struct octav_search *search, size_t index)
{
    r->search = search;
    r->from = 0;
    r->n = 0;
    qobs_block_at(&search->blocks, index, &r->block);
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

/* Elements first to first + n of a qparam of the block, read again unless all are at hand. */
static float pairwise_sum(struct octav_reader *r, int qparam, int64_t first, int64_t n)
{
    if (n > PAIRWISE_LEAF) {
        const int64_t half = pairwise_half(n);
        const float low = pairwise_sum(r, qparam, first, half);
        return low + pairwise_sum(r, qparam, first + half, n - half);
    }
    if (first >= r->from)
        return pairwise_leaf_f32(r->x[qparam] + (first - r->from), (size_t)n);
    read_elements(r, first, first + n, r->leaf);
    return pairwise_leaf_f32(r->leaf[0], (size_t)n);
}

/* The elements on one side of zero that are not within the range. */
struct side {
    float sum;
    int64_t count, run; /* first element of the run that has not ended; -1: none */
};

enum { ABOVE, BELOW, SIDES };

static void add_side(struct octav_reader *r, int qparam, float c, int which, struct side *s)
{
    const float *const x = r->x[qparam];
    int64_t left = r->search->stretch - r->from % r->search->stretch; /* elements up to the end of a run */
    for (size_t i = 0; i < r->n; i++) {
        const bool selected = which == ABOVE ? x[i] >= c : x[i] <= -c, ends = --left == 0;
        const int64_t at = r->from + (int64_t)i;
        s->count += selected;
        s->run = selected && s->run < 0 ? at : s->run;
        left = ends ? r->search->stretch : left;
        if (s->run < 0 || (selected && !ends))
            continue;
        s->sum += pairwise_sum(r, qparam, s->run, at + selected - s->run);
        s->run = -1;
    }
}

/* Counts are added in double and rounded, as numpy adds integers to float32. */
static float next_scalar(const struct octav_search *s, const struct side side[SIDES], int64_t n)
{
    const float noise = s->params->noise;
    float clipped = (float)((double)(float)side[ABOVE].count + (double)side[BELOW].count);
    clipped *= 1 - noise;
    /* The product is float32 for a tensor, whose count is an integer of Python, else float64. */
    const float all =
        s->params->whole ? clipped + noise * (float)n : (float)((double)clipped + (double)noise * (double)n);
    return (side[ABOVE].sum - side[BELOW].sum) / all;
}

static void iterate_block(void *argument, size_t index)
{
    const struct octav_search *s = argument;
    struct side side[BLOCK_QPARAMS][SIDES];
    struct octav_reader r;
    FP_SCOPE;
    open_block(&r, s, index);
    for (int i = 0; i < SIDES * r.block.qparams; i++)
        side[i / SIDES][i % SIDES] = (struct side){.run = -1};
    while (read_next(&r))
        for (int i = 0; i < SIDES * r.block.qparams; i++) {
            const int q = i / SIDES;
            add_side(&r, q, s->before[r.block.qparam + (size_t)q * r.block.next], i % SIDES, &side[q][i % SIDES]);
        }
    for (int q = 0; q < r.block.qparams; q++)
        s->now[r.block.qparam + (size_t)q * r.block.next] = next_scalar(s, side[q], r.block.elements);
}

/* numpy.allclose. */
static bool all_close(const struct octav_search *s)
{
    bool close = true;
    for (size_t q = 0; q < s->state->qparams; q++) {
        const float a = s->before[q], b = s->now[q];
        close &= (fabsf(a - b) <= 1e-8F + 1e-5F * fabsf(b) && isfinite(b)) || a == b;
    }
    return close;
}

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

/* numpy.maximum and numpy.minimum: NaN stays. */
static float larger(float a, float b) { return isnan(a) || a > b ? a : b; }
static float smaller(float a, float b) { return isnan(a) || a < b ? a : b; }

/* Functions that are not inlined, so that the compiler does not make vectors of loops over the qparams of a block. */
#define APART static __attribute__((noinline))

/* Clips the range of a qparam with n elements; returns the bound. */
APART double clip_range(const struct octav_search *s, size_t q, int64_t n)
{
    float *min = (float *)(void *)s->state->min, *max = (float *)(void *)s->state->max;
    const float amax = larger(fabsf(min[q]), fabsf(max[q]));
    const float bound = smaller(larger(amax, s->params->least), smaller(s->now[q], s->params->most));
    s->state->record->error_before[q] = (double)s->params->noise * (double)amax * (double)amax * (double)n;
    min[q] = -bound;
    max[q] = bound;
    return (double)bound;
}

/* Adds the errors of n elements to `sum`. inside: that of one within the range. */
APART double add_errors(const float *x, size_t n, double bound, double inside, double sum)
{
    for (size_t i = 0; i < n; i++) {
        const double beyond = fabs((double)x[i]) - bound;
        sum += beyond > 0 ? beyond * beyond : inside;
    }
    return sum;
}

static void clip_block(void *argument, size_t index)
{
    const struct octav_search *s = argument;
    double bound[BLOCK_QPARAMS] = {0};
    struct octav_reader r;
    FP_SCOPE;
    open_block(&r, s, index);
    for (int i = 0; i < r.block.qparams; i++) {
        const size_t q = r.block.qparam + (size_t)i * r.block.next;
        bound[i] = clip_range(s, q, r.block.elements);
        s->state->record->error[q] = 0;
    }
    while (read_next(&r))
        for (int i = 0; i < r.block.qparams; i++) {
            double *const error = &s->state->record->error[r.block.qparam + (size_t)i * r.block.next];
            *error = add_errors(r.x[i], r.n, bound[i], (double)s->params->noise * bound[i] * bound[i], *error);
        }
}

static int64_t stretch_of(const struct octav_params *params, const struct view *value)
{
    const int kept = params->dimension < 0 ? params->dimension + value->ndim : params->dimension;
    int64_t after = 1;
    if (params->block > 0)
        return params->block;
    if (params->whole || value->shape[kept] == 1)
        return value->elements;
    for (int i = kept + 1; i < value->ndim; i++)
        after *= value->shape[i];
    return after;
}

static void search(const struct search_batch *batch, const struct search_state *state)
{
    const struct octav_params *params = &state->params->octav;
    struct octav_search s = {.batch = batch,
                             .state = state,
                             .params = params,
                             .stretch = stretch_of(params, &batch->plan->value),
                             .before = (float *)(void *)batch->workspace,
                             .now = (float *)(void *)batch->workspace + state->qparams};
    int32_t done = 0;
    /* Adjacent channels are read together; runs of several elements may be read again, for one qparam. */
    qobs_blocks_of(&s.blocks, batch->plan, s.stretch > 1 ? 1 : BLOCK_QPARAMS);
    for (size_t q = 0; q < state->qparams; q++)
        s.now[q] = 1;
    for (bool close = false; done < params->iterations && !close; done++) {
        float *const before = s.before;
        s.before = s.now;
        s.now = before;
        qobs_parallel_for(batch->runtime, iterate_block, &s, s.blocks.count);
        close = all_close(&s);
    }
    qobs_parallel_for(batch->runtime, clip_block, &s, s.blocks.count);
    state->record->stop_step = done;
    for (size_t q = 0; q < state->qparams; q++)
        state->record->best_step[q] = done - 1;
}

const struct range_ops qobs_range_octav = {
    .state = &(const struct state_range){.steps = steps, .min_step = 0, .workspace = workspace, .search = search}};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The clip of OSCAR, get_clip_bounds in algorithms/uniform_quantize/oscar.py of ai-edge-quantizer. Magnitudes a of a
 * qparam have masses m, the mean squares of the activations of their columns. The bound c has the smallest
 *
 *     c^2 * M / (12 levels^2) + sum of (a - c)^2 * m over a > c        M: sum of m
 *
 * which is quadratic between two magnitudes. All arithmetic is double, in the order of upstream. Equal magnitudes are
 * in the order of their columns; upstream's order of these depends on the sorting that numpy chooses for the
 * processor. The state's ranges become (-c, c). */
#include <math.h>

#include "base/fpenv.h"
#include "base/split.h"
#include "number/convert.h"
#include "number/number.h"
#include "plan/block_reader.h"
#include "stages/range_rule.h"
#include "search/pairwise.h"
#include "search/search_record.h"

enum { OSCAR_STEPS = 2, MOST_SORTERS = 64 };

struct oscar_search {
    const struct search_batch *batch;
    const struct search_state *state;
    const struct oscar_params *params;
    struct qparam_blocks blocks;
    size_t most, sorters; /* elements of a qparam; parts of the qparams that run at once */
    int64_t columns;
    double *mass;    /* [columns] */
    uint64_t *order; /* [sorters][2][most] */
};

static size_t steps(const struct range_params *params)
{
    (void)params;
    return OSCAR_STEPS;
}

static size_t sorters_of(const qobs_plan *plan)
{
    return plan->qparams < MOST_SORTERS ? (size_t)plan->qparams : MOST_SORTERS;
}

static size_t workspace(const struct range_params *params, const qobs_plan *plan)
{
    (void)params;
    return (size_t)plan->value.shape[1] + 2 * sorters_of(plan) * (size_t)qobs_elements_most(plan);
}

static int check(const struct search_batch *b, const struct search_state *s, const void *min, const char *name,
                 qobs_error *error)
{
    (void)s, (void)min;
    const struct view *v = &b->plan->value;
    if (v->ndim != 2)
        return qobs_invalid(error, "value: has %d dimensions, %s takes 2", v->ndim, name);
    if (b->importance->tokens > 0 && b->importance->columns != v->shape[1])
        return qobs_invalid(error, "value: has %lld columns, the activations had %lld", (long long)v->shape[1],
                            (long long)b->importance->columns);
    if (qobs_elements_most(b->plan) > UINT32_MAX)
        return qobs_invalid(error, "value: has %lld elements for a scale, %s takes at most 2^32 - 1",
                            (long long)qobs_elements_most(b->plan), name);
    return QOBS_OK;
}

/* ---- Masses ------------------------------------------------------------------------------------------------------ */

/* Columns without activations keep a little of the largest mass. */
static void find_masses(const struct oscar_search *s)
{
    const struct importance *importance = s->batch->importance;
    double most = 0;
    for (int64_t j = 0; j < s->columns; j++) {
        s->mass[j] = s->state->record->weighted ? importance->sum[j] / (double)importance->tokens : 1;
        most = s->mass[j] > most ? s->mass[j] : most;
    }
    const double least = most * 1e-8 + 1e-12;
    for (int64_t j = 0; j < s->columns; j++)
        s->mass[j] = s->mass[j] > least ? s->mass[j] : least;
}

static double sum_of_masses(const struct oscar_search *s, int64_t first, int64_t n)
{
    double leaf[PAIRWISE_LEAF];
    if (n > PAIRWISE_LEAF) {
        const int64_t half = pairwise_half(n);
        const double low = sum_of_masses(s, first, half);
        return low + sum_of_masses(s, first + half, n - half);
    }
    for (int64_t i = 0; i < n; i++)
        leaf[i] = s->mass[(first + i) % s->columns];
    return pairwise_leaf_f64(leaf, (size_t)n);
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

/* The upper half of an element orders it: larger magnitudes come first, NaN last. The lower half is its index. */
static uint64_t order_of(float x, uint64_t index)
{
    return (uint64_t)(UINT32_MAX - (isnan(x) ? 0 : bits_of_float(fabsf(x)) + 1)) << 32 | index;
}

static double magnitude_of(uint64_t element)
{
    const uint32_t rest = UINT32_MAX - (uint32_t)(element >> 32);
    return rest == 0 ? (double)NAN : (double)float_of_bits(rest - 1);
}

/* By the upper halves, a byte at a time; equal ones keep their order. The result is in `a` again. */
static void sort(uint64_t *a, uint64_t *b, size_t n)
{
    for (int shift = 32; shift < 64; shift += 8) {
        size_t start[257] = {0};
        for (size_t i = 0; i < n; i++)
            start[(a[i] >> shift & 255) + 1]++;
        for (int i = 0; i < 256; i++)
            start[i + 1] += start[i];
        for (size_t i = 0; i < n; i++)
            b[start[a[i] >> shift & 255]++] = a[i];
        uint64_t *const other = a;
        a = b;
        b = other;
    }
}

static void read_order(const struct oscar_search *s, const struct qparam_block *block, uint64_t *order)
{
    float x[1][BLOCK_ELEMENTS];
    const bool ignore = s->state->params->nonfinite == NONFINITE_IGNORE;
    for (int64_t at = 0; at < block->elements; at += BLOCK_ELEMENTS) {
        const size_t n = qobs_block_read(block, s->batch->plan->dtype, s->batch->data, at, block->elements, ignore, x);
        for (size_t i = 0; i < n; i++)
            order[at + (int64_t)i] = order_of(x[0][i], (uint64_t)at + i);
    }
}

/* ---- Bounds ------------------------------------------------------------------------------------------------------ */

/* numpy.clip: NaN stays. */
static double clip(double x, double min, double max)
{
    const double raised = isnan(x) || x > min ? x : min;
    return isnan(raised) || raised < max ? raised : max;
}

/* The first of the smallest, or of those that are NaN, as in numpy.argmin. */
static bool is_better(double error, double best) { return !isnan(best) && (isnan(error) || error < best); }

static void find_bound(const struct oscar_search *s, const struct qparam_block *block, uint64_t *order)
{
    const size_t n = (size_t)block->elements, q = block->qparam;
    const double levels = s->params->levels;
    const double mass = sum_of_masses(s, block->column, block->elements) + 1e-12;
    const double noise = mass / (12 * levels * levels), doubled = mass / (6 * levels * levels);
    read_order(s, block, order);
    sort(order, order + s->most, n);
    double a = magnitude_of(order[0]), bound = a, error = a * a * noise, sum = 0, first = 0, second = 0;
    s->state->record->error_before[q] = error;
    for (size_t k = 0; k < n; k++) {
        const double m = s->mass[(block->column + (int64_t)(uint32_t)order[k]) % s->columns];
        const double next = k + 1 < n ? magnitude_of(order[k + 1]) : 0;
        sum += m;
        first += a * m;
        second += a * a * m;
        const double c = clip(2 * first / (doubled + 2 * sum), next, a);
        const double e = c * c * noise + second - 2 * c * first + c * c * sum;
        if (is_better(e, error)) {
            error = e;
            bound = c;
        }
        a = next;
    }
    s->state->record->best_step[q] = bound < magnitude_of(order[0]);
    s->state->record->error[q] = error;
    const double clipped = isnan(bound) || bound > 1e-9 ? bound : 1e-9, minus = -clipped;
    qobs_store_doubles(s->state->min, s->state->dtype, q, 1, &minus);
    qobs_store_doubles(s->state->max, s->state->dtype, q, 1, &clipped);
}

static void find_bounds(void *argument, size_t sorter)
{
    const struct oscar_search *s = argument;
    struct qparam_block block;
    FP_SCOPE;
    for (size_t i = sorter; i < s->blocks.count; i += s->sorters) {
        qobs_block_at(&s->blocks, i, &block);
        find_bound(s, &block, s->order + 2 * s->most * sorter);
    }
}

static void search(const struct search_batch *batch, const struct search_state *state)
{
    struct oscar_search s = {.batch = batch,
                             .state = state,
                             .params = &state->params->oscar,
                             .most = (size_t)qobs_elements_most(batch->plan),
                             .sorters = sorters_of(batch->plan),
                             .columns = batch->plan->value.shape[1],
                             .mass = batch->workspace};
    s.order = (uint64_t *)(void *)(s.mass + s.columns);
    find_masses(&s);
    qobs_blocks_of(&s.blocks, batch->plan, 1);
    qobs_parallel_for(batch->runtime, find_bounds, &s, s.sorters);
}

const struct range_ops qobs_range_oscar = {
    .state = &(const struct state_range){
        .steps = steps, .min_step = 0, .check = check, .workspace = workspace, .search = search}};

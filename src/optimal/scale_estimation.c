/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NNCF's scale estimation (calculate_quantization_params in quantization/algorithms/weight_compression/
 * scale_estimation.py): the scale of a group starts as that of its range. A candidate is a mean of |w| / |code| over
 * the group, weighted by the largest magnitudes of the activations. It replaces the scale unless its error is larger.
 * Codes are those of the best scale so far, and then those of shrunk scales. Candidates have the bits of numpy's
 * float32. The error e^T H e is double; upstream's comes from float32 products with the activations. */

#include "base/fpenv.h"
#include "base/split.h"
#include "stages/range_rule.h"
#include "optimal/optimal.h"
#include "plan/block_reader.h"
#include "search/pairwise.h"

struct estimation {
    const struct optimal_search *search;
    const struct estimation_params *params;
    struct optimal_result *result;
    struct qparam_blocks blocks;
    const float *scale; /* of the ranges */
    const int32_t *zero_point;
    unsigned char *memory;
    size_t longest, each, parts;
};

/* Memory of one part of the groups. */
struct estimation_group {
    float *w, *importance, *product;
    float *code; /* less the zero point */
    double *error, *row;
    size_t n;
    float zero_point, sign;
    struct gram_block h;
    int64_t h_row; /* entries of a row of h */
};

static size_t place(unsigned char *memory, size_t longest, struct estimation_group *g)
{
    struct array_layout l = {memory, 0};
    g->w = qobs_layout_add(&l, longest * sizeof *g->w);
    g->importance = qobs_layout_add(&l, longest * sizeof *g->importance);
    g->product = qobs_layout_add(&l, longest * sizeof *g->product);
    g->code = qobs_layout_add(&l, longest * sizeof *g->code);
    g->error = qobs_layout_add(&l, longest * sizeof *g->error);
    g->row = qobs_layout_add(&l, longest * sizeof *g->row);
    return l.used;
}

static float pairwise_sum(const float *x, int64_t n)
{
    if (n > PAIRWISE_LEAF) {
        const int64_t half = pairwise_half(n);
        const float low = pairwise_sum(x, half);
        return low + pairwise_sum(x + half, n - half);
    }
    return pairwise_leaf_f32(x, (size_t)n);
}

/* ---- Codes and errors -------------------------------------------------------------------------------------------- */

/* Code less zero point. Upstream converts NaN, which a scale of 0 gives, to an integer: 0 on x86. */
static float code_of(const struct estimation *s, const struct estimation_group *g, float scale, float w)
{
    const float code = rintf(w / scale + g->zero_point);
    const float min = s->params->quant_min, max = s->params->quant_max;
    return (isnan(code) ? 0 : code < min ? min : code > max ? max : code) - g->zero_point;
}

static void find_codes(const struct estimation *s, struct estimation_group *g, float scale)
{
    for (size_t i = 0; i < g->n; i++)
        g->code[i] = code_of(s, g, scale, g->w[i]);
}

/* e^T H e / tokens, and the penalty for the weights' own errors. */
static double error_of(const struct estimation *s, const struct estimation_group *g, float scale)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < g->n; i++) {
        g->error[i] = (double)(code_of(s, g, scale, g->w[i]) * scale) - (double)g->w[i];
        g->row[i] = 0;
        squares += g->error[i] * g->error[i];
    }
    for (size_t i = 0; i < g->n; i++)
        for (size_t j = 0; j < g->n; j++)
            g->row[j] += g->error[i] * g->h.sum[(int64_t)i * g->h_row + (int64_t)j];
    for (size_t i = 0; i < g->n; i++)
        sum += g->row[i] * g->error[i];
    sum /= (double)s->search->gram->tokens;
    return s->params->weight_penalty > 0 ? sum + s->params->weight_penalty * (squares / (double)g->n) : sum;
}

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

/* Shares of the group, without elements whose code is that of 0. */
static void find_importance(const struct estimation *s, struct estimation_group *g)
{
    const double *peak = s->search->importance->peak + g->h.start;
    for (size_t i = 0; i < g->n; i++)
        g->importance[i] = g->code[i] == 0 ? 0 : (float)peak[i];
    const float sum = pairwise_sum(g->importance, (int64_t)g->n) + 0x1p-23F;
    for (size_t i = 0; i < g->n; i++)
        g->importance[i] /= sum;
}

static float candidate_of(const struct estimation_group *g)
{
    for (size_t i = 0; i < g->n; i++)
        g->product[i] = fabsf(g->w[i]) / (fabsf(g->code[i]) + (g->code[i] == 0 ? 0.001F : 0)) * g->importance[i];
    return pairwise_sum(g->product, (int64_t)g->n) * g->sign;
}

/* Replaces the best unless the error is larger; so does an error that is NaN. */
static void compare(const struct estimation *s, const struct estimation_group *g, float candidate, float *best,
                    double *error)
{
    const double e = error_of(s, g, candidate);
    if (!(e > *error)) {
        *error = e;
        *best = candidate;
    }
}

static void read_group(const struct estimation *s, const struct qparam_block *block, struct estimation_group *g)
{
    float x[1][BLOCK_ELEMENTS];
    const bool ignore = s->search->params->nonfinite == NONFINITE_IGNORE;
    for (int64_t at = 0; at < block->elements; at += BLOCK_ELEMENTS) {
        const size_t n =
            qobs_block_read(block, s->search->plan->dtype, s->search->data, at, block->elements, ignore, x);
        memcpy(g->w + at, x[0], n * sizeof x[0][0]);
    }
    g->n = (size_t)block->elements;
}

static void estimate(const struct estimation *s, const struct qparam_block *block, struct estimation_group *g)
{
    const size_t q = block->qparam, groups = (size_t)(s->search->gram->columns / block->elements);
    const float scale = s->scale[q];
    float best = scale;
    read_group(s, block, g);
    g->zero_point = (float)s->zero_point[q];
    g->sign = scale / fabsf(scale);
    g->h = qobs_gram_block(s->search->gram, (int64_t)(q % groups));
    g->h_row = s->search->gram->block;
    find_codes(s, g, scale);
    find_importance(s, g);
    double error = error_of(s, g, scale);
    s->result->minmax_error[q] = error;
    for (int i = 0; i < s->params->initial_steps; i++) {
        compare(s, g, candidate_of(g), &best, &error);
        if (i + 1 < s->params->initial_steps)
            find_codes(s, g, best);
    }
    for (int i = 0; i < s->params->scale_steps; i++) {
        find_codes(s, g, (float)(1 - 0.05 * i) * scale);
        compare(s, g, candidate_of(g), &best, &error);
    }
    s->result->scale[q] = best;
    s->result->error[q] = error;
}

/* ---- All groups -------------------------------------------------------------------------------------------------- */

static void estimate_part(void *argument, size_t part)
{
    const struct estimation *s = argument;
    struct estimation_group g;
    struct qparam_block block;
    FP_SCOPE;
    place(s->memory + part * s->each, s->longest, &g);
    for (size_t i = part; i < s->blocks.count; i += s->parts) {
        qobs_block_at(&s->blocks, i, &block);
        estimate(s, &block, &g);
    }
}

static enum importance_fault fault_of(const struct optimal_search *s)
{
    const struct view *v = &s->plan->value;
    bool finite = s->gram->sum && qobs_gram_is_finite(s->gram);
    for (int64_t j = 0; j < s->importance->columns; j++)
        finite &= isfinite(s->importance->peak[j]) != 0;
    return s->importance->tokens == 0                        ? IMPORTANCE_NOT_OBSERVED
           : v->shape[v->ndim - 1] != s->importance->columns ? IMPORTANCE_COLUMNS
           : !finite                                         ? IMPORTANCE_NOT_FINITE
                                                             : IMPORTANCE_USABLE;
}

enum { MOST_PARTS = 64 };

static int estimate_all(struct estimation *s, qobs_error *error)
{
    const struct optimal_search *search = s->search;
    struct estimation_group unused;
    s->longest = (size_t)qobs_elements_most(search->plan);
    s->each = place(NULL, s->longest, &unused);
    s->parts = s->blocks.count < MOST_PARTS ? s->blocks.count : MOST_PARTS;
    const size_t size = s->each * s->parts + LAYOUT_LINE;
    unsigned char *const memory = qobs_allocate(search->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(memory, "search", size, error));
    s->memory = qobs_layout_begin(memory).memory;
    qobs_parallel_for(search->runtime, estimate_part, s, s->parts);
    qobs_release(search->runtime, memory, size);
    return QOBS_OK;
}

static int search_scales(const struct optimal_search *search, struct optimal_result *result, qobs_error *error)
{
    const size_t n = (size_t)search->plan->qparams;
    RETURN_IF_FAILED(qobs_optimal_result_reserve(search->runtime, result, n, 0, error));
    RETURN_IF_FAILED(qobs_formula_qparams(search->formula, search->ranges, result->scale, result->zero_point, error));
    struct estimation s = {.search = search,
                           .params = &search->params->estimation,
                           .result = result,
                           .scale = result->scale,
                           .zero_point = result->zero_point};
    result->fault = fault_of(search);
    result->weighted = result->fault == IMPORTANCE_USABLE;
    qobs_blocks_of(&s.blocks, search->plan, 1);
    return result->weighted ? estimate_all(&s, error) : QOBS_OK;
}

const struct range_ops qobs_range_scale_estimation = {
    .optimal = &(const struct optimal_weights){.importance = true, .hessian = true, .search = search_scales}};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "optimal/hessian_search.h"

#include <string.h>

#include "base/error.h"
#include "base/split.h"
#include "measure/row_list.h"
#include "plan/gather.h"
#include "optimal/optimal_group.h"

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

bool qobs_hessian_joins_groups(const struct optimal_params *p, int64_t group, int64_t columns)
{
    return p->hessian_block > group && columns > group;
}

/* Copies entries of a block of the statistic to h, of rows [row, row + rows) and columns [column, column + columns) of
 * the statistic's block. */
static void copy_entries(const struct gram *g, const struct gram_block *from, int64_t row, int64_t rows, int64_t column,
                         int64_t columns, double *h, int64_t stride)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            h[i * stride + j] = from->sum[(row + i) * g->block + column + j] / (double)g->tokens;
}

/* The block of the statistic with that column. */
static struct gram_block block_with(const struct gram *g, int64_t column)
{
    const int64_t each = (g->period + g->block - 1) / g->block;
    return qobs_gram_block(g, column / g->period * each + column % g->period / g->block);
}

/* H of columns [first, first + n), 0 outside the statistic's blocks. */
static void fill_own(const struct gram *g, int64_t first, int64_t n, double *h, int64_t stride)
{
    for (int64_t column = 0; column < n;) {
        const struct gram_block from = block_with(g, first + column);
        const int64_t at = first + column - from.start, left = from.width - at;
        const int64_t width = left < n - column ? left : n - column;
        copy_entries(g, &from, at, width, at, width, h + column * stride + column, stride);
        column += width;
    }
}

static void dampen(double *h, int64_t n, int64_t stride, double added)
{
    for (int64_t i = 0; i < n; i++)
        h[i * (stride + 1)] += added;
}

static double mean_of_diagonal(const double *h, int64_t n, int64_t stride)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += h[i * (stride + 1)];
    return sum / (double)n;
}

void qobs_hessian_block_fill(const struct gram *g, const struct optimal_params *p, struct hessian_block *b)
{
    const int64_t padded = b->padded, span = b->groups * padded;
    double trace = 0;
    memset(b->own, 0, (size_t)(b->groups * b->group * padded) * sizeof *b->own);
    for (int64_t k = 0; k < b->groups; k++) {
        const int64_t n = qobs_hessian_group_width(b, k);
        double *const own = b->own + k * b->group * padded;
        fill_own(g, b->start + k * b->group, n, own, padded);
        const double mean = mean_of_diagonal(own, n, padded);
        trace += mean * (double)n;
        dampen(own, n, padded, p->dampening * mean);
        if (b->factor)
            qobs_hessian_factor(own, (size_t)n, (size_t)padded, &b->factor[k]);
    }
    if (!b->joint)
        return;
    const struct gram_block from = block_with(g, b->start);
    memset(b->joint, 0, (size_t)(b->groups * span * padded) * sizeof *b->joint);
    for (int64_t k = 0; k < b->groups; k++) {
        const int64_t n = qobs_hessian_group_width(b, k);
        double *const joint = b->joint + k * span * padded;
        for (int64_t i = 0; i < b->groups; i++)
            copy_entries(g, &from, i * b->group, qobs_hessian_group_width(b, i), k * b->group, n,
                         joint + i * padded * padded, padded);
        dampen(joint + k * padded * padded, n, padded, p->dampening * (trace / (double)b->width));
    }
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

struct hessian_run {
    const struct optimal_search *search;
    const struct optimal_params *params;
    const double *importance;
    struct optimal_result *result;
    struct view value;
    struct row_list rows;
    struct hessian_levels levels;
    struct hessian_block block;
    int64_t group, groups; /* of a row */
    float *fixed_scales;   /* [OPTIMAL_MOST_SCALES] */
    size_t fixed_count;
    float global_scale;
    unsigned char *memory;
    size_t each; /* bytes of a part */
};

static size_t in_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Places the arrays of a tile; returns the bytes. */
static size_t place(const struct hessian_run *run, unsigned char *memory, struct hessian_tile *t)
{
    const size_t padded = (size_t)run->block.padded, groups = (size_t)run->block.groups, cells = HESSIAN_TILE * groups;
    const size_t numbers = cells * padded, doubles = numbers * sizeof(double);
    const size_t sizes[] = {numbers * sizeof *t->w,
                            cells * sizeof *t->scale,
                            cells * sizeof *t->live,
                            doubles,
                            doubles,
                            doubles,
                            doubles,
                            doubles,
                            doubles,
                            doubles,
                            OPTIMAL_MOST_SCALES * sizeof *t->scales,
                            padded * sizeof *t->ones,
                            qobs_optimal_scratch(run->params, padded),
                            qobs_hessian_workspace_size(run->params, padded)};
    void *at[sizeof sizes / sizeof *sizes];
    size_t offset = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        at[i] = memory ? memory + offset : NULL;
        offset += in_lines(sizes[i]);
    }
    if (!memory)
        return offset;
    t->w = at[0];
    t->scale = at[1];
    t->live = at[2];
    t->x = at[3];
    t->e = at[4];
    t->other = at[5];
    t->g = at[6];
    t->product = at[7];
    t->linear = at[8];
    t->before = at[9];
    t->scales = at[10];
    t->ones = at[11];
    t->scratch = at[12];
    for (size_t i = 0; i < padded; i++)
        t->ones[i] = 1;
    memset(t->w, 0, numbers * sizeof *t->w);
    memset(t->x, 0, 7 * in_lines(doubles));
    qobs_optimal_prepare(run->params, run->global_scale, padded, t->scratch);
    qobs_hessian_workspace_place(run->params, padded, at[13], &t->workspace);
    return offset;
}

static void load(const struct hessian_run *run, struct hessian_tile *t)
{
    const bool finite_only = run->search->params->nonfinite == NONFINITE_IGNORE;
    for (int64_t r = 0; r < t->rows; r++) {
        const unsigned char *const row = row_at(&run->rows, t->row + r);
        for (int64_t k = 0; k < run->block.groups; k++)
            row_load(&run->rows, row, run->block.start + k * run->group, qobs_hessian_group_width(&run->block, k),
                     finite_only, t->w + r * qobs_hessian_span(&run->block) + k * run->block.padded);
    }
}

static void search_tiles(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct hessian_run *run = argument;
    struct hessian_tile t = {.search = run->search,
                             .params = run->params,
                             .levels = &run->levels,
                             .number = qobs_optimal_number(run->params),
                             .block = &run->block,
                             .importance = run->importance + run->block.start,
                             .fixed_scales = run->fixed_count > 0 ? run->fixed_scales : NULL,
                             .fixed_count = run->fixed_count,
                             .global_scale = run->global_scale,
                             .stride = run->groups,
                             .result = run->result};
    place(run, run->memory + (size_t)part * run->each, &t);
    for (int64_t tile = from; tile < to; tile++) {
        t.row = tile * HESSIAN_TILE;
        t.rows = run->rows.count - t.row < HESSIAN_TILE ? run->rows.count - t.row : HESSIAN_TILE;
        t.qparam = t.row * run->groups + run->block.start / run->group;
        load(run, &t);
        qobs_hessian_start(&t);
        if (run->block.joint)
            qobs_hessian_descend(&t);
    }
}

/* ---- The search -------------------------------------------------------------------------------------------------- */

/* Blocks follow each other; all but the last of a row are alike. */
static void search_blocks(struct hessian_run *run, const struct split *split)
{
    const int64_t columns = run->rows.columns, width = run->block.groups * run->group;
    const int64_t groups = run->block.groups;
    for (int64_t start = 0; start < columns; start += width) {
        struct hessian_block *b = &run->block;
        b->start = start;
        b->width = columns - start < width ? columns - start : width;
        b->groups = (b->width + run->group - 1) / run->group;
        qobs_hessian_block_fill(run->search->gram, run->params, b);
        qobs_split_run(run->search->runtime, split, search_tiles, run);
    }
    run->block.groups = groups;
}

static int allocate_and_search(struct hessian_run *run, qobs_error *error)
{
    static const struct split_rule rule = {
        .min_total = 1 << 12, .parts_per_thread = 4, .max_parts = 1 << 10}; /* elements */
    const struct runtime *runtime = run->search->runtime;
    struct hessian_block *b = &run->block;
    const int64_t tiles = (run->rows.count + HESSIAN_TILE - 1) / HESSIAN_TILE;
    const struct split split = qobs_split(runtime, &rule, tiles, run->rows.count * run->rows.columns, 0);
    const bool joint = b->groups > 1;
    const size_t own = (size_t)(b->groups * b->group * b->padded);
    const size_t all = joint ? (size_t)(b->groups * b->padded * b->groups * b->padded) : 0;
    run->each = place(run, NULL, &(struct hessian_tile){0});
    const bool factored = run->params->e2m1 && run->params->scales == OPTIMAL_E4M3 && b->group <= QOBS_HESSIAN_SIDE;
    const size_t factors = factored ? (size_t)b->groups * sizeof *b->factor : 0;
    const size_t size = (own + all) * sizeof(double) + in_lines(OPTIMAL_MOST_SCALES * sizeof *run->fixed_scales) +
                        factors + (size_t)split.parts * run->each + 128;
    unsigned char *const memory = qobs_allocate(runtime, size);
    if (!memory)
        return qobs_no_memory(error, "search: no memory for %zu bytes", size);
    unsigned char *const aligned = memory + (64 - (uintptr_t)memory % 64) % 64;
    run->fixed_scales = (float *)(void *)aligned;
    unsigned char *const after = aligned + in_lines(OPTIMAL_MOST_SCALES * sizeof *run->fixed_scales);
    b->factor = factored ? (struct hessian_factor *)(void *)after : NULL;
    b->own = (double *)(void *)(after + factors);
    b->joint = joint ? b->own + own : NULL;
    run->memory = (unsigned char *)b->own + in_lines((own + all) * sizeof(double));
    if (run->params->scales == OPTIMAL_E4M3 || run->params->scales == OPTIMAL_E8M0)
        run->fixed_count = qobs_optimal_scales(run->params, 1, run->global_scale, run->fixed_scales);
    search_blocks(run, &split);
    qobs_release(runtime, memory, size);
    return QOBS_OK;
}

int qobs_hessian_search(const struct optimal_search *s, const struct optimal_params *params, const double *importance,
                        struct optimal_result *result, qobs_error *error)
{
    struct hessian_run run = {.search = s,
                      .params = params,
                      .importance = importance,
                      .result = result,
                      .value = s->plan->value,
                      .group = qobs_elements_most(s->plan),
                      .global_scale = s->global_scale ? *s->global_scale : 1};
    run.value.data = s->data;
    run.rows = row_list_of(&run.value, s->kernels);
    run.groups = (run.rows.columns + run.group - 1) / run.group;
    if (s->plan->order || s->plan->qparams != run.rows.count * run.groups)
        return qobs_invalid(error, "value: a Hessian needs groups of neighbouring columns");
    const bool joint = qobs_hessian_joins_groups(params, run.group, run.rows.columns);
    const int64_t width = joint && params->hessian_block < run.rows.columns ? params->hessian_block : run.rows.columns;
    run.block = (struct hessian_block){.group = run.group,
                                       .groups = joint ? (width + run.group - 1) / run.group : 1,
                                       .padded = (run.group + OPTIMAL_PADDING - 1) / OPTIMAL_PADDING * OPTIMAL_PADDING};
    qobs_hessian_levels(params, run.global_scale, &run.levels);
    return allocate_and_search(&run, error);
}

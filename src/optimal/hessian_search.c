/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "optimal/hessian_search.h"

#include "base/split.h"
#include "plan/block_reader.h"

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

bool qobs_hessian_joins_groups(const struct range_params *p, int64_t group, int64_t columns)
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
static void fill_diagonal(const struct gram *g, int64_t first, int64_t n, double *h, int64_t stride)
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

/* Fills H of a block: sums divided by tokens, plus dampening. */
static void fill_block(const struct gram *g, const struct optimal_params *p, struct hessian_block *b)
{
    const int64_t padded = b->padded, span = b->groups * padded;
    double trace = 0;
    memset(b->diagonal, 0, (size_t)(b->groups * b->group * padded) * sizeof *b->diagonal);
    for (int64_t k = 0; k < b->groups; k++) {
        const int64_t n = qobs_hessian_group_width(b, k);
        double *const h = b->diagonal + k * b->group * padded;
        fill_diagonal(g, b->start + k * b->group, n, h, padded);
        const double mean = mean_of_diagonal(h, n, padded);
        trace += mean * (double)n;
        dampen(h, n, padded, p->dampening * mean);
        if (b->factor)
            qobs_hessian_factor(h, (size_t)n, (size_t)padded, &b->factor[k]);
    }
    if (!b->columns)
        return;
    const struct gram_block from = block_with(g, b->start);
    memset(b->columns, 0, (size_t)(b->groups * span * padded) * sizeof *b->columns);
    for (int64_t k = 0; k < b->groups; k++) {
        const int64_t n = qobs_hessian_group_width(b, k);
        double *const h = b->columns + k * span * padded;
        for (int64_t i = 0; i < b->groups; i++)
            copy_entries(g, &from, i * b->group, qobs_hessian_group_width(b, i), k * b->group, n,
                         h + i * padded * padded, padded);
        dampen(h + k * padded * padded, n, padded, p->dampening * (trace / (double)b->width));
    }
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

struct hessian_tiles {
    struct hessian_run run;
    unsigned char *memory;
    size_t each; /* bytes of a part */
};

/* Places the arrays of a tile; returns the bytes. */
static size_t place(const struct hessian_run *run, unsigned char *memory, struct hessian_tile *t)
{
    const size_t padded = (size_t)run->block.padded, cells = HESSIAN_TILE * (size_t)run->block.groups;
    struct array_layout l = {memory, 0};
    double **const doubles[] = {&t->x, &t->e, &t->other, &t->g, &t->product, &t->linear, &t->before};
    t->run = run;
    t->w = qobs_layout_add(&l, cells * padded * sizeof *t->w);
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        *doubles[i] = qobs_layout_add(&l, cells * padded * sizeof **doubles[i]);
    if (memory)
        memset(memory, 0, l.used);
    t->scale = qobs_layout_add(&l, cells * sizeof *t->scale);
    t->searched = qobs_layout_add(&l, cells * sizeof *t->searched);
    t->scales = qobs_layout_add(&l, OPTIMAL_MOST_SCALES * sizeof *t->scales);
    t->scratch = qobs_layout_add(&l, qobs_optimal_scratch(run->params, padded));
    qobs_hessian_workspace_place(run->params, padded, &l, &t->workspace);
    if (memory)
        qobs_optimal_prepare(run->params, run->global_scale, padded, t->scratch);
    return l.used;
}

static void load(struct hessian_tile *t)
{
    const struct hessian_run *run = t->run;
    const struct hessian_block *b = &run->block;
    for (int64_t r = 0; r < t->rows; r++) {
        const unsigned char *const row = qobs_row_at(&run->rows, t->row + r);
        for (int64_t k = 0; k < b->groups; k++)
            qobs_row_load(&run->rows, row, b->start + k * b->group, qobs_hessian_group_width(b, k),
                          t->w + r * qobs_hessian_span(b) + k * b->padded);
    }
}

static void search_tiles(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct hessian_tiles *tiles = argument;
    const int64_t rows = tiles->run.rows.count;
    struct hessian_tile t;
    place(&tiles->run, tiles->memory + (size_t)part * tiles->each, &t);
    for (int64_t tile = from; tile < to; tile++) {
        t.row = tile * HESSIAN_TILE;
        t.rows = rows - t.row < HESSIAN_TILE ? rows - t.row : HESSIAN_TILE;
        load(&t);
        qobs_hessian_tile_search(&t);
    }
}

/* ---- The search -------------------------------------------------------------------------------------------------- */

/* Blocks follow each other; all but the last of a row are alike. */
static void search_blocks(struct hessian_tiles *tiles, const struct split *split)
{
    const struct hessian_run *run = &tiles->run;
    struct hessian_block *const b = &tiles->run.block;
    const int64_t columns = run->rows.columns, width = b->groups * b->group;
    for (b->start = 0; b->start < columns; b->start += width) {
        b->width = columns - b->start < width ? columns - b->start : width;
        b->groups = (b->width + b->group - 1) / b->group;
        fill_block(run->search->gram, run->params, b);
        qobs_split_run(run->search->runtime, split, search_tiles, tiles);
    }
}

/* Places what all tiles use, then the tiles' memory; returns the bytes. */
static size_t place_run(struct hessian_tiles *tiles, int64_t parts, struct array_layout l)
{
    struct hessian_run *const run = &tiles->run;
    struct hessian_block *const b = &run->block;
    const bool factored = run->params->e2m1 && run->params->scales == OPTIMAL_E4M3 && b->group <= QOBS_HESSIAN_SIDE;
    const size_t padded = (size_t)b->padded, groups = (size_t)b->groups, span = groups * padded;
    run->ones = qobs_layout_add(&l, padded * sizeof *run->ones);
    run->fixed_scales = qobs_layout_add(&l, OPTIMAL_MOST_SCALES * sizeof *run->fixed_scales);
    b->factor = factored ? qobs_layout_add(&l, groups * sizeof *b->factor) : NULL;
    b->diagonal = qobs_layout_add(&l, groups * (size_t)b->group * padded * sizeof *b->diagonal);
    b->columns = groups > 1 ? qobs_layout_add(&l, groups * span * padded * sizeof *b->columns) : NULL;
    tiles->memory = qobs_layout_add(&l, (size_t)parts * tiles->each);
    return l.used;
}

static int allocate_and_search(struct hessian_tiles *tiles, qobs_error *error)
{
    static const struct split_rule rule = {
        .min_total = 1 << 12, .parts_per_thread = 4, .max_parts = 1 << 10}; /* elements */
    struct hessian_run *const run = &tiles->run;
    const struct runtime *runtime = run->search->runtime;
    const int64_t count = (run->rows.count + HESSIAN_TILE - 1) / HESSIAN_TILE;
    const struct split split = qobs_split(runtime, &rule, count, run->rows.count * run->rows.columns, 0);
    struct hessian_tile unused;
    tiles->each = place(run, NULL, &unused);
    const size_t size = place_run(tiles, split.parts, qobs_layout_begin(NULL)) + LAYOUT_LINE;
    unsigned char *const memory = qobs_allocate(runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(memory, "search", size, error));
    place_run(tiles, split.parts, qobs_layout_begin(memory));
    for (int64_t i = 0; i < run->block.padded; i++)
        run->ones[i] = 1;
    if (run->params->scales == OPTIMAL_E4M3 || run->params->scales == OPTIMAL_E8M0)
        run->fixed = qobs_optimal_scales(run->params, 1, run->global_scale, run->fixed_scales);
    search_blocks(tiles, &split);
    qobs_release(runtime, memory, size);
    return QOBS_OK;
}

int qobs_hessian_search(const struct optimal_search *s, const struct optimal_params *params, const double *importance,
                        struct optimal_result *result, qobs_error *error)
{
    struct hessian_tiles tiles = {.run = {.search = s,
                                          .params = params,
                                          .importance = importance,
                                          .result = result,
                                          .number = qobs_optimal_number(params),
                                          .global_scale = s->global_scale ? *s->global_scale : 1}};
    struct hessian_run *const run = &tiles.run;
    const int64_t group = qobs_elements_most(s->plan);
    struct view value = s->plan->value;
    value.data = s->data;
    qobs_rows_of_view(&value, s->kernels, &run->rows);
    run->rows.finite_only = s->params->nonfinite == NONFINITE_IGNORE;
    const int64_t columns = run->rows.columns;
    run->row_groups = (columns + group - 1) / group;
    if (s->plan->order || s->plan->qparams != run->rows.count * run->row_groups)
        return qobs_invalid(error, "value: a Hessian needs groups of neighbouring columns");
    const bool joined = qobs_hessian_joins_groups(s->params, group, columns);
    const int64_t width = joined && s->params->hessian_block < columns ? s->params->hessian_block : columns;
    run->block = (struct hessian_block){.group = group,
                                        .groups = joined ? (width + group - 1) / group : 1,
                                        .padded = (group + OPTIMAL_PADDING - 1) / OPTIMAL_PADDING * OPTIMAL_PADDING};
    qobs_hessian_levels(params, run->global_scale, &run->levels);
    return allocate_and_search(&tiles, error);
}

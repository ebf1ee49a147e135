/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The work is split into units that own their entries: neighbouring blocks of together at most PANEL columns, or, in a
 * larger block, a pair of panels. A unit takes all tokens, so that its sums stay in a near cache. */
#include "measure/gram.h"

#include <math.h>

#include "base/split.h"
#include "measure/importance.h"
#include "plan/row_list.h"

enum { PANEL = 128, LANES = 16 /* a row is loaded with zeros up to a multiple of that */, CHUNK = QOBS_GRAM_CHUNK };

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

static int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct gram qobs_gram_of(int64_t columns, int64_t block, int64_t period)
{
    const int64_t b = block < columns ? block : columns, p = period < columns ? period : columns;
    return (struct gram){.columns = columns, .block = b, .period = p < b ? b : p};
}

int64_t qobs_gram_blocks(const struct gram *g)
{
    const int64_t whole = g->columns / g->period, rest = g->columns % g->period;
    return whole * ceil_of(g->period, g->block) + ceil_of(rest, g->block);
}

int64_t qobs_gram_start(const struct gram *g, int64_t index, int64_t *width)
{
    const int64_t each = ceil_of(g->period, g->block), period = index / each * g->period;
    const int64_t left = g->columns - period, end = period + (left < g->period ? left : g->period);
    const int64_t start = period + index % each * g->block;
    *width = end - start < g->block ? end - start : g->block;
    return start;
}

struct gram_block qobs_gram_block(const struct gram *g, int64_t index)
{
    struct gram_block block = {.sum = g->sum + index * g->block * g->block};
    block.start = qobs_gram_start(g, index, &block.width);
    return block;
}

size_t qobs_gram_size(const struct gram *g)
{
    int64_t entries;
    if (!qobs_multiply(qobs_gram_blocks(g), g->block, &entries) || !qobs_multiply(entries, g->block, &entries) ||
        !qobs_multiply(entries, (int64_t)sizeof *g->sum, &entries) || (uint64_t)entries > SIZE_MAX / 2)
        return 0;
    return (size_t)entries;
}

int qobs_gram_reserve(const struct runtime *runtime, struct gram *g, qobs_error *error)
{
    const size_t size = qobs_gram_size(g);
    g->sum = size > 0 ? qobs_allocate_state(runtime, size) : NULL;
    if (!g->sum)
        return qobs_no_memory(error, "hessian: no memory for blocks of %lld of %lld columns (%zu bytes)",
                              (long long)g->block, (long long)g->columns, size);
    for (size_t i = 0; i < size / sizeof *g->sum; i++)
        g->sum[i] = 0;
    return QOBS_OK;
}

void qobs_gram_release(const struct runtime *runtime, struct gram *g)
{
    if (g->sum)
        qobs_release(runtime, g->sum, qobs_gram_size(g));
    *g = (struct gram){0};
}

/* ---- Units ------------------------------------------------------------------------------------------------------- */

struct gram_addition {
    const struct kernel_table *kernels;
    struct row_list tokens;
    struct gram *gram;
    int64_t blocks, each; /* each: blocks of a unit; 0: units are pairs of panels */
    int64_t pairs;        /* of panels in a block */
    float *workspace;     /* two panels for each part */
};

enum { WORKSPACE = 2 * CHUNK * PANEL, TOGETHER = 4 }; /* floats; units that take a chunk of tokens in turns */

static void load_chunk(const struct gram_addition *a, int64_t token, int64_t tokens, int64_t first, int64_t n,
                       float *out)
{
    for (int64_t t = 0; t < tokens; t++)
        qobs_row_load(&a->tokens, qobs_row_at(&a->tokens, token + t), first, n, out + t * PANEL);
}

/* Asks for the columns of tokens [from, to), which are in memory that is far away. */
static void prefetch(const struct gram_addition *a, int64_t from, int64_t to, const struct gram_block *block)
{
    enum { LINE = 64, NEAR_CACHE = 2 };
    const size_t element = a->tokens.element, size = (size_t)block->width * element;
    if (a->tokens.column_in != (int64_t)element)
        return;
    for (int64_t t = from; t < to && t < a->tokens.count; t++) {
        const unsigned char *const row = qobs_row_at(&a->tokens, t) + (size_t)block->start * element;
        for (size_t at = 0; at < size; at += LINE)
            __builtin_prefetch(row + at, 0, NEAR_CACHE);
    }
}

/* Adds a chunk that is in the workspace to a block. Row panels of it alternate with requests for the next chunk, which
 * then arrives while sums are computed. */
static void add_chunk(const struct gram_addition *a, const float *x, int64_t token, int64_t tokens,
                      const struct gram_block *block)
{
    enum { ROW_PANEL = 48 }; /* rows: whole tiles of the kernels, and of whole vectors */
    const int64_t panels = ceil_of(block->width, ROW_PANEL), stride = a->gram->block;
    for (int64_t s = 0; s < panels; s++) {
        const int64_t at = s * ROW_PANEL, left = block->width - at;
        prefetch(a, token + CHUNK + s * CHUNK / panels, token + CHUNK + (s + 1) * CHUNK / panels, block);
        const size_t rows = (size_t)(left < ROW_PANEL ? left : ROW_PANEL);
        a->kernels->gram(x + at, x + at, PANEL, (size_t)tokens, rows, (size_t)left, true,
                         block->sum + at * (stride + 1), (size_t)stride);
    }
}

/* Blocks [first, end), one behind the other in the workspace, each aligned; from its start again where it ends. */
static void add_blocks(const struct gram_addition *a, int64_t first, int64_t end, float *workspace)
{
    const struct gram *g = a->gram;
    for (int64_t token = 0; token < a->tokens.count; token += CHUNK) {
        const int64_t left = a->tokens.count - token, tokens = left < CHUNK ? left : CHUNK;
        for (int64_t i = first, at = 0; i < end; i++) {
            const struct gram_block block = qobs_gram_block(g, i);
            const int64_t padded = ceil_of(block.width, LANES) * LANES;
            at = at + padded > PANEL ? 0 : at;
            float *const x = workspace + at;
            load_chunk(a, token, tokens, block.start, block.width, x);
            add_chunk(a, x, token, tokens, &block);
            at += padded;
        }
    }
}

/* Rows of panel p, columns of panel q >= p. */
static void add_pair(const struct gram_addition *a, int64_t index, int64_t p, int64_t q, float *workspace)
{
    const struct gram *g = a->gram;
    const struct gram_block block = qobs_gram_block(g, index);
    float *const x = workspace, *const y = p == q ? x : workspace + CHUNK * PANEL;
    const int64_t row = p * PANEL, column = q * PANEL;
    if (column >= block.width) /* a short block */
        return;
    const int64_t rows = block.width - row < PANEL ? block.width - row : PANEL;
    const int64_t columns = block.width - column < PANEL ? block.width - column : PANEL;
    for (int64_t token = 0; token < a->tokens.count; token += CHUNK) {
        const int64_t left = a->tokens.count - token, tokens = left < CHUNK ? left : CHUNK;
        load_chunk(a, token, tokens, block.start + row, rows, x);
        if (p != q)
            load_chunk(a, token, tokens, block.start + column, columns, y);
        a->kernels->gram(x, y, PANEL, (size_t)tokens, (size_t)rows, (size_t)columns, p == q,
                         block.sum + row * g->block + column, (size_t)g->block);
    }
}

static void add_units(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct gram_addition *a = argument;
    float *const workspace = a->workspace + part * WORKSPACE;
    for (int64_t unit = from; unit < to && a->each > 0; unit += TOGETHER) {
        const int64_t last = to - unit < TOGETHER ? to : unit + TOGETHER, end = last * a->each;
        add_blocks(a, unit * a->each, end < a->blocks ? end : a->blocks, workspace);
    }
    for (int64_t unit = from; unit < to && a->each == 0; unit++) {
        int64_t p = 0, q = unit % a->pairs; /* pairs (0, 0), (0, 1), ..., (1, 1), ... */
        for (int64_t row = ceil_of(a->gram->block, PANEL); q >= row; row--, p++)
            q -= row;
        add_pair(a, unit / a->pairs, p, p + q, workspace);
    }
}

/* The entries below the diagonal are those above it. The bits of a NaN depend on the kernel, and a saved state shows
 * them. In squares, because the lines of a column would push each other out of a cache. */
static void make_block_symmetric(double *sum, int64_t stride, int64_t width)
{
    enum { SQUARE = 16 };
    for (int64_t row = 0; row < width; row += SQUARE)
        for (int64_t column = row; column < width; column += SQUARE) {
            const int64_t end = row + SQUARE < width ? row + SQUARE : width;
            const int64_t most = column + SQUARE < width ? column + SQUARE : width;
            for (int64_t j = row; j < end; j++)
                for (int64_t k = column > j ? column : j; k < most; k++) {
                    double *const s = &sum[j * stride + k];
                    *s = isnan(*s) ? (double)NAN : *s;
                    sum[k * stride + j] = *s;
                }
        }
}

static void make_symmetric(const struct gram *g)
{
    for (int64_t i = 0; i < qobs_gram_blocks(g); i++) {
        const struct gram_block block = qobs_gram_block(g, i);
        make_block_symmetric(block.sum, g->block, block.width);
    }
}

/* ---- Adding ------------------------------------------------------------------------------------------------------ */

static const struct split_rule rule = {
    .min_total = 1 << 20, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS, .shrinking = true}; /* multiply-adds */

static int run(const struct runtime *runtime, struct gram_addition *a, qobs_error *error)
{
    const struct gram *g = a->gram;
    const int64_t panels = ceil_of(g->block, PANEL), padded = ceil_of(g->block, LANES) * LANES;
    a->blocks = qobs_gram_blocks(g);
    a->pairs = panels * (panels + 1) / 2;
    a->each = g->block <= PANEL ? PANEL / padded : 0;
    const int64_t units = a->each > 0 ? ceil_of(a->blocks, a->each) : a->blocks * a->pairs;
    const double work = (double)a->tokens.count * (double)g->columns * (double)g->block;
    const struct split split = qobs_split(runtime, &rule, units, work < 1e18 ? (int64_t)work : INT64_MAX / 2, 0);
    const size_t size = (size_t)split.parts * WORKSPACE * sizeof(float) + 64;
    unsigned char *memory = qobs_allocate(runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(memory, "hessian", size, error));
    a->workspace = (float *)(void *)(memory + (64 - (uintptr_t)memory % 64) % 64);
    qobs_split_run(runtime, &split, add_units, a);
    make_symmetric(g);
    qobs_release(runtime, memory, size);
    return QOBS_OK;
}

int qobs_gram_add(const struct runtime *runtime, const struct kernel_table *kernels, struct gram *g,
                  const struct view *v, qobs_error *error)
{
    struct gram_addition a = {.kernels = kernels, .gram = g};
    RETURN_IF_FAILED(qobs_check_activations(v, g->columns, error));
    if (v->elements == 0)
        return QOBS_OK;
    const bool first = !g->sum;
    RETURN_IF_FAILED(first ? qobs_gram_reserve(runtime, g, error) : QOBS_OK);
    qobs_rows_of_view(v, kernels, &a.tokens);
    const int status = run(runtime, &a, error);
    if (status == QOBS_OK)
        g->tokens += (uint64_t)a.tokens.count;
    else if (first)
        qobs_gram_release(runtime, g);
    return status;
}

void qobs_gram_merge(struct gram *g, const struct gram *other)
{
    const size_t n = qobs_gram_size(g) / sizeof *g->sum;
    g->tokens += other->tokens;
    for (size_t i = 0; i < n && other->sum; i++) {
        g->sum[i] += other->sum[i];
        g->sum[i] = isnan(g->sum[i]) ? (double)NAN : g->sum[i];
    }
}

bool qobs_gram_is_zero(const struct gram *g)
{
    for (size_t i = 0; i < qobs_gram_size(g) / sizeof *g->sum; i++)
        if (g->sum[i] != 0)
            return false;
    return true;
}

bool qobs_gram_is_finite(const struct gram *g)
{
    bool finite = true;
    for (size_t i = 0; i < qobs_gram_size(g) / sizeof *g->sum; i++)
        finite &= isfinite(g->sum[i]) != 0;
    return finite;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rows are taken in tiles whose lanes they are, tiles in slices of limited memory. For a block of columns, H of all
 * columns and of those of the block is copied once for all tiles of a slice; D H of the block is then a Gram of the
 * copy and of the tile's errors. */
#include "optimal/code_descent.h"

#include <assert.h>
#include <stdlib.h>

#include "base/split.h"

enum {
    TILE = 128,                 /* rows; one Gram's stride serves both of its matrices */
    BLOCK = QOBS_ROUND_COLUMNS, /* columns, and terms of a float sum */
    STRIP = 32,                 /* columns of H that are copied together */
    LANES = 16,                 /* rows that become lanes together: a line of the cache */
    PIECE = 128                 /* columns whose codes are written together */
};
static_assert(TILE == BLOCK, "the copy of H and the errors have one stride");

#define SLICE_BYTES ((int64_t)256 << 20)

/* H is multiplied by a power of two that brings its largest diagonal entry near 1. Diagonal entries below this have
 * products that floats do not hold. */
#define SMALLEST_DIAGONAL 0x1p-80

/* Rows of a tile in one block of H; arrays of floats have a column of `TILE` rows after the other. */
struct code_tile {
    float *w, *q, *d;          /* [width][TILE], in the order of the descent; w times `factor` */
    float *scale, *zero_point; /* [groups][TILE]; scales times `factor` */
    double bound[TILE], start[TILE], change[TILE], factor[TILE];
    double alone[TILE]; /* sum of H_jj d * d of the first errors */
    bool changing; /* the last pass has changed a code */
};

struct column_weight {
    double weight;
    int64_t column;
};

struct code_run {
    const struct code_descent *descent;
    struct code_descent_result *result;
    int64_t index, first, width;      /* the block of H and its columns */
    int64_t first_group, group_count; /* with columns of the block */
    double added;                     /* to the diagonal of the block of H, by dampening */
    double unit;                      /* H times this is near 1 */
    int passes;
    int64_t *order, *place; /* [width]: the column at a place; the place of a column */
    double *root;           /* [width]: of H_jj, by place */
    struct column_weight *weights;
    float *panel;        /* [width][BLOCK]: H of the columns of a block */
    int64_t at, columns; /* places of the block */
    int pass;
    int64_t row, rows; /* of the slice */
    struct code_tile *tiles;
    double *products;                   /* [parts][BLOCK][TILE] */
    float *loaded;                      /* [parts][LANES][padded] */
    int64_t padded;                     /* columns of a row that is loaded */
    struct code_descent_sums *row_sums; /* [rows of the weight] */
    int64_t *changed;                   /* [tiles of a slice] */
};

/* ---- H ----------------------------------------------------------------------------------------------------------- */

/* Entries [column, column + n) of a row, at most STRIP: of the symmetric part, which alone matters, shrunk, dampened.
 */
static void load_entries(const struct code_run *r, int64_t row, int64_t column, int64_t n, double *out)
{
    const struct code_descent *c = r->descent;
    qobs_hessian_entries(c->hessian, r->index, row, column, n, out);
    for (int64_t i = 0; i < n && !c->symmetric; i++) {
        double other;
        qobs_hessian_entries(c->hessian, r->index, column + i, row, 1, &other);
        out[i] = out[i] == other ? other : out[i] / 2 + other / 2;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = column + i == row ? out[i] + r->added : out[i] * (1 - c->shrinkage);
}

/* Shares of entries are added: a mean of huge numbers would be infinite. */
static double added_to(struct code_run *r)
{
    double sum = 0;
    r->added = 0;
    for (int64_t j = 0; j < r->width && r->descent->dampening > 0; j++) {
        double entry;
        load_entries(r, j, j, 1, &entry);
        sum += entry / (double)r->width;
    }
    return r->descent->dampening * sum;
}

static int compare_weights(const void *a, const void *b)
{
    const struct column_weight *s = a, *t = b;
    if (s->weight != t->weight)
        return s->weight > t->weight ? -1 : 1;
    return (s->column > t->column) - (s->column < t->column);
}

/* Without a weight there are no passes. */
static void order_columns(struct code_run *r)
{
    struct column_weight *const weights = r->weights;
    double most = 0;
    int exponent;
    r->added = added_to(r);
    for (int64_t j = 0; j < r->width; j++) {
        double entry;
        load_entries(r, j, j, 1, &entry);
        weights[j] = (struct column_weight){entry / r->descent->tokens, j};
        most = weights[j].weight > most ? weights[j].weight : most;
    }
    frexp(most, &exponent);
    exponent = exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent;
    r->unit = ldexp(1, -exponent);
    r->passes = most > 0 ? r->descent->passes : 0;
    qsort(weights, (size_t)r->width, sizeof *weights, compare_weights);
    for (int64_t p = 0; p < r->width; p++) {
        r->order[p] = weights[p].column;
        r->place[weights[p].column] = p;
        r->root[p] = sqrt((double)(float)(weights[p].weight * r->unit));
    }
}

/* Columns [from, to) * STRIP of H, for the columns of the block. */
static void copy_strips(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct code_run *r = argument;
    const double tokens = r->descent->tokens, unit = r->unit;
    float strip[BLOCK][STRIP];
    (void)part;
    for (int64_t j = from * STRIP; j < to * STRIP && j < r->width; j += STRIP) {
        const int64_t n = r->width - j < STRIP ? r->width - j : STRIP;
        for (int64_t k = 0; k < r->columns; k++) {
            double entries[STRIP];
            load_entries(r, r->order[r->at + k], j, n, entries);
            for (int64_t i = 0; i < n; i++)
                strip[k][i] = (float)(entries[i] / tokens * unit);
        }
        for (int64_t i = 0; i < n; i++) {
            float *const to_row = r->panel + r->place[j + i] * BLOCK;
            for (int64_t k = 0; k < r->columns; k++)
                to_row[k] = strip[k][i];
        }
    }
}

/* Columns of the block whose diagonal is too small keep their codes. */
static void copy_block(struct code_run *r)
{
    static const struct split_rule rule = {.min_total = 1 << 14, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS};
    const int64_t strips = (r->width + STRIP - 1) / STRIP;
    const struct split split = qobs_split(r->descent->runtime, &rule, strips, r->width * r->columns, 0);
    qobs_split_run(r->descent->runtime, &split, copy_strips, r);
    for (int64_t k = 0; k < r->columns; k++) {
        float *const entry = r->panel + (r->at + k) * BLOCK + k;
        *entry = (double)*entry < SMALLEST_DIAGONAL ? 0 : *entry;
    }
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

/* Rows of tile `t`. */
static int64_t rows_of(const struct code_run *r, int64_t t)
{
    const int64_t left = r->rows - t * TILE;
    return left < TILE ? left : TILE;
}

/* A power of two that makes the largest magnitude of a row 1 to 2, so that no product leaves the range of floats. */
static float factor_of(const float *w, int64_t n)
{
    float most = 0;
    int exponent;
    for (int64_t j = 0; j < n; j++)
        most = isfinite(w[j]) && fabsf(w[j]) > most ? fabsf(w[j]) : most;
    frexpf(most, &exponent);
    return most > 0 ? ldexpf(1, exponent < -125 ? 126 : 1 - exponent) : 1;
}

/* The group of a column of the block, counted from the block's first. */
static int64_t group_of(const struct code_run *r, int64_t column)
{
    return (r->first + column) / r->descent->group - r->first_group;
}

/* The factor of a row, its scales and its zero points. */
static void load_qparams(const struct code_run *r, struct code_tile *t, int64_t row, int64_t lane, float factor)
{
    const struct code_descent *c = r->descent;
    t->factor[lane] = (double)factor;
    for (int64_t k = 0; k < r->group_count; k++) {
        const int64_t qparam = row * c->groups + r->first_group + k;
        t->scale[k * TILE + lane] = c->scale[qparam] * factor;
        t->zero_point[k * TILE + lane] = c->zero_point[qparam];
    }
}

/* Rows [lane, lane + n) of a tile, through w, which holds `LANES` rows. */
static void load_rows(const struct code_run *r, struct code_tile *t, int64_t row, int64_t lane, int64_t n, float *w)
{
    const struct code_descent *c = r->descent;
    for (int64_t i = 0; i < n; i++) {
        qobs_row_load(&c->rows, qobs_row_at(&c->rows, row + i), r->first, r->width, w + i * r->padded);
        load_qparams(r, t, row + i, lane + i, factor_of(w + i * r->padded, r->width));
    }
    for (int64_t p = 0; p < r->width; p++) {
        const int64_t j = r->order[p], group = group_of(r, j) * TILE + lane;
        const unsigned char *const code = c->codes + row * c->rows.columns + r->first + j;
        for (int64_t i = 0; i < n; i++) {
            const float q = c->number_of_code[code[i * c->rows.columns]];
            const float x = w[i * r->padded + j] * (float)t->factor[lane + i];
            const double quantized = ((double)q - (double)t->zero_point[group + i]) * (double)t->scale[group + i];
            const float d = (float)((double)x - quantized);
            const int64_t at = p * TILE + lane + i;
            t->w[at] = x;
            t->q[at] = q;
            t->d[at] = isfinite(d) ? d : 0; /* such an element never takes a step */
            const double own = fabs((double)t->d[at]) * r->root[p];
            t->bound[lane + i] += own;
            t->alone[lane + i] += own * own;
        }
    }
}

static void load_tiles(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct code_run *r = argument;
    for (int64_t i = from; i < to; i++) {
        struct code_tile *t = &r->tiles[i];
        const int64_t n = rows_of(r, i);
        memset(t->start, 0, sizeof t->start);
        memset(t->change, 0, sizeof t->change);
        memset(t->bound, 0, sizeof t->bound);
        memset(t->alone, 0, sizeof t->alone);
        t->changing = true;
        if (n < TILE) {
            memset(t->w, 0, (size_t)(r->width * TILE) * sizeof *t->w);
            memset(t->q, 0, (size_t)(r->width * TILE) * sizeof *t->q);
            memset(t->d, 0, (size_t)(r->width * TILE) * sizeof *t->d);
            memset(t->scale, 0, (size_t)(r->group_count * TILE) * sizeof *t->scale);
            memset(t->zero_point, 0, (size_t)(r->group_count * TILE) * sizeof *t->zero_point);
        }
        for (int64_t lane = 0; lane < n; lane += LANES)
            load_rows(r, t, r->row + i * TILE + lane, lane, n - lane < LANES ? n - lane : LANES,
                      r->loaded + part * LANES * r->padded);
    }
}

/* products += D H of places [at, at + n). */
static void add_products(const struct code_run *r, const struct code_tile *t, int64_t at, int64_t n, double *products)
{
    r->descent->kernels->gram(r->panel + at * BLOCK, t->d + at * TILE, TILE, (size_t)n, (size_t)r->columns, TILE, false,
                              products, TILE);
}

/* sum[lane] += factor * d of the block's columns times products. */
static void add_dot(const struct code_run *r, const struct code_tile *t, const double *products, double factor,
                    double *sum)
{
    double dot[TILE] = {0};
    for (int64_t k = 0; k < r->columns; k++)
        for (int64_t lane = 0; lane < TILE; lane++)
            dot[lane] += (double)t->d[(r->at + k) * TILE + lane] * products[k * TILE + lane];
    for (int64_t lane = 0; lane < TILE; lane++)
        sum[lane] += factor * dot[lane];
}

/* D H of the block, of its own columns, those after it, and those before it. In the first pass the columns after it
 * have their first errors still: twice their products with the block, and its own, are its part in d H d^T. */
static void descend_tile(const struct code_run *r, struct code_tile *t, int64_t index, double *products)
{
    const struct code_descent *c = r->descent;
    struct code_column column[BLOCK];
    memset(products, 0, (size_t)(r->columns * TILE) * sizeof *products);
    add_products(r, t, r->at, r->columns, products);
    if (r->pass == 0)
        add_dot(r, t, products, -1, t->start);
    for (int64_t at = r->at + BLOCK; at < r->width; at += BLOCK)
        add_products(r, t, at, r->width - at < BLOCK ? r->width - at : BLOCK, products);
    if (r->pass == 0)
        add_dot(r, t, products, 2, t->start);
    for (int64_t at = 0; at < r->at; at += BLOCK)
        add_products(r, t, at, BLOCK, products);
    for (int64_t k = 0; k < r->columns; k++) {
        const int64_t group = group_of(r, r->order[r->at + k]) * TILE;
        column[k] = (struct code_column){t->scale + group, t->zero_point + group};
    }
    const int64_t first = r->at * TILE;
    r->changed[index] += (int64_t)c->kernels->hessian_round(&c->grid, r->panel + r->at * BLOCK, BLOCK,
                                                            (size_t)r->columns, column, TILE, TILE, t->w + first,
                                                            t->q + first, t->d + first, products, t->bound, t->change);
}

static void descend_tiles(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct code_run *r = argument;
    for (int64_t i = from; i < to; i++)
        if (r->tiles[i].changing)
            descend_tile(r, &r->tiles[i], i, r->products + part * BLOCK * TILE);
}

/* Writes codes of a row that have changed: else zero keeps its sign, and NaN its code. */
static int64_t store_codes(const struct code_descent *c, const float *number, size_t n, unsigned char *codes)
{
    unsigned char code[PIECE];
    int64_t changed = 0;
    if (c->format)
        qobs_encode_floats(c->format, n, number, code, true);
    for (size_t j = 0; j < n && !c->format; j++)
        code[j] = (unsigned char)(int)number[j];
    for (size_t j = 0; j < n; j++)
        if (c->number_of_code[codes[j]] != number[j]) {
            codes[j] = code[j];
            changed++;
        }
    return changed;
}

/* d H d^T with H itself, without the factors of H and of the row. shrunk: the same with shrunk products. alone: the sum
 * of H_jj d * d. */
static double output_error(const struct code_run *r, double shrunk, double alone, double factor)
{
    const double share = r->descent->shrinkage, error = (shrunk - share * alone) / (1 - share);
    return (error > 0 ? error : 0) / r->unit / factor / factor;
}

/* Writes the codes of rows [lane, lane + n) of a tile, and what they add to the results. */
static int64_t store_rows(const struct code_run *r, const struct code_tile *t, int64_t row, int64_t lane, int64_t n)
{
    const struct code_descent *c = r->descent;
    float number[LANES][PIECE];
    double squares[LANES] = {0}, energy[LANES] = {0}, alone[LANES] = {0};
    int64_t changed = 0;
    for (int64_t first = 0, width; first < r->width; first += width) {
        width = r->width - first < PIECE ? r->width - first : PIECE;
        for (int64_t j = 0; j < width; j++)
            for (int64_t i = 0; i < n; i++) {
                const int64_t place = r->place[first + j], at = place * TILE + lane + i;
                const double own = (double)t->d[at] * r->root[place];
                number[i][j] = t->q[at];
                alone[i] += own * own;
                squares[i] += (double)t->d[at] * (double)t->d[at];
                energy[i] += (double)t->w[at] * (double)t->w[at];
            }
        for (int64_t i = 0; i < n; i++)
            changed +=
                store_codes(c, number[i], (size_t)width, c->codes + (row + i) * c->rows.columns + r->first + first);
    }
    for (int64_t i = 0; i < n; i++) {
        const double factor = t->factor[lane + i], back = 1 / factor;
        const double start = t->start[lane + i] > 0 ? t->start[lane + i] : 0, end = start + t->change[lane + i];
        struct code_descent_sums *const sums = &r->row_sums[row + i];
        sums->error_before += output_error(r, start, t->alone[lane + i], factor);
        sums->error += output_error(r, end, alone[i], factor);
        sums->squared_error += squares[i] * back * back;
        sums->energy += energy[i] * back * back;
    }
    return changed;
}

static void store_tiles(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct code_run *r = argument;
    (void)part;
    for (int64_t i = from; i < to; i++) {
        const int64_t n = rows_of(r, i);
        r->changed[i] = 0;
        for (int64_t lane = 0; lane < n; lane += LANES)
            r->changed[i] +=
                store_rows(r, &r->tiles[i], r->row + i * TILE + lane, lane, n - lane < LANES ? n - lane : LANES);
    }
}

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

static const struct split_rule tile_rule = {.parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS};

/* A pass over the columns. Returns true if a code has changed. */
static bool pass_over(struct code_run *r, const struct split *split, int64_t tiles)
{
    bool changed = false;
    memset(r->changed, 0, (size_t)tiles * sizeof *r->changed);
    for (r->at = 0; r->at < r->width; r->at += BLOCK) {
        r->columns = r->width - r->at < BLOCK ? r->width - r->at : BLOCK;
        copy_block(r);
        qobs_split_run(r->descent->runtime, split, descend_tiles, r);
    }
    for (int64_t i = 0; i < tiles; i++) {
        r->tiles[i].changing = r->changed[i] > 0;
        changed |= r->tiles[i].changing;
    }
    return changed;
}

static void run_slice(struct code_run *r)
{
    const struct code_descent *c = r->descent;
    const int64_t tiles = (r->rows + TILE - 1) / TILE;
    const struct split split = qobs_split(c->runtime, &tile_rule, tiles, tiles, 0);
    bool changed = true;
    qobs_split_run(c->runtime, &split, load_tiles, r);
    for (r->pass = 0; r->pass < r->passes && changed; r->pass++)
        changed = pass_over(r, &split, tiles);
    r->result->passes = r->pass > r->result->passes ? r->pass : r->result->passes;
    qobs_split_run(c->runtime, &split, store_tiles, r);
    for (int64_t i = 0; i < tiles; i++)
        r->result->changed += r->changed[i];
}

static void run_blocks(struct code_run *r, int64_t slice)
{
    const struct code_descent *c = r->descent;
    for (r->index = 0; r->index < qobs_gram_blocks(&c->gram); r->index++) {
        r->first = qobs_gram_start(&c->gram, r->index, &r->width);
        r->first_group = r->first / c->group;
        r->group_count = (r->first + r->width - 1) / c->group - r->first_group + 1;
        order_columns(r);
        for (r->row = 0; r->row < c->rows.count; r->row += r->rows) {
            r->rows = c->rows.count - r->row < slice ? c->rows.count - r->row : slice;
            run_slice(r);
        }
    }
}

/* Rows are added in their order, whatever the slices. */
static void add_rows(const struct code_run *r, struct code_descent_result *result)
{
    for (int64_t i = 0; i < r->descent->rows.count; i++) {
        result->sums.error_before += r->row_sums[i].error_before;
        result->sums.error += r->row_sums[i].error;
        result->sums.squared_error += r->row_sums[i].squared_error;
        result->sums.energy += r->row_sums[i].energy;
    }
}

/* Places the arrays of a run; returns the bytes. */
static size_t place_arrays(struct code_run *r, int64_t tiles, int64_t parts, struct array_layout l)
{
    const struct code_descent *c = r->descent;
    const size_t width = (size_t)c->gram.block, numbers = width * TILE * sizeof(float);
    const size_t qparams = (size_t)c->groups * TILE * sizeof(float);
    r->order = qobs_layout_add(&l, width * sizeof *r->order);
    r->place = qobs_layout_add(&l, width * sizeof *r->place);
    r->root = qobs_layout_add(&l, width * sizeof *r->root);
    r->weights = qobs_layout_add(&l, width * sizeof *r->weights);
    r->panel = qobs_layout_add(&l, width * BLOCK * sizeof *r->panel);
    r->products = qobs_layout_add(&l, (size_t)parts * BLOCK * TILE * sizeof *r->products);
    r->loaded = qobs_layout_add(&l, (size_t)(parts * LANES * r->padded) * sizeof *r->loaded);
    r->row_sums = qobs_layout_add(&l, (size_t)c->rows.count * sizeof *r->row_sums);
    r->changed = qobs_layout_add(&l, (size_t)tiles * sizeof *r->changed);
    r->tiles = qobs_layout_add(&l, (size_t)tiles * sizeof *r->tiles);
    for (int64_t i = 0; i < tiles; i++) {
        struct code_tile unused = {0}, *const t = l.memory ? &r->tiles[i] : &unused;
        t->w = qobs_layout_add(&l, numbers);
        t->q = qobs_layout_add(&l, numbers);
        t->d = qobs_layout_add(&l, numbers);
        t->scale = qobs_layout_add(&l, qparams);
        t->zero_point = qobs_layout_add(&l, qparams);
    }
    return l.used;
}

int qobs_descend_codes(const struct code_descent *c, struct code_descent_result *result, qobs_error *error)
{
    struct code_run run = {.descent = c, .result = result, .padded = (c->gram.block + 15) / 16 * 16};
    const int64_t tile_bytes = (3 * c->gram.block + 2 * c->groups) * TILE * (int64_t)sizeof(float);
    const int64_t all = (c->rows.count + TILE - 1) / TILE, most = SLICE_BYTES / tile_bytes;
    const int64_t tiles = most < 1 ? 1 : all < most ? all : most;
    const struct split split = qobs_split(c->runtime, &tile_rule, tiles, tiles, 0);
    const size_t size = place_arrays(&run, tiles, split.parts, qobs_layout_begin(NULL)) + LAYOUT_LINE;
    unsigned char *const memory = qobs_allocate(c->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(memory, "codes", size, error));
    place_arrays(&run, tiles, split.parts, qobs_layout_begin(memory));
    memset(run.row_sums, 0, (size_t)c->rows.count * sizeof *run.row_sums);
    *result = (struct code_descent_result){0};
    run_blocks(&run, tiles * TILE);
    add_rows(&run, result);
    qobs_release(c->runtime, memory, size);
    return QOBS_OK;
}

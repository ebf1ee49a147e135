/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes become signed bytes, the numbers that scales multiply, and rows without their minima are what these
 * approximate. Rows are taken in slices, which limits that memory. */
#include "optimal/block_descent.h"

#include "base/split.h"
#include "number/gguf_scales.h"
#include "quantize/gguf_numbers.h"

enum { SLICE_ROWS = 1024, BYTES = 256 };

bool qobs_block_codes_descend(const struct gguf_type *type)
{
    return type->code == GGUF_CODE_NEAREST || type->code == GGUF_CODE_CODEBOOK || type->code == GGUF_CODE_E2M1 ||
           type->plane[0].bits == 8;
}

/* Rows [first, first + count) in work. */
struct block_slice {
    const struct block_descent *of;
    struct row_list rows; /* of the value */
    int64_t first, count, columns, groups;
    unsigned char code[BYTES]; /* of each number */
    float number[BYTES];       /* of each signed byte */
    struct code_book book;
    float *w; /* [rows][columns]: the value without minima */
    float *scale, *zero_point;
    double *energy; /* [rows] */
    unsigned char *codes;
};

/* ---- Numbers of a type ------------------------------------------------------------------------------------------- */

/* The numbers of codes in rising order. Codes of one number, such as -0, become the lowest of them. */
static void fill_numbers(struct block_slice *s)
{
    const struct gguf_type *type = s->of->type;
    size_t count = 0;
    for (int byte = 0; byte < BYTES; byte++)
        s->number[byte] = (float)(signed char)byte;
    for (int code = type->plane[0].bits == 8 ? BYTES - 1 : type->top; code >= 0; code--)
        s->code[(unsigned char)(signed char)qobs_gguf_number(type, (unsigned char)code)] = (unsigned char)code;
    for (int n = -128; n < 128 && type->top < CODE_BOOK; n++)
        if (qobs_gguf_number(type, s->code[(unsigned char)n]) == (float)n && count < CODE_BOOK)
            s->book.number[count++] = (float)n;
    for (size_t k = 0; k + 1 < CODE_BOOK; k++)
        s->book.middle[k] = k + 1 < count ? (s->book.number[k] + s->book.number[k + 1]) / 2 : INFINITY;
}

static struct code_grid grid_of(const struct block_slice *s)
{
    const struct gguf_type *type = s->of->type;
    const bool integers = type->code == GGUF_CODE_NEAREST || type->plane[0].bits == 8;
    const float least = type->plane[0].bits == 8 ? -127 : (float)-type->low;
    return (struct code_grid){least, (float)(type->top - type->low), 0x1p16f, (uint32_t)(23 - 16) << 23,
                              integers ? NULL : &s->book};
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static unsigned char *block_of(const struct block_slice *s, int64_t row, int64_t block)
{
    const struct gguf_type *type = s->of->type;
    return s->of->blocks + ((s->first + row) * (s->columns / type->elements) + block) * type->bytes;
}

/* Columns from the start of a block on: numbers, scales, and the row without minima. */
static void unpack_block(const struct block_slice *s, int64_t row, int64_t block)
{
    const struct gguf_type *type = s->of->type;
    const int64_t runs = type->elements / type->run, at = row * s->columns + block * type->elements;
    float minimum[GGUF_MOST_RUNS], *const scale = s->scale + row * s->groups + block * runs;
    const unsigned char *const bytes = block_of(s, row, block);
    unsigned char *const codes = s->codes + at;
    gguf_run_scales(type, bytes, scale, minimum);
    qobs_gguf_codes(type, bytes, codes);
    for (int64_t i = 0; i < type->elements; i++) {
        float *const w = s->w + at + i;
        codes[i] = (unsigned char)(signed char)qobs_gguf_number(type, codes[i]);
        s->energy[row] += (double)*w * (double)*w;
        *w += minimum[i / type->run];
    }
}

static void unpack_rows(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct block_slice *s = argument;
    (void)part;
    for (int64_t row = from; row < to; row++) {
        const unsigned char *const value = qobs_row_at(&s->rows, s->first + row);
        qobs_row_load(&s->rows, value, 0, s->columns, s->w + row * s->columns);
        memset(s->zero_point + row * s->groups, 0, (size_t)s->groups * sizeof *s->zero_point);
        s->energy[row] = 0;
        for (int64_t block = 0; block < s->columns / s->of->type->elements; block++)
            unpack_block(s, row, block);
    }
}

static void pack_rows(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct block_slice *s = argument;
    const struct gguf_type *type = s->of->type;
    (void)part;
    for (int64_t row = from; row < to; row++)
        for (int64_t block = 0; block < s->columns / type->elements; block++) {
            unsigned char *const codes = s->codes + row * s->columns + block * type->elements;
            for (int64_t i = 0; i < type->elements; i++)
                codes[i] = s->code[codes[i]];
            qobs_gguf_put_codes(type, codes, block_of(s, row, block));
        }
}

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

static const struct split_rule row_rule = {
    .min_total = 1 << 16, .min_part = 1 << 14, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS};

static int run_slice(struct block_slice *s, struct code_descent_result *result, qobs_error *error)
{
    const struct block_descent *b = s->of;
    const struct runtime *const runtime = b->common.runtime;
    const struct split split = qobs_split(runtime, &row_rule, s->count, s->count * s->columns, 0);
    const struct view w = {.data = (const unsigned char *)s->w,
                           .dtype = QOBS_F32,
                           .ndim = 2,
                           .shape = {s->count, s->columns},
                           .strides = {s->columns * (int64_t)sizeof *s->w, sizeof *s->w},
                           .elements = s->count * s->columns};
    struct code_descent c = b->common;
    qobs_split_run(runtime, &split, unpack_rows, s);
    qobs_rows_of_view(&w, c.kernels, &c.rows);
    c.group = b->type->run;
    c.groups = s->groups;
    c.scale = s->scale;
    c.zero_point = s->zero_point;
    c.number_of_code = s->number;
    c.grid = grid_of(s);
    c.codes = s->codes;
    RETURN_IF_FAILED(qobs_descend_codes(&c, result, error));
    result->sums.energy = 0;
    for (int64_t row = 0; row < s->count; row++)
        result->sums.energy += s->energy[row];
    qobs_split_run(runtime, &split, pack_rows, s);
    return QOBS_OK;
}

static void add_result(struct code_descent_result *to, const struct code_descent_result *r)
{
    to->sums.error_before += r->sums.error_before;
    to->sums.error += r->sums.error;
    to->sums.squared_error += r->sums.squared_error;
    to->sums.energy += r->sums.energy;
    to->changed += r->changed;
    to->passes = r->passes > to->passes ? r->passes : to->passes;
}

/* Places the arrays of a slice; returns the bytes. */
static size_t place_arrays(struct block_slice *s, int64_t rows, struct array_layout l)
{
    const size_t n = (size_t)(rows * s->columns), qparams = (size_t)(rows * s->groups) * sizeof(float);
    s->w = qobs_layout_add(&l, n * sizeof *s->w);
    s->scale = qobs_layout_add(&l, qparams);
    s->zero_point = qobs_layout_add(&l, qparams);
    s->energy = qobs_layout_add(&l, (size_t)rows * sizeof *s->energy);
    s->codes = qobs_layout_add(&l, n);
    return l.used;
}

int qobs_descend_blocks(const struct block_descent *b, struct code_descent_result *result, qobs_error *error)
{
    const struct runtime *const runtime = b->common.runtime;
    struct block_slice s = {.of = b, .columns = b->value->shape[1], .groups = b->value->shape[1] / b->type->run};
    const int64_t all = b->value->shape[0], most = all < SLICE_ROWS ? all : SLICE_ROWS;
    const size_t size = place_arrays(&s, most, qobs_layout_begin(NULL)) + LAYOUT_LINE;
    unsigned char *const memory = qobs_allocate(runtime, size);
    int status = QOBS_OK;
    RETURN_IF_FAILED(qobs_require_memory(memory, "codes", size, error));
    place_arrays(&s, most, qobs_layout_begin(memory));
    fill_numbers(&s);
    qobs_rows_of_view(b->value, b->common.kernels, &s.rows);
    *result = (struct code_descent_result){0};
    for (; status == QOBS_OK && s.first < all; s.first += s.count) {
        struct code_descent_result slice = {0};
        s.count = all - s.first < most ? all - s.first : most;
        status = run_slice(&s, &slice, error);
        add_result(result, &slice);
    }
    qobs_release(runtime, memory, size);
    return status;
}

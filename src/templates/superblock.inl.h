/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of GGUF types; included by src/ISA/superblock.c after
 *   TOGETHER               vectors whose sums share a loop of the affine search: 1, 2 or 4
 *   CANDIDATES             candidates of the signed search at a time: 4 or 8
 *   CUT_OFF(a)             the instruction that cuts off as x86 does, if there is one
 *   f32v_sqrt(a)           and what superblock_codebook.inl.h needs
 *
 * Rows go in chunks of at most CHUNK elements. The scales of 32 runs are searched together, one a lane; then the
 * integers for the scales of 16 blocks, one a lane; codes are made with elements as lanes.
 *
 * Stack: 64 KB. Caller's duty: finite elements, round to nearest, no flushing of subnormals (base/fpenv.h). */

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/kernel_superblock.h"
#include "number/gguf_scales.h"
#include "number/number.h"

enum { CHUNK = 4096, RUNS = CHUNK / 16, ROWS_TOGETHER = 16 };

#include "templates/superblock_lanes.inl.h"
#include "templates/superblock_search.inl.h"
#include "templates/superblock_codebook.inl.h"
#include "templates/superblock_scales.inl.h"
#include "templates/superblock_codes.inl.h"

/* The matrix that a call quantizes, and the moments of the rows of a chunk (enum gguf_weight). */
struct job {
    const struct gguf_type *type;
    const struct gguf_search *search;
    const float *importance;
    enum kernel_dtype dtype;
    size_t columns, rows; /* rows that go together */
    float moment[ROWS_TOGETHER];
};

/* Elements of a chunk, which begins `first` elements behind the first row. x has CHUNK floats if it is `flat`. */
struct chunk {
    const float *x;
    size_t first, elements;
    struct found found;
    _Alignas(64) float flat[CHUNK];
};

static inline size_t size_of(enum kernel_dtype dtype) { return dtype == QOBS_KERNEL_F32 ? 4 : 2; }

/* Elements at any address as floats. */
static inline void load_floats(enum kernel_dtype dtype, const unsigned char *from, size_t n, float *to)
{
    if (dtype == QOBS_KERNEL_F32) {
        memcpy(to, from, n * sizeof *to);
        return;
    }
    size_t i = 0;
    for (; i + STEP <= n; i += STEP)
        f32x16_store(to + i,
                     dtype == QOBS_KERNEL_BF16 ? f32x16_load_bf16(from + 2 * i) : f32x16_load_f16(from + 2 * i));
    for (; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        to[i] = dtype == QOBS_KERNEL_BF16 ? float_of_bf16(bits) : float_of_f16(bits);
    }
}

/* ---- Searches ---------------------------------------------------------------------------------------------------- */

/* Sums of squares of the elements of each row, over their number. */
static void measure_rows(struct job *j, const unsigned char *x, float *flat)
{
    enum { COLUMNS = CHUNK / ROWS_TOGETHER };
    float unused[ROW] = {0};
    memset(j->moment, 0, sizeof j->moment);
    memset(flat, 0, CHUNK * sizeof *flat);
    for (size_t c = 0; c < j->columns; c += COLUMNS) {
        const size_t n = j->columns - c < COLUMNS ? j->columns - c : COLUMNS;
        for (size_t r = 0; r < j->rows; r++)
            load_floats(j->dtype, x + (r * j->columns + c) * size_of(j->dtype), n, flat + r * COLUMNS);
        measure(SUM_OF_SQUARES, flat, COLUMNS, n, j->moment, unused);
    }
    for (size_t r = 0; r < ROWS_TOGETHER; r++)
        j->moment[r] /= (float)j->columns;
}

/* The moments of the blocks of a chunk. */
static void measure_blocks(const struct job *j, const struct chunk *c, float moment[ROW])
{
    const float n = (float)j->type->elements, factor = 2.0f / n;
    float unused[ROW] = {0};
    memset(moment, 0, ROW * sizeof *moment);
    measure(SUM_OF_SQUARES, c->x, j->type->elements, j->type->elements, moment, unused);
    for (size_t b = 0; b < ROW; b++)
        moment[b] = j->search->weight == GGUF_WEIGHT_BLOCK           ? moment[b] * factor
                    : j->search->weight == GGUF_WEIGHT_BLOCK_DOUBLED ? 2 * moment[b] / n
                                                                     : moment[b] / n;
}

/* Loads half a pack, runs from `run` of the chunk on, with the importance of its elements as weights. */
static void load_half(const struct job *j, const struct chunk *c, size_t run, float *x, float *w)
{
    const size_t n = j->type->run, from = run * n;
    float wrapped[HALF];
    load_runs(c->x + from, (int)n, x);
    if (!j->importance)
        return;
    const size_t first = (c->first + from) % j->columns;
    if (first + ROW * n <= j->columns) {
        load_runs(j->importance + first, (int)n, w);
        return;
    }
    for (size_t i = 0, column = first; i < ROW * n; column = 0) {
        const size_t left = j->columns - column, some = left < ROW * n - i ? left : ROW * n - i;
        memcpy(wrapped + i, j->importance + column, some * sizeof *wrapped);
        i += some;
    }
    load_runs(wrapped, (int)n, w);
}

/* The moments of the rows or the blocks that runs from `run` of the chunk on are in. */
static inline void find_moments(const struct job *j, const struct chunk *c, const float *blocks, size_t run,
                                float moment[ROW])
{
    const bool of_rows = j->search->weight == GGUF_WEIGHT_ROW;
    const size_t n = j->type->run, each = of_rows ? j->columns : j->type->elements;
    const size_t first = run * n + (of_rows ? c->first : 0);
    size_t at = first / each, left = each - first % each;
    for (size_t l = 0; l < ROW; l++, left -= n) {
        if (left == 0) {
            at++;
            left = each;
        }
        moment[l] = of_rows ? j->moment[at % ROWS_TOGETHER] : blocks[at % ROW];
    }
}

static void load_pack(const struct job *j, struct chunk *c, const float *blocks, size_t run, struct pack *p)
{
    for (size_t half = 0; half < 2; half++) {
        const size_t first = run + half * ROW;
        float *const x = p->x + half * HALF, *const w = p->w + half * HALF;
        float moment[ROW];
        load_half(j, c, first, x, w);
        find_moments(j, c, blocks, first, moment);
        weigh((enum gguf_weight)j->search->weight, x, w, j->type->run, moment, c->found.weight + first);
    }
}

static void search_scales(const struct job *j, struct chunk *c)
{
    const struct gguf_type *const type = j->type;
    struct pack p;
    float blocks[ROW] = {0};
    if (j->search->weight == GGUF_WEIGHT_BLOCK || j->search->weight == GGUF_WEIGHT_BLOCK_DOUBLED ||
        j->search->weight == GGUF_WEIGHT_BLOCK_ONCE)
        measure_blocks(j, c, blocks);
    for (size_t run = 0; run * type->run < c->elements; run += PACK) {
        load_pack(j, c, blocks, run, &p);
        if (j->search->fit == GGUF_FIT_AFFINE)
            find_affine(j->search, &p, type->run, type->top, &c->found, run);
        else if (j->search->fit == GGUF_FIT_SIGNED)
            find_signed(&p, type->run, type->low, &c->found, run);
        else if (j->search->fit == GGUF_FIT_DESCENT)
            find_descent(&p, type->run, type->low, &c->found, run);
        else
            find_codebook(&p, type->run, &c->found, run);
    }
}

/* Scales of what is measured of the runs of a chunk, 16 at a time. */
static void measure_scales(const struct job *j, struct chunk *c)
{
    const struct gguf_type *const type = j->type;
    const size_t n = type->run;
    const bool range = j->search->fit == GGUF_FIT_RANGE;
    struct found *const f = &c->found;
    for (size_t run = 0; run * n < c->elements; run += ROW) {
        float a[ROW], b[ROW];
        for (size_t l = 0; l < ROW; l++) {
            a[l] = range ? FLT_MAX : 0;
            b[l] = range ? -FLT_MAX : 0;
        }
        switch ((enum gguf_fit)j->search->fit) {
        case GGUF_FIT_PEAK:
            measure(PEAK, c->x + run * n, n, n, a, b);
            break;
        case GGUF_FIT_RANGE:
            measure(MINIMUM_MAXIMUM, c->x + run * n, n, n, a, b);
            break;
        case GGUF_FIT_MEAN:
            measure(SUM_OF_MAGNITUDES, c->x + run * n, n, n, a, b);
            break;
        default:
            measure(LARGEST, c->x + run * n, n, n, a, b);
        }
        for (size_t l = 0; l < ROW; l++) {
            const float span = range ? b[l] - a[l] : j->search->fit == GGUF_FIT_PEAK ? b[l] : a[l];
            f->scale[run + l] = span / j->search->first;
            f->minimum[run + l] = range ? -a[l] : 0;
            f->code_minimum[run + l] = range ? a[l] : 0;
            f->code_scale[run + l] = f->scale[run + l] != 0 ? 1 / f->scale[run + l] : 0;
        }
    }
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

/* Facts of a type that all blocks share. */
struct maker {
    const struct codebook *book;
    struct nearest nearest;
    size_t runs; /* of a block */
};

static inline struct maker maker_of(const struct gguf_type *type, const struct codebook *book)
{
    return (struct maker){book, nearest_of(type), (size_t)(type->elements / type->run)};
}

/* Blocks of one run with an f16 scale, or of runs with a scale of 8 bits. */
static void make_block(const struct job *j, const struct chunk *c, const struct maker *m, size_t b,
                       unsigned char *block)
{
    const struct gguf_type *const type = j->type;
    const struct found *const f = &c->found;
    const size_t runs = m->runs, n = type->run;
    unsigned char codes[GGUF_MOST_ELEMENTS];
    if (type->scale_at >= 0)
        gguf_store16(block + type->scale_at, f16_of_float(f->scale[b]));
    if (type->minimum_at >= 0)
        gguf_store16(block + type->minimum_at, f16_of_float(-f->minimum[b]));
    for (size_t r = 0; r < runs; r++) {
        const size_t run = b * runs + r;
        const float *const x = c->x + run * n;
        const float scale = f->code_scale[run], minimum = f->code_minimum[run];
        unsigned char *const to = codes + r * n;
        if (type->scales == GGUF_SCALES_E8M0)
            e2m1_codes(n, x, f->scale[run], gguf_half_of_e8m0(block[r] = gguf_e8m0_of_largest(f->scale[run])), to);
        else if (type->scales == GGUF_SCALES_E4M3)
            e2m1_codes(n, x, f->scale[run], gguf_half_of_e4m3(block[r] = gguf_e4m3_of(f->scale[run])), to);
        else if (type->code == GGUF_CODE_CODEBOOK)
            codebook_codes(m->book, type->run, x, f->scale[run] != 0 ? 1 / f->scale[run] : 0, to);
        else if (type->code == GGUF_CODE_SIGN)
            sign_codes(type, x, to);
        else if (type->code != GGUF_CODE_NEAREST)
            away_codes(type, x, scale, to);
        else if (j->search->fit == GGUF_FIT_PEAK || j->search->fit == GGUF_FIT_RANGE)
            rounded_up_codes(type, x, scale, minimum, to);
        else
            nearest_codes(&m->nearest, n, x, 0, 0, scale, minimum, to);
    }
    store_codes(type, codes, block);
}

/* Codes of a block that the search of Q3_K ended with, for runs whose stored scale is 0. */
static void descent_codes(const struct job *j, const float *x, const float *scale, const float *code_scale,
                          unsigned char *codes)
{
    const int n = j->type->run, low = j->type->low;
    struct pack p;
    const float none[ROW] = {0};
    float sums[ROW];
    load_runs(x, n, p.x);
    weigh((enum gguf_weight)j->search->weight, p.x, p.w, n, none, sums);
    struct signed_search s[F32X16_PARTS];
    descent_search(F32X16_PARTS, p.x, p.w, p.code, n, low, s);
    for (int r = 0; r < ROW; r++)
        for (int i = 0; i < n && scale[r] == 0 && code_scale[r] == code_scale[r]; i++)
            codes[r * n + i] = (unsigned char)(p.code[ROW * i + r] + (float)low);
}

/* Blocks of runs with integers for their scales; block i of the 16 in `scales`. */
static void make_super_block(const struct job *j, const struct chunk *c, const struct block_scales *scales,
                             const struct maker *m, size_t i, unsigned char *block)
{
    const struct gguf_type *const type = j->type;
    const size_t runs = m->runs, n = type->run;
    const float *const x = c->x + i * type->elements;
    float scale[GGUF_MOST_RUNS], minimum[GGUF_MOST_RUNS];
    unsigned char codes[GGUF_MOST_ELEMENTS];
    bool descends = false;
    if (type->scales == GGUF_SCALES_BYTES && scales->of_scales[i] == 0) {
        memset(block, 0, type->bytes);
        return;
    }
    store_scales(type, j->importance != NULL, scales, i, block);
    gguf_run_scales(type, block, scale, minimum);
    for (size_t r = 0; r < runs; r++) {
        const size_t run = i * runs + r;
        const float exact = scales->of_scales[i] * (float)scales->scale_code[ROW * r + i];
        const float code_scale = c->found.code_scale[run];
        if (type->code == GGUF_CODE_CODEBOOK)
            codebook_codes(m->book, type->run, x + r * n, exact != 0 ? 1 / exact : 0, codes + r * n);
        else
            nearest_codes(&m->nearest, n, x + r * n, scale[r], minimum[r], code_scale, c->found.code_minimum[run],
                          codes + r * n);
        descends |= j->search->fit == GGUF_FIT_DESCENT && scale[r] == 0 && code_scale == code_scale;
    }
    if (descends)
        descent_codes(j, x, scale, c->found.code_scale + i * runs, codes);
    store_codes(type, codes, block);
}

static void make_super_blocks(const struct job *j, const struct chunk *c, const struct maker *m, unsigned char *out)
{
    const struct gguf_type *const type = j->type;
    struct block_scales b;
    f32x16_transpose(c->found.scale, m->runs, b.scale);
    f32x16_transpose(c->found.minimum, m->runs, b.minimum);
    f32x16_transpose(c->found.weight, m->runs, b.weight);
    fit_blocks(type, j->importance != NULL, &b);
    for (size_t i = 0; i * type->elements < c->elements; i++)
        make_super_block(j, c, &b, m, i, out + i * type->bytes);
}

/* A copy in another dtype. */
static void make_copies(const struct gguf_type *type, const float *x, size_t n, unsigned char *out)
{
    if (type->code == GGUF_CODE_F32)
        for (size_t i = 0; i < n; i++) {
            const uint32_t bits = bits_of_float(x[i]);
            gguf_store16(out + 4 * i, (uint16_t)bits);
            gguf_store16(out + 4 * i + 2, (uint16_t)(bits >> 16));
        }
    else
        for (size_t i = 0; i < n; i++)
            gguf_store16(out + 2 * i, type->code == GGUF_CODE_BF16 ? bf16_of_float(x[i]) : f16_of_float(x[i]));
}

static void make_chunk(const struct job *j, struct chunk *c, const struct codebook *book, unsigned char *out)
{
    const struct gguf_type *const type = j->type;
    const enum gguf_fit fit = (enum gguf_fit)j->search->fit;
    if (fit == GGUF_FIT_NONE) {
        make_copies(type, c->x, c->elements, out);
        return;
    }
    if (fit < GGUF_FIT_AFFINE)
        measure_scales(j, c);
    else
        search_scales(j, c);
    const struct maker m = maker_of(type, book);
    if (type->scale_at >= 0 && type->scales_at >= 0)
        make_super_blocks(j, c, &m, out);
    else
        for (size_t b = 0; b * type->elements < c->elements; b++)
            make_block(j, c, &m, b, out + b * type->bytes);
}

#include "templates/superblock_optimal.inl.h"
#include "templates/superblock_improve.inl.h"

typedef void chunk_function(const struct job *j, struct chunk *c, const struct codebook *book, unsigned char *out);

static void each_chunk(chunk_function *function, struct job *j, const void *x, size_t rows, unsigned char *out)
{
    const size_t columns = j->columns;
    struct chunk c;
    const struct codebook book = codebook();
    memset(&c.found, 0, sizeof c.found);
    for (size_t r = 0; r < rows; r += ROWS_TOGETHER) {
        const unsigned char *const from = (const unsigned char *)x + r * columns * size_of(j->dtype);
        unsigned char *const to = out + r * columns / j->type->elements * j->type->bytes;
        j->rows = rows - r < ROWS_TOGETHER ? rows - r : ROWS_TOGETHER;
        if (j->search->weight == GGUF_WEIGHT_ROW && j->search->fit >= GGUF_FIT_AFFINE && function == make_chunk)
            measure_rows(j, from, c.flat);
        for (c.first = 0; c.first < j->rows * columns; c.first += CHUNK) {
            const unsigned char *const at = from + c.first * size_of(j->dtype);
            const size_t left = j->rows * columns - c.first;
            c.elements = left < CHUNK ? left : CHUNK;
            c.x = c.flat;
            if (j->dtype == QOBS_KERNEL_F32 && c.elements == CHUNK && (uintptr_t)at % sizeof(float) == 0)
                c.x = (const float *)(const void *)at;
            else
                load_floats(j->dtype, at, c.elements, c.flat);
            memset(c.flat + c.elements, 0, (CHUNK - c.elements) * sizeof *c.flat);
            function(j, &c, &book, to + c.first / j->type->elements * j->type->bytes);
        }
    }
}

QOBS_SUPERBLOCK_ROWS(ENTRY(qobs_superblock_rows))
{
    CLEARS_UPPER_HALVES
    struct job j = {type, &type->search[importance != NULL], importance, dtype, columns, ROWS_TOGETHER, {0}};
    each_chunk(make_chunk, &j, x, rows, out);
}

QOBS_SUPERBLOCK_IMPROVE(ENTRY(qobs_superblock_improve))
{
    CLEARS_UPPER_HALVES
    struct job j = {type, &type->search[importance != NULL], importance, dtype, columns, ROWS_TOGETHER, {0}};
    each_chunk(improve_chunk, &j, x, rows, out);
}

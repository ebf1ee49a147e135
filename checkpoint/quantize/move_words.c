/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Words of three kinds hold the same codes: [rows, words] of pack-quantized; [words, rows] of GPTQ, the same words
 * transposed; [columns, rows / 8] of AWQ, squares of 8 x 8 codes of 4 bits. A tile in the cache is between two kinds.
 */
#include "quantize/move_words.h"

#include <string.h>

/* A tile has whole lines of caches on both sides: 16 words of a row, 128 rows in 16 words of a column. */
enum { WORD_BITS = 32, WORD_BYTES = 4, PLACES = 8, LANES = 4, TILE_WORDS = 16, SQUARES = 16 };
enum { TILE_ROWS = PLACES * SQUARES };

/* Words of neighbouring columns at [row % 8][word][row / 8]. */
struct tile {
    int squares; /* of 8 rows each, a multiple of LANES */
    uint32_t words[PLACES][TILE_WORDS][SQUARES];
};

/* Runs of words in memory, `stride` words apart. */
struct runs {
    unsigned char *data;
    int64_t stride, count, words;
};

/* A part of a matrix of codes; `words` are those of pack-quantized, of a row. */
struct word_part {
    int64_t row, rows, word, words;
};

/* Words in memory. The part that begins at `row` and `word` begins there, too. */
struct word_matrix {
    unsigned char *data;
    const struct word_layout *layout; /* NULL: pack-quantized */
    int64_t row, word;
    int64_t rows, words; /* of the whole matrix */
};

/* ---- Words ------------------------------------------------------------------------------------------------------- */

typedef uint32_t lanes __attribute__((vector_size(LANES * WORD_BYTES)));

static inline lanes load(const void *from)
{
    lanes x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline void store(void *to, lanes x) { memcpy(to, &x, sizeof x); }
static inline lanes zip_low(lanes a, lanes b) { return (lanes){a[0], b[0], a[1], b[1]}; }
static inline lanes zip_high(lanes a, lanes b) { return (lanes){a[2], b[2], a[3], b[3]}; }

/* Transposes 4 x 4 words. Strides are in words. */
static inline void transpose_words(void *to, int64_t to_stride, const void *from, int64_t from_stride)
{
    const unsigned char *x = from;
    unsigned char *y = to;
    const int64_t next = WORD_BYTES * from_stride, step = WORD_BYTES * to_stride;
    const lanes a = load(x), b = load(x + next), c = load(x + 2 * next), d = load(x + 3 * next);
    const lanes even = zip_low(a, c), odd = zip_low(b, d), more_even = zip_high(a, c), more_odd = zip_high(b, d);
    store(y, zip_low(even, odd));
    store(y + step, zip_high(even, odd));
    store(y + 2 * step, zip_low(more_even, more_odd));
    store(y + 3 * step, zip_high(more_even, more_odd));
}

/* Exchanges the upper codes of words x with the lower ones of words y. */
static inline void exchange(lanes *x, lanes *y, int bits, uint32_t mask)
{
    const lanes t = (*x >> bits ^ *y) & mask;
    *y ^= t;
    *x ^= t << bits;
}

/* Transposes the codes of 4 bits of eight words, in each lane. */
static inline void transpose_codes(lanes x[PLACES])
{
    for (int i = 0; i < 4; i++)
        exchange(&x[i], &x[i + 4], 16, 0x0000ffff);
    for (int i = 0; i < 4; i++)
        exchange(&x[i / 2 * 4 + i % 2], &x[i / 2 * 4 + i % 2 + 2], 8, 0x00ff00ff);
    for (int i = 0; i < PLACES; i += 2)
        exchange(&x[i], &x[i + 1], 4, 0x0f0f0f0f);
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

static inline unsigned char *run(const struct runs *r, int64_t i) { return r->data + WORD_BYTES * r->stride * i; }

/* Asks for the line that a later tile reads, or that nothing has. */
static inline void ask_for(const unsigned char *at, int64_t further)
{
    __builtin_prefetch((const void *)((uintptr_t)at + (uintptr_t)(WORD_BYTES * further)), 0, 2);
}

static void load_rows(struct tile *t, const struct runs *from)
{
    for (int i = 0; i < PLACES; i++)
        for (int b = 0; b < t->squares; b += LANES)
            for (int k = 0; k < TILE_WORDS; k += LANES) {
                transpose_words(&t->words[i][k][b], SQUARES, run(from, PLACES * b + i) + WORD_BYTES * k,
                                PLACES * from->stride);
                ask_for(run(from, PLACES * b + i + PLACES * k / LANES), TILE_WORDS);
            }
}

static void store_rows(const struct tile *t, const struct runs *to)
{
    for (int i = 0; i < PLACES; i++)
        for (int b = 0; b < t->squares; b += LANES)
            for (int k = 0; k < TILE_WORDS; k += LANES)
                transpose_words(run(to, PLACES * b + i) + WORD_BYTES * k, PLACES * to->stride, &t->words[i][k][b],
                                SQUARES);
}

static void load_columns(struct tile *t, const struct runs *from)
{
    for (int k = 0; k < TILE_WORDS; k++)
        for (int b = 0; b < t->squares; b += LANES)
            for (int i = 0; i < PLACES; i += LANES) {
                transpose_words(&t->words[i][k][b], TILE_WORDS * SQUARES, run(from, k) + WORD_BYTES * (PLACES * b + i),
                                PLACES);
                ask_for(run(from, k) + WORD_BYTES * (PLACES * b + LANES * i), TILE_WORDS * from->stride);
            }
}

static void store_columns(const struct tile *t, const struct runs *to)
{
    for (int k = 0; k < TILE_WORDS; k++)
        for (int b = 0; b < t->squares; b += LANES)
            for (int i = 0; i < PLACES; i += LANES)
                transpose_words(run(to, k) + WORD_BYTES * (PLACES * b + i), PLACES, &t->words[i][k][b],
                                TILE_WORDS * SQUARES);
}

/* Fills the rows of the codes of a word of AWQ. */
static void fill_rows(int row[PLACES], const unsigned char *places)
{
    for (int i = 0; i < PLACES; i++)
        row[places[i]] = i;
}

static void load_squares(struct tile *t, const struct runs *from, const unsigned char *places)
{
    int row[PLACES];
    fill_rows(row, places);
    for (int k = 0; k < TILE_WORDS; k++)
        for (int b = 0; b < t->squares; b += LANES) {
            lanes x[PLACES];
            for (int j = 0; j < PLACES; j++)
                x[j] = load(run(from, PLACES * k + j) + WORD_BYTES * b);
            for (int j = 0; j < PLACES && b == 0; j++)
                ask_for(run(from, PLACES * k + j), PLACES * TILE_WORDS * from->stride);
            transpose_codes(x);
            for (int j = 0; j < PLACES; j++)
                store(&t->words[row[j]][k][b], x[j]);
        }
}

static void store_squares(const struct tile *t, const struct runs *to, const unsigned char *places)
{
    int row[PLACES];
    fill_rows(row, places);
    for (int k = 0; k < TILE_WORDS; k++)
        for (int b = 0; b < t->squares; b += LANES) {
            lanes x[PLACES];
            for (int j = 0; j < PLACES; j++)
                x[j] = load(&t->words[row[j]][k][b]);
            transpose_codes(x);
            for (int j = 0; j < PLACES; j++)
                store(run(to, PLACES * k + j) + WORD_BYTES * b, x[j]);
        }
}

static void load_tile(struct tile *t, const struct word_layout *layout, const struct runs *from)
{
    if (!layout)
        load_rows(t, from);
    else if (layout->along_rows)
        load_squares(t, from, layout->places);
    else
        load_columns(t, from);
}

static void store_tile(const struct tile *t, const struct word_layout *layout, const struct runs *to)
{
    if (!layout)
        store_rows(t, to);
    else if (layout->along_rows)
        store_squares(t, to, layout->places);
    else
        store_columns(t, to);
}

/* ---- Parts of matrices ------------------------------------------------------------------------------------------- */

/* Returns the offset of the first code of a row and a word in bytes: words of AWQ hold eight rows of a column. */
static int64_t offset_of(const struct word_layout *layout, const struct word_matrix *m, int64_t row, int64_t word)
{
    return WORD_BYTES * (!layout              ? row * m->words + word
                         : layout->along_rows ? word * m->rows + row / PLACES
                                              : word * m->rows + row);
}

static struct runs runs_of(const struct word_matrix *m, const struct word_part *p)
{
    unsigned char *data = m->data + offset_of(m->layout, m, p->row - m->row, p->word - m->word);
    if (!m->layout)
        return (struct runs){data, m->words, p->rows, p->words};
    if (m->layout->along_rows)
        return (struct runs){data, m->rows / PLACES, PLACES * p->words, p->rows / PLACES};
    return (struct runs){data, m->rows, p->words, p->rows};
}

static void copy_runs(const struct runs *to, const struct runs *from, int64_t count, int64_t words)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(run(to, i), run(from, i), WORD_BYTES * (size_t)words);
}

/* A tile at the edge of a matrix, of fewer words or of other rows than 32, 64 and so on, is copied to a larger one, and
 * from it. */
static void move_tile(const struct word_matrix *to, const struct word_matrix *from, const struct word_part *p)
{
    enum { UNIT = PLACES * LANES };
    struct tile t;
    uint32_t edge[TILE_ROWS * TILE_WORDS];
    const bool whole = p->rows % UNIT == 0 && p->words == TILE_WORDS;
    const struct runs source = runs_of(from, p), target = runs_of(to, p);
    struct runs loaded = source, stored = target;
    if (!whole) {
        memset(edge, 0, sizeof edge);
        loaded.data = stored.data = (unsigned char *)edge;
        loaded.stride = from->layout && !from->layout->along_rows ? TILE_ROWS : TILE_WORDS;
        stored.stride = to->layout && !to->layout->along_rows ? TILE_ROWS : TILE_WORDS;
        copy_runs(&loaded, &source, source.count, source.words);
    }
    t.squares = (int)((p->rows + UNIT - 1) / UNIT * LANES);
    load_tile(&t, from->layout, &loaded);
    store_tile(&t, to->layout, &stored);
    if (!whole)
        copy_runs(&target, &stored, target.count, target.words);
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Tiles of the same words follow one another: lines of AWQ and GPTQ are read and written from end to end. */
static void move_part(const struct word_matrix *to, const struct word_matrix *from, const struct word_part *p)
{
    for (int64_t k = 0; k < p->words; k += TILE_WORDS)
        for (int64_t r = 0; r < p->rows; r += TILE_ROWS) {
            const struct word_part tile = {p->row + r, smaller(TILE_ROWS, p->rows - r), p->word + k,
                                           smaller(TILE_WORDS, p->words - k)};
            move_tile(to, from, &tile);
        }
}

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

/* Returns the part of the matrix whose words lie together in the output: rows, or whole lines of words. */
static struct word_part part_of(const struct row_slice *s, const struct word_layout *layout, int64_t words)
{
    const int64_t rows = s->job->weight->shape[0], end = s->first + s->count;
    if (!layout)
        return (struct word_part){s->first, s->count, 0, words};
    const int64_t first = words * s->first / rows / TILE_WORDS * TILE_WORDS;
    const int64_t last = end < rows ? words * end / rows / TILE_WORDS * TILE_WORDS : words;
    return (struct word_part){0, rows, first, last - first};
}

static bool is_same(const struct word_layout *a, const struct word_layout *b)
{
    return a && b ? a->along_rows == b->along_rows : a == b;
}

int move_words(struct moved_bytes *moved, const struct row_slice *s, struct workspace *work, struct fail *f)
{
    const struct weight *w = s->job->weight;
    const struct word_layout *stored = quant_format_row(s->job->group->quant->stored)->words;
    const int64_t words = w->shape[1] * w->source_codes.bits / WORD_BITS;
    const struct word_part part = part_of(s, stored, words);
    const struct word_matrix from = {
        (unsigned char *)(uintptr_t)w->data, w->source_codes.format->words, 0, 0, w->shape[0], words};
    moved->offset = (uint64_t)offset_of(stored, &from, part.row, part.word);
    moved->size = (size_t)(part.rows * part.words * WORD_BYTES);
    moved->data = w->data + moved->offset;
    if (is_same(from.layout, stored) || moved->size == 0)
        return QOBS_OK;
    unsigned char *data = workspace_reserve(work, WORK_PACKED, moved->size);
    if (!data)
        return NO_MEMORY(f, "codes");
    const struct word_matrix to = {data, stored, part.row, part.word, w->shape[0], words};
    move_part(&to, &from, &part);
    moved->data = data;
    return QOBS_OK;
}

void spread_words(void *tensor, const struct weight_job *job, int64_t first, int64_t count, const void *words)
{
    const int64_t *shape = job->weight->shape, row = shape[1] * job_args(job)->num_bits / WORD_BITS;
    const struct word_matrix from = {(unsigned char *)(uintptr_t)words, NULL, first, 0, shape[0], row};
    const struct word_matrix to = {tensor, quant_format_row(job->group->quant->stored)->words, 0, 0, shape[0], row};
    move_part(&to, &from, &(struct word_part){first, count, 0, row});
}

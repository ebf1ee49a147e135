/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Words of three kinds hold the same codes: [rows, words] of pack-quantized; [words, rows] of GPTQ, the same words
 * transposed; [columns, rows / 8] of AWQ, squares of 8 x 8 codes of 4 bits. A tile in the cache is between two kinds.
 */
#include "quantize/move_words.h"

#include <string.h>

/* A tile has whole lines of caches on both sides: 16 words of a row, 128 rows in 16 words of a column. */
enum { WORD_BITS = 32, WORD_BYTES = 4, PLACES = 8, TILE_WORDS = 16, TILE_ROWS = 128 };

/* Words of neighbouring columns. */
struct tile {
    uint32_t words[TILE_WORDS][TILE_ROWS];
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

/* ---- Squares of codes -------------------------------------------------------------------------------------------- */

enum { SQUARES = TILE_ROWS / PLACES };

/* Exchanges the upper codes of word x with the lower ones of word y. */
static inline void exchange(uint32_t *x, uint32_t *y, int bits, uint32_t mask)
{
    const uint32_t t = (*x >> bits ^ *y) & mask;
    *y ^= t;
    *x ^= t << bits;
}

/* Transposes the codes of 4 bits of eight words, in as many squares as a tile has rows for. The loop over squares is
 * the outer one, which compilers vectorize. */
static void transpose_squares(uint32_t x[PLACES][SQUARES])
{
    for (int b = 0; b < SQUARES; b++) {
        uint32_t w[PLACES];
        for (int i = 0; i < PLACES; i++)
            w[i] = x[i][b];
        for (int i = 0; i < 4; i++)
            exchange(&w[i], &w[i + 4], 16, 0x0000ffff);
        for (int i = 0; i < 4; i++)
            exchange(&w[i / 2 * 4 + i % 2], &w[i / 2 * 4 + i % 2 + 2], 8, 0x00ff00ff);
        for (int i = 0; i < PLACES; i += 2)
            exchange(&w[i], &w[i + 1], 4, 0x0f0f0f0f);
        for (int i = 0; i < PLACES; i++)
            x[i][b] = w[i];
    }
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

/* Returns the offset of the first code of a row and a word in bytes: words of AWQ hold eight rows of a column. */
static int64_t offset_of(const struct word_layout *layout, const struct word_matrix *m, int64_t row, int64_t word)
{
    return WORD_BYTES * (!layout              ? row * m->words + word
                         : layout->along_rows ? word * m->rows + row / PLACES
                                              : word * m->rows + row);
}

static unsigned char *place_of(const struct word_matrix *m, int64_t row, int64_t word)
{
    return m->data + offset_of(m->layout, m, row - m->row, word - m->word);
}

/* Copies words of a tile, `most` at most. The usual number of them is one that compilers know. */
static inline void copy_words(void *to, const void *from, int64_t words, int64_t most)
{
    if (words == most)
        memcpy(to, from, WORD_BYTES * (size_t)most);
    else
        memcpy(to, from, WORD_BYTES * (size_t)words);
}

static void load_packed(struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    const unsigned char *from = place_of(m, p->row, p->word);
    for (int64_t r = 0; r < p->rows; r++) {
        uint32_t line[TILE_WORDS] = {0};
        copy_words(line, from + WORD_BYTES * m->words * r, p->words, TILE_WORDS);
        for (int k = 0; k < TILE_WORDS; k++)
            t->words[k][r] = line[k];
    }
}

static void store_packed(const struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    unsigned char *to = place_of(m, p->row, p->word);
    for (int64_t r = 0; r < p->rows; r++) {
        uint32_t line[TILE_WORDS];
        for (int k = 0; k < TILE_WORDS; k++)
            line[k] = t->words[k][r];
        copy_words(to + WORD_BYTES * m->words * r, line, p->words, TILE_WORDS);
    }
}

static void load_columns(struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    for (int64_t k = 0; k < p->words; k++)
        copy_words(t->words[k], place_of(m, p->row, p->word + k), p->rows, TILE_ROWS);
}

static void store_columns(const struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    for (int64_t k = 0; k < p->words; k++)
        copy_words(place_of(m, p->row, p->word + k), t->words[k], p->rows, TILE_ROWS);
}

static void load_squares(struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    const int64_t stride = WORD_BYTES * m->rows / PLACES;
    for (int64_t k = 0; k < p->words; k++) {
        uint32_t x[PLACES][SQUARES] = {{0}}, y[PLACES][SQUARES];
        const unsigned char *from = place_of(m, p->row, p->word + k);
        for (int j = 0; j < PLACES; j++)
            copy_words(x[j], from + j * stride, p->rows / PLACES, SQUARES);
        transpose_squares(x);
        for (int i = 0; i < PLACES; i++)
            memcpy(y[i], x[m->layout->places[i]], sizeof y[i]);
        for (int b = 0; b < SQUARES; b++)
            for (int i = 0; i < PLACES; i++)
                t->words[k][PLACES * b + i] = y[i][b];
    }
}

static void store_squares(const struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    const int64_t stride = WORD_BYTES * m->rows / PLACES;
    for (int64_t k = 0; k < p->words; k++) {
        uint32_t x[PLACES][SQUARES], y[PLACES][SQUARES];
        unsigned char *to = place_of(m, p->row, p->word + k);
        for (int b = 0; b < SQUARES; b++)
            for (int i = 0; i < PLACES; i++)
                y[i][b] = t->words[k][PLACES * b + i];
        for (int i = 0; i < PLACES; i++)
            memcpy(x[m->layout->places[i]], y[i], sizeof y[i]);
        transpose_squares(x);
        for (int j = 0; j < PLACES; j++)
            copy_words(to + j * stride, x[j], p->rows / PLACES, SQUARES);
    }
}

static void load_tile(struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    if (!m->layout)
        load_packed(t, m, p);
    else if (m->layout->along_rows)
        load_squares(t, m, p);
    else
        load_columns(t, m, p);
}

static void store_tile(const struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    if (!m->layout)
        store_packed(t, m, p);
    else if (m->layout->along_rows)
        store_squares(t, m, p);
    else
        store_columns(t, m, p);
}

static void move_tile(const struct word_matrix *to, const struct word_matrix *from, const struct word_part *p)
{
    struct tile t;
    if (p->rows < TILE_ROWS || p->words < TILE_WORDS)
        memset(&t, 0, sizeof t);
    load_tile(&t, from, p);
    store_tile(&t, to, p);
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

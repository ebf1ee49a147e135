/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Words of three kinds hold the same codes: [rows, words] of pack-quantized; [words, rows] of GPTQ, the same words
 * transposed; [columns, rows / 8] of AWQ, squares of 8 x 8 codes of 4 bits. A tile in the cache is between two kinds.
 */
#include "quantize/move_words.h"

#include <string.h>

enum { WORD_BITS = 32, WORD_BYTES = 4, PLACES = 8, TILE_WORDS = 16, TILE_ROWS = 64 };

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

/* Exchanges the upper codes of words x with the lower ones of words y. */
static void exchange(uint32_t *x, uint32_t *y, int bits, uint32_t mask)
{
    for (int b = 0; b < SQUARES; b++) {
        const uint32_t t = (x[b] >> bits ^ y[b]) & mask;
        y[b] ^= t;
        x[b] ^= t << bits;
    }
}

/* Transposes the codes of 4 bits of eight words, in as many squares as a tile has rows for. */
static void transpose_squares(uint32_t x[PLACES][SQUARES])
{
    for (int i = 0; i < 4; i++)
        exchange(x[i], x[i + 4], 16, 0x0000ffff);
    for (int i = 0; i < PLACES; i += i % 4 == 1 ? 3 : 1)
        exchange(x[i], x[i + 2], 8, 0x00ff00ff);
    for (int i = 0; i < PLACES; i += 2)
        exchange(x[i], x[i + 1], 4, 0x0f0f0f0f);
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

static void load_packed(struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    for (int64_t r = 0; r < p->rows; r++) {
        uint32_t line[TILE_WORDS];
        memcpy(line, place_of(m, p->row + r, p->word), WORD_BYTES * (size_t)p->words);
        for (int64_t k = 0; k < p->words; k++)
            t->words[k][r] = line[k];
    }
}

static void store_packed(const struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    for (int64_t r = 0; r < p->rows; r++) {
        uint32_t line[TILE_WORDS] = {0};
        for (int64_t k = 0; k < p->words; k++)
            line[k] = t->words[k][r];
        memcpy(place_of(m, p->row + r, p->word), line, WORD_BYTES * (size_t)p->words);
    }
}

static void load_columns(struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    for (int64_t k = 0; k < p->words; k++)
        memcpy(t->words[k], place_of(m, p->row, p->word + k), WORD_BYTES * (size_t)p->rows);
}

static void store_columns(const struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    for (int64_t k = 0; k < p->words; k++)
        memcpy(place_of(m, p->row, p->word + k), t->words[k], WORD_BYTES * (size_t)p->rows);
}

static void load_squares(struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    const int64_t stride = WORD_BYTES * m->rows / PLACES, squares = p->rows / PLACES;
    for (int64_t k = 0; k < p->words; k++) {
        uint32_t x[PLACES][SQUARES] = {{0}};
        const unsigned char *from = place_of(m, p->row, p->word + k);
        for (int j = 0; j < PLACES; j++)
            memcpy(x[j], from + j * stride, WORD_BYTES * (size_t)squares);
        transpose_squares(x);
        for (int64_t b = 0; b < squares; b++)
            for (int i = 0; i < PLACES; i++)
                t->words[k][PLACES * b + i] = x[m->layout->places[i]][b];
    }
}

static void store_squares(const struct tile *t, const struct word_matrix *m, const struct word_part *p)
{
    const int64_t stride = WORD_BYTES * m->rows / PLACES, squares = p->rows / PLACES;
    for (int64_t k = 0; k < p->words; k++) {
        uint32_t x[PLACES][SQUARES] = {{0}};
        unsigned char *to = place_of(m, p->row, p->word + k);
        for (int64_t b = 0; b < squares; b++)
            for (int i = 0; i < PLACES; i++)
                x[m->layout->places[i]][b] = t->words[k][PLACES * b + i];
        transpose_squares(x);
        for (int j = 0; j < PLACES; j++)
            memcpy(to + j * stride, x[j], WORD_BYTES * (size_t)squares);
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
    load_tile(&t, from, p);
    store_tile(&t, to, p);
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void move_part(const struct word_matrix *to, const struct word_matrix *from, const struct word_part *p)
{
    for (int64_t r = 0; r < p->rows; r += TILE_ROWS)
        for (int64_t k = 0; k < p->words; k += TILE_WORDS) {
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

int move_words(struct moved_words *moved, const struct row_slice *s, struct workspace *work, struct fail *f)
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

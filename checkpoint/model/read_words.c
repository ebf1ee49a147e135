/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A word has eight codes of 4 bits in an order of their own, or codes are a stream of bits through words. */
#include "model/read_words.h"

#include <string.h>

enum { WORD_BITS = 32, PLACES = 8 };

static uint32_t word_at(const unsigned char *data, int64_t i)
{
    uint32_t word;
    memcpy(&word, data + 4 * i, sizeof word);
    return word;
}

/* Words of one number of bits, `step` words apart, that hold code after code. */
struct word_stream {
    const unsigned char *data;
    int64_t first, step;
    int bits;
    const unsigned char *places;
};

/* Returns code i of a stream, which may lie in two words. */
static uint32_t code_of(const struct word_stream *s, int64_t i)
{
    const int64_t place = s->places ? i / PLACES * PLACES + s->places[i % PLACES] : i;
    const int64_t bit = place * s->bits, word = s->first + bit / WORD_BITS * s->step;
    const int shift = (int)(bit % WORD_BITS), over = shift + s->bits - WORD_BITS;
    uint32_t code = word_at(s->data, word) >> shift;
    if (over > 0)
        code |= word_at(s->data, word + s->step) << (s->bits - over);
    return code & ((1u << s->bits) - 1);
}

/* Codes that may lie in two words. */
static void read_streams(const struct source_codes *c, const unsigned char *data, const struct word_tile *t,
                         signed char *codes, int64_t stride)
{
    const int half = 1 << (c->bits - 1);
    struct word_stream s = {.data = data, .step = c->scales->shape[1], .bits = c->bits};
    for (int64_t r = 0; r < t->rows; r++) {
        s.first = t->row + r;
        for (int64_t k = 0; k < t->columns; k++)
            codes[r * stride + k] = (signed char)((int)code_of(&s, t->column + k) - half);
    }
}

/* Words of neighbouring columns: each gives a piece of a row. */
static void read_along_columns(const struct source_codes *c, const unsigned char *data, const struct word_tile *t,
                               signed char *codes, int64_t stride)
{
    const int bits = c->bits, per = WORD_BITS / bits, mask = (1 << bits) - 1, half = 1 << (bits - 1);
    const int64_t rows = c->scales->shape[1];
    for (int64_t k = 0; k < t->columns; k += per) {
        const unsigned char *from = data + 4 * ((t->column + k) / per * rows + t->row);
        for (int64_t r = 0; r < t->rows; r++) {
            const uint32_t word = word_at(from, r);
            for (int i = 0; i < per; i++)
                codes[r * stride + k + i] = (signed char)((int)(word >> i * bits & (uint32_t)mask) - half);
        }
    }
}

/* Returns the bit of a code that two's complement has the other way. */
static int sign_of(const struct source_codes *c)
{
    return c->format->words && c->format->words->twos ? 1 << (c->bits - 1) : 0;
}

/* Words of neighbouring rows: of eight columns at a time they give eight codes of each row. */
static void read_along_rows(const struct source_codes *c, const unsigned char *data, const struct word_tile *t,
                            signed char *codes, int64_t stride)
{
    enum { COLUMNS = 8 };
    const int bits = c->bits, per = WORD_BITS / bits, mask = (1 << bits) - 1, half = 1 << (bits - 1);
    const int sign = sign_of(c);
    const unsigned char *places = c->format->words->places;
    const int64_t words = c->scales->shape[1] / per, end = t->row + t->rows;
    for (int64_t k = 0; k < t->columns; k += COLUMNS)
        for (int64_t row = t->row / per * per; row < end; row += per) {
            const int64_t columns = t->columns - k < COLUMNS ? t->columns - k : COLUMNS;
            uint32_t word[COLUMNS] = {0};
            for (int64_t j = 0; j < columns; j++)
                word[j] = word_at(data, (t->column + k + j) * words + row / per);
            for (int64_t r = row < t->row ? t->row : row; r < row + per && r < end; r++) {
                const int shift = bits * (places ? places[r - row] : (int)(r - row));
                signed char *to = codes + (r - t->row) * stride + k;
                for (int64_t j = 0; j < columns; j++)
                    to[j] = (signed char)(((int)(word[j] >> shift & (uint32_t)mask) ^ sign) - half);
            }
        }
}

void words_read(const struct source_codes *c, const unsigned char *data, const struct word_tile *t, signed char *codes,
                int64_t stride)
{
    (c->format->words->along_rows ? read_along_rows
     : WORD_BITS % c->bits == 0   ? read_along_columns
                                  : read_streams)(c, data, t, codes, stride);
}

/* Packed ones lie along the rows: [groups, words], or [words, groups] in pack-quantized. */
static struct word_stream zero_point_stream(const struct source_codes *c, int64_t group)
{
    const struct word_layout *words = c->format->words;
    return (struct word_stream){.data = c->zero_points->data,
                                .first = words ? group * c->zero_points->shape[1] : group,
                                .step = words ? 1 : c->scale_columns,
                                .bits = c->bits,
                                .places = words ? words->places : NULL};
}

/* Reads whole words of eight codes, and returns how many codes that were. */
static int64_t read_eights(const struct word_stream *s, int64_t row, int64_t count, int sign, int offset, int16_t *out)
{
    static const unsigned char in_order[PLACES] = {0, 1, 2, 3, 4, 5, 6, 7};
    const unsigned char *places = s->places ? s->places : in_order;
    const int64_t whole = s->bits * PLACES == WORD_BITS && row % PLACES == 0 ? count / PLACES * PLACES : 0;
    for (int64_t r = 0; r < whole; r += PLACES) {
        const uint32_t word = word_at(s->data, s->first + (row + r) / PLACES * s->step);
        for (int i = 0; i < PLACES; i++)
            out[r + i] = (int16_t)(((int)(word >> 4 * places[i] & 15) ^ sign) + offset);
    }
    return whole;
}

void source_zero_points(const struct source_codes *c, int64_t row, int64_t count, int64_t group, int16_t *zero_points)
{
    const struct st_tensor *z = c->zero_points;
    const unsigned char *elements = z->data;
    if (z->dtype == FILE_I8) {
        for (int64_t r = 0; r < count; r++)
            zero_points[r] = (int16_t)((elements[(row + r) * c->scale_columns + group] ^ 128) - 128);
        return;
    }
    const struct word_stream s = zero_point_stream(c, group);
    const int sign = sign_of(c), offset = (c->format->words ? c->format->words->zero_offset : 0) - (1 << (c->bits - 1));
    for (int64_t r = read_eights(&s, row, count, sign, offset, zero_points); r < count; r++)
        zero_points[r] = (int16_t)(((int)code_of(&s, row + r) ^ sign) + offset);
}

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

void words_read(const struct source_codes *c, const unsigned char *data, const struct word_tile *t, signed char *codes,
                int64_t stride)
{
    const struct word_layout *words = c->format->read.words;
    const int64_t rows = c->scales->shape[1];
    const int half = 1 << (c->bits - 1);
    struct word_stream s = {
        .data = data, .step = words->along_rows ? 1 : rows, .bits = c->bits, .places = words->places};
    if (words->along_rows)
        for (int64_t k = 0; k < t->columns; k++) {
            s.first = (t->column + k) * (rows * c->bits / WORD_BITS);
            for (int64_t r = 0; r < t->rows; r++)
                codes[r * stride + k] = (signed char)((int)code_of(&s, t->row + r) - half);
        }
    else
        for (int64_t r = 0; r < t->rows; r++) {
            s.first = t->row + r;
            for (int64_t k = 0; k < t->columns; k++)
                codes[r * stride + k] = (signed char)((int)code_of(&s, t->column + k) - half);
        }
}

int words_zero_point(const struct source_codes *c, int64_t row, int64_t group)
{
    if (!c->zero_points)
        return 0;
    const struct word_layout *words = c->format->read.words;
    const struct word_stream s = {.data = c->zero_points->data,
                                  .first = group * c->zero_points->shape[1],
                                  .step = 1,
                                  .bits = c->bits,
                                  .places = words->places};
    return (int)code_of(&s, row) + words->zero_offset - (1 << (c->bits - 1));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The inverse of model/read_words.c. */
#include "quantize/word_buffers.h"

#include <stdlib.h>
#include <string.h>

#include "qobs/quantizer.h"
#include "quantize/move_words.h"

enum { WORD_BITS = 32, WORD_BYTES = 4, PLACES = 8 };

static const struct quant_format_row *row_of(const struct weight_job *job)
{
    return quant_format_row(job->group->quant->stored);
}

bool job_has_words(const struct weight_job *job) { return job->group && row_of(job)->words; }

static uint32_t word_at(const unsigned char *data, int64_t i)
{
    uint32_t word;
    memcpy(&word, data + WORD_BYTES * i, sizeof word);
    return word;
}

static void put_word(unsigned char *data, int64_t i, uint32_t word)
{
    memcpy(data + WORD_BYTES * i, &word, sizeof word);
}

/* Groups lie in order. */
static void fill_groups(unsigned char *index, const struct weight_job *job)
{
    const struct quant_args *a = job_args(job);
    const int64_t columns = job->weight->shape[1], group = a->strategy == QUANT_CHANNEL ? columns : a->group_size;
    for (int64_t i = 0; i < columns; i++)
        put_word(index, i, (uint32_t)(i / group));
}

int word_buffers_open(struct word_buffers *b, const struct output_layout *layout, const struct weight_job *job,
                      struct fail *f)
{
    for (int part = 0; part < OUTPUT_PARTS; part++) {
        const bool moved = part == PART_CODES ? job->moved.words : job->moved.qparams && part != PART_GROUP_INDEX;
        const size_t tensor = moved ? SIZE_MAX : layout->parts[job->index][part];
        if (tensor != SIZE_MAX && !(b->parts[part] = calloc(1, layout->tensors[tensor].bytes)))
            return NO_MEMORY(f, "the codes of a weight");
    }
    if (b->parts[PART_GROUP_INDEX])
        fill_groups(b->parts[PART_GROUP_INDEX], job);
    return QOBS_OK;
}

void word_buffers_close(struct word_buffers *b)
{
    for (int part = 0; part < OUTPUT_PARTS; part++)
        free(b->parts[part]);
    *b = (struct word_buffers){0};
}

void word_buffers_put_codes(struct word_buffers *b, const struct weight_job *job, uint64_t offset, const void *codes,
                            size_t bytes)
{
    const int64_t row = WORD_BYTES * (job->weight->shape[1] * job_args(job)->num_bits / WORD_BITS);
    spread_words(b->parts[PART_CODES], job, (int64_t)offset / row, (int64_t)bytes / row, codes);
}

/* ---- Qparams ----------------------------------------------------------------------------------------------------- */

/* Adds a code to a stream of bits, of which a word may have only a part. */
static void add_code(unsigned char *stream, int64_t place, int bits, uint32_t code)
{
    const int64_t bit = place * bits, word = bit / WORD_BITS;
    const int shift = (int)(bit % WORD_BITS);
    put_word(stream, word, word_at(stream, word) | code << shift);
    if (shift + bits > WORD_BITS)
        put_word(stream, word + 1, word_at(stream, word + 1) | code >> (WORD_BITS - shift));
}

static int refuse_zero_point(const struct weight_job *job, struct fail *f)
{
    return INVALID(f,
                   "%.300s: a group has the zero point 0, which %s does not store: it stores zero points minus one. "
                   "--dialect gptq-v2, awq and compressed-tensors do",
                   job->weight->name, row_of(job)->read.title);
}

/* Zero points of the rows of a slice in one group as codes: element r * step of `zero_points`, NULL for none. */
struct zero_codes {
    const signed char *zero_points;
    int64_t step;
    int offset; /* of a code */
};

/* Returns the code of row r; below 0: words do not store it. */
static int zero_code(const struct zero_codes *z, int64_t r)
{
    return (z->zero_points ? z->zero_points[r * z->step] : 0) + z->offset;
}

/* Returns the word of eight codes of 4 bits; sets *lowest below 0 if one of them is. */
static uint32_t word_of_eight(const struct zero_codes *z, int64_t r, const unsigned char *places, int *lowest)
{
    uint32_t word = 0;
    for (int i = 0; i < PLACES; i++) {
        const int code = zero_code(z, r + i);
        *lowest |= code;
        word |= ((uint32_t)code & 15) << 4 * (places ? places[i] : i);
    }
    return word;
}

/* Writes the zero points of a group. Returns a number below 0 if words do not store one of them. */
static int put_zero_codes(unsigned char *stream, const struct row_slice *s, const struct zero_codes *z,
                          const unsigned char *places)
{
    const int bits = job_args(s->job)->num_bits;
    const int64_t whole = bits * PLACES == WORD_BITS && s->first % PLACES == 0 ? s->count / PLACES * PLACES : 0;
    int lowest = 0;
    for (int64_t r = 0; r < whole; r += PLACES)
        put_word(stream, (s->first + r) / PLACES, word_of_eight(z, r, places, &lowest));
    for (int64_t r = whole; r < s->count && lowest >= 0; r++) {
        const int64_t row = s->first + r;
        lowest |= zero_code(z, r);
        add_code(stream, places ? row / PLACES * PLACES + places[row % PLACES] : row, bits,
                 (uint32_t)zero_code(z, r) & ((1u << bits) - 1));
    }
    return lowest;
}

static int put_zero_points(struct word_buffers *b, const struct row_slice *s, const struct slice_qparams *q,
                           struct fail *f)
{
    const struct word_layout *layout = row_of(s->job)->words;
    const signed char *zero_points = q->zero_point; /* of integers */
    const int bits = job_args(s->job)->num_bits;
    const int64_t rows = s->job->weight->shape[0], groups = q->count / s->count;
    for (int64_t g = 0; g < groups; g++) {
        unsigned char *stream = b->parts[PART_ZERO_POINT] + g * rows * bits / WORD_BITS * WORD_BYTES;
        const struct zero_codes z = {q->has_zero_point ? zero_points + g : NULL, groups,
                                     (1 << (bits - 1)) - layout->zero_offset};
        if (put_zero_codes(stream, s, &z, layout->places) < 0)
            return refuse_zero_point(s->job, f);
    }
    return QOBS_OK;
}

static void put_scale(unsigned char *to, int64_t i, const struct slice_qparams *q, int64_t k)
{
    if (q->scale_dtype == QOBS_F32)
        memcpy(to + 4 * i, (const unsigned char *)q->scale + 4 * k, 4);
    else
        memcpy(to + 2 * i, (const unsigned char *)q->scale + 2 * k, 2);
}

int word_buffers_put_scales(struct word_buffers *b, const struct row_slice *s, const struct slice_qparams *q,
                            struct fail *f)
{
    const int64_t rows = s->job->weight->shape[0], groups = q->count / s->count;
    unsigned char *to = b->parts[PART_SCALE];
    for (int64_t r = 0; r < s->count; r++)
        for (int64_t g = 0; g < groups; g++)
            put_scale(to, g * rows + s->first + r, q, r * groups + g);
    return put_zero_points(b, s, q, f);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales lie [rows, groups] in pack-quantized and [groups, rows] in GPTQ and AWQ, and so do words of zero points. */
#include "quantize/move_qparams.h"

#include <string.h>

enum { WORD_BITS = 32, WORD_BYTES = 4, PLACES = 8, LINE = 32 };

/* Elements of a matrix, and the distances of neighbouring rows and groups. */
struct places {
    unsigned char *data;
    int64_t row, group;
};

static const struct word_layout *words_of(const struct weight_job *job)
{
    return quant_format_row(job->group->quant->stored)->words;
}

/* layout NULL: pack-quantized */
static struct places places_of(const void *data, const struct word_layout *layout, int64_t rows, int64_t groups)
{
    return (struct places){(unsigned char *)(uintptr_t)data, layout ? 1 : groups, layout ? rows : 1};
}

/* Goes by as many rows as share a line of the cache on both sides. */
static inline void move_elements(const struct places *to, const struct places *from, int64_t rows, int64_t groups,
                                 int64_t size)
{
    for (int64_t first = 0; first < rows; first += LINE)
        for (int64_t g = 0; g < groups; g++)
            for (int64_t r = first; r < first + LINE && r < rows; r++)
                memcpy(to->data + size * (r * to->row + g * to->group),
                       from->data + size * (r * from->row + g * from->group), (size_t)size);
}

/* Returns the tensor of a source with rows and groups as the output has them: itself, or in the workspace. */
static const void *move_tensor(const struct st_tensor *tensor, const struct weight_job *job, int64_t rows,
                               struct workspace *work)
{
    const struct source_codes *c = &job->weight->source_codes;
    const int64_t groups = c->scale_columns;
    if (!c->format->words == !words_of(job))
        return tensor->data;
    const struct places from = places_of(tensor->data, c->format->words, rows, groups);
    const struct places to = places_of(workspace_reserve(work, WORK_SINK, (size_t)(tensor->end - tensor->begin)),
                                       words_of(job), rows, groups);
    if (to.data && dtype_size(tensor->dtype) == 2)
        move_elements(&to, &from, rows, groups, 2);
    else if (to.data)
        move_elements(&to, &from, rows, groups, 4);
    return to.data;
}

int move_scales(struct moved_bytes *moved, const struct weight_job *job, struct workspace *work, struct fail *f)
{
    const struct st_tensor *scales = job->weight->source_codes.scales;
    *moved = (struct moved_bytes){.data = move_tensor(scales, job, job->weight->shape[0], work),
                                  .size = (size_t)(scales->end - scales->begin)};
    return moved->data ? QOBS_OK : NO_MEMORY(f, "scales");
}

/* ---- Zero points ------------------------------------------------------------------------------------------------- */

static const unsigned char *order_of(const struct word_layout *layout)
{
    static const unsigned char in_order[PLACES] = {0, 1, 2, 3, 4, 5, 6, 7};
    return layout && layout->places ? layout->places : in_order;
}

/* Returns a word that adds `code` in each place. */
static uint32_t word_of(int code, int bits) { return (uint32_t)code * (UINT32_MAX / ((1u << bits) - 1)); }

/* Writes eight codes of 4 bits of each word in another order. */
static void reorder(unsigned char *to, const unsigned char *from, size_t words, const unsigned char *to_places,
                    const unsigned char *from_places)
{
    for (size_t i = 0; i < words; i++) {
        uint32_t word, ordered = 0;
        memcpy(&word, from + WORD_BYTES * i, sizeof word);
        for (int k = 0; k < PLACES; k++)
            ordered |= (word >> 4 * from_places[k] & 15) << 4 * to_places[k];
        memcpy(to + WORD_BYTES * i, &ordered, sizeof ordered);
    }
}

/* Adds a word to each of others: no code leaves its bits. */
static void add_word(unsigned char *to, const unsigned char *from, size_t words, uint32_t added)
{
    for (size_t i = 0; i < words; i++) {
        uint32_t word;
        memcpy(&word, from + WORD_BYTES * i, sizeof word);
        word += added;
        memcpy(to + WORD_BYTES * i, &word, sizeof word);
    }
}

/* Writes words of zero points as the output orders and counts them. */
static int recode(struct moved_bytes *moved, const struct weight_job *job, struct workspace *work, struct fail *f)
{
    const struct source_codes *c = &job->weight->source_codes;
    const struct word_layout *from = c->format->words, *to = words_of(job);
    const int offset = (from ? from->zero_offset : 0) - (to ? to->zero_offset : 0);
    const bool ordered = order_of(from) == order_of(to);
    if (ordered && offset == 0)
        return QOBS_OK;
    unsigned char *words = workspace_reserve(work, WORK_PACKED, moved->size);
    if (!words)
        return NO_MEMORY(f, "zero points");
    if (!ordered)
        reorder(words, moved->data, moved->size / WORD_BYTES, order_of(to), order_of(from));
    add_word(words, ordered ? moved->data : words, moved->size / WORD_BYTES, word_of(offset, c->bits));
    moved->data = words;
    return QOBS_OK;
}

/* Writes the zero points of a source that has none. */
static int fill(struct moved_bytes *moved, const struct weight_job *job, struct workspace *work, struct fail *f)
{
    const struct source_codes *c = &job->weight->source_codes;
    unsigned char *words = workspace_reserve(work, WORK_PACKED, moved->size);
    if (!words)
        return NO_MEMORY(f, "zero points");
    memset(words, 0, moved->size);
    add_word(words, words, moved->size / WORD_BYTES,
             word_of((1 << (c->bits - 1)) - words_of(job)->zero_offset, c->bits));
    moved->data = words;
    return QOBS_OK;
}

int move_zero_points(struct moved_bytes *moved, const struct weight_job *job, struct workspace *work, struct fail *f)
{
    const struct source_codes *c = &job->weight->source_codes;
    const int64_t rows = job->weight->shape[0] * c->bits / WORD_BITS;
    *moved = (struct moved_bytes){.size = (size_t)(rows * c->scale_columns * WORD_BYTES)};
    if (!c->zero_points)
        return fill(moved, job, work, f);
    moved->data = move_tensor(c->zero_points, job, rows, work);
    return moved->data ? recode(moved, job, work, f) : NO_MEMORY(f, "zero points");
}

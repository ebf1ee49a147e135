/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checks the bytes of one tensor of a GGUF file: its scales, and its numbers against those of the original. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "files/byte_reader.h"
#include "quantize/gguf_sink.h"

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

/* Scales that lie side by side in a block, or its numbers. One is not finite if all bits of `mask` are set in it. The
 * fields are those of ggml-common.h of ggml 0.21.0, checked are those that --check-tensors of llama.cpp checks. */
struct scale_row {
    const char *type;
    unsigned char at, count, bytes;
    uint64_t mask;
};

#define F16_AT(type, at, count)                                                                                        \
    {                                                                                                                  \
        type, at, count, 2, 0x7c00                                                                                     \
    }
static const struct scale_row scale_rows[] = {
    {"F32", 0, 1, 4, 0x7f800000},
    {"F64", 0, 1, 8, UINT64_C(0x7ff0000000000000)},
    {"BF16", 0, 1, 2, 0x7f80},
    F16_AT("F16", 0, 1),
    F16_AT("Q4_0", 0, 1),
    F16_AT("Q4_1", 0, 2),
    F16_AT("Q5_0", 0, 1),
    F16_AT("Q5_1", 0, 2),
    F16_AT("Q8_0", 0, 1),
    F16_AT("Q8_1", 0, 2),
    F16_AT("Q2_K", 80, 2),
    F16_AT("Q3_K", 108, 1),
    F16_AT("Q4_K", 0, 2),
    F16_AT("Q5_K", 0, 2),
    F16_AT("Q6_K", 208, 1),
    {"Q8_K", 0, 1, 4, 0x7f800000},
    F16_AT("IQ4_NL", 0, 1),
    F16_AT("IQ4_XS", 0, 1),
    F16_AT("TQ1_0", 52, 1),
    F16_AT("TQ2_0", 64, 1),
    F16_AT("Q1_0", 0, 1),
    F16_AT("Q2_0", 0, 1),
    {"MXFP4", 0, 1, 1, 0xff},
    {"NVFP4", 0, 4, 1, 0x7f},
    F16_AT("IQ2_XXS", 0, 1),
    F16_AT("IQ2_XS", 0, 1),
    F16_AT("IQ2_S", 0, 1),
    F16_AT("IQ3_XXS", 0, 1),
    F16_AT("IQ3_S", 0, 1),
    F16_AT("IQ1_S", 0, 1),
    {"IQ1_M", 52, 1, 4, 0x7000c000}, /* the exponent lies in the upper bits of two words */
};

static const struct scale_row *scales_of(const struct gguf_tensor *t)
{
    for (size_t i = 0; i < sizeof scale_rows / sizeof *scale_rows; i++)
        if (strcmp(scale_rows[i].type, t->type.name) == 0)
            return &scale_rows[i];
    return NULL; /* whole numbers */
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* A tensor in work, and what is found in it. */
struct tensor_check {
    const struct audit_pair *pair;
    bool measured;                  /* its error is asked for */
    const struct scale_row *scales; /* NULL: none */
    int64_t columns, rows, step;
    float *numbers; /* of `step` rows of the original and of the file; NULL: they are not compared */
    struct gguf_error difference;
    uint64_t wrong, first_wrong; /* scales that are not finite, the first one's block */
    bool changed;                /* other bytes than those of the original */
};

static size_t bytes_of(const struct gguf_tensor *t, int64_t columns, int64_t rows)
{
    return (size_t)(columns / t->type.block_elements * rows) * t->type.block_size;
}

/* `bytes` is a constant where this is called, so that compilers load numbers at once. */
static inline void count_in(struct tensor_check *c, const unsigned char *data, uint64_t before, uint64_t blocks,
                            const unsigned bytes)
{
    const struct scale_row row = *c->scales;
    const size_t block = c->pair->stored->type.block_size;
    for (uint64_t i = 0; i < blocks; i++)
        for (unsigned k = 0; k < row.count; k++)
            if ((number_of_bytes(data + i * block + row.at + k * bytes, bytes) & row.mask) == row.mask &&
                c->wrong++ == 0)
                c->first_wrong = before + i;
}

static void count_wrong(struct tensor_check *c, const unsigned char *data, int64_t first, int64_t rows)
{
    const uint64_t in_row = (uint64_t)(c->columns / c->pair->stored->type.block_elements);
    const uint64_t before = in_row * (uint64_t)first, blocks = in_row * (uint64_t)rows;
    const unsigned bytes = c->scales ? c->scales->bytes : 0;
    if (bytes == 1)
        count_in(c, data, before, blocks, 1);
    else if (bytes == 2)
        count_in(c, data, before, blocks, 2);
    else if (bytes == 4)
        count_in(c, data, before, blocks, 4);
    else if (bytes == 8)
        count_in(c, data, before, blocks, 8);
}

static int compare(struct tensor_check *c, const unsigned char *data, int64_t first, int64_t rows)
{
    const struct gguf_tensor *t = c->pair->stored, *of = c->pair->original;
    const unsigned char *original = of->data + bytes_of(of, c->columns, first);
    const size_t count = (size_t)(rows * c->columns), bytes = bytes_of(of, c->columns, rows);
    RETURN_IF_NOT_OK(mapped_borrow(original, bytes, NULL));
    c->changed = c->changed || of->type.number != t->type.number || memcmp(original, data, bytes) != 0;
    int status = QOBS_OK;
    if (c->numbers) {
        status = gguf_read_numbers(of->type.name, rows, c->columns, original, bytes, c->numbers, NULL);
        if (status == QOBS_OK)
            status = gguf_read_numbers(t->type.name, rows, c->columns, data, bytes_of(t, c->columns, rows),
                                       c->numbers + count, NULL);
        if (status == QOBS_OK)
            status = gguf_add_error(&c->difference, c->numbers, c->numbers + count, (int64_t)count, NULL);
    }
    mapped_release(original, bytes);
    return status;
}

static int check_rows(struct tensor_check *c, int64_t first, int64_t rows)
{
    const struct gguf_tensor *t = c->pair->stored;
    const unsigned char *data = t->data + bytes_of(t, c->columns, first);
    const size_t bytes = bytes_of(t, c->columns, rows);
    RETURN_IF_NOT_OK(mapped_borrow(data, bytes, NULL));
    count_wrong(c, data, first, rows);
    const int status = c->pair->original ? compare(c, data, first, rows) : QOBS_OK;
    mapped_release(data, bytes);
    return status;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/* Chooses rows of a piece, and memory for their numbers. Returns false if there is none. */
static bool open_check(struct tensor_check *c)
{
    enum { ELEMENTS = 1 << 16 };
    const struct gguf_tensor *t = c->pair->stored, *of = c->pair->original;
    c->scales = scales_of(t);
    c->columns = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    c->rows = c->columns > 0 ? (int64_t)t->elements / c->columns : 0;
    c->step = c->columns < ELEMENTS && c->columns > 0 ? ELEMENTS / c->columns : 1;
    if (c->step > c->rows)
        c->step = c->rows;
    if (!of || !c->measured || !t->type.made || !of->type.made)
        return true;
    c->numbers = malloc(2 * (size_t)(c->step * c->columns) * sizeof *c->numbers + 1);
    return c->numbers != NULL;
}

static void report(struct audit *audit, struct audit_module *m, const struct tensor_check *c)
{
    const struct gguf_tensor *t = c->pair->stored, *of = c->pair->original;
    const bool plain = t->type.block_elements == 1;
    const uint64_t blocks = t->elements / (uint64_t)t->type.block_elements;
    if (c->wrong > 0 && plain)
        audit_doubt(audit, m, "%" PRIu64 " of %" PRIu64 " numbers are not finite, the first in element %" PRIu64,
                    c->wrong, blocks, c->first_wrong);
    else if (c->wrong > 0)
        audit_find(audit, m, "%" PRIu64 " of %" PRIu64 " scales are not finite, the first in block %" PRIu64, c->wrong,
                   blocks * c->scales->count, c->first_wrong);
    if (of && c->changed && of->type.number == t->type.number)
        audit_find(audit, m, "is %s as in the original, but its bytes differ", t->type.name);
    if (!c->numbers)
        return;
    m->difference =
        (struct audit_difference){.known = true, .error = c->difference.error, .energy = c->difference.energy};
    audit_check_error(audit, m);
}

void audit_check_blocks(void *argument, size_t index)
{
    struct audit *audit = argument;
    struct audit_module *m = &audit->modules[index];
    struct tensor_check c = {.pair = &audit->gguf.pairs[index], .measured = m->quantized};
    bool good = open_check(&c);
    for (int64_t first = 0; good && first < c.rows; first += c.step)
        good = check_rows(&c, first, c.rows - first < c.step ? c.rows - first : c.step) == QOBS_OK;
    if (good)
        report(audit, m, &c);
    else
        audit->failed = true;
    free(c.numbers);
}

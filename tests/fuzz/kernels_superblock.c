/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of GGUF types; see kernels_calls.h. */
#include <math.h>
#include <string.h>

#include "kernels_calls.h"

/* Infinite scales and NaN among them have the sign that the instructions of a table give them. */
static bool has_finite_scales(const struct gguf_type *type, const unsigned char *blocks, size_t n)
{
    bool finite = true;
    for (size_t b = 0; b < n; b++)
        for (int k = 0; k < 2; k++) {
            const int at = k ? type->minimum_at : type->scale_at;
            finite &= at < 0 || (blocks[b * type->bytes + (size_t)at + 1] & 0x7c) != 0x7c;
        }
    return finite;
}

/* Improves the blocks of all tables. */
static void fuzz_improve(const struct gguf_type *type, const float *from, size_t columns, const float *importance,
                         const unsigned char *blocks)
{
    enum { MOST = 4 * 1024 };
    static unsigned char expected[MOST];
    const size_t size = columns / type->elements * type->bytes;
    memcpy(expected, blocks, size);
    qobs_kernels_scalar.superblock_improve(type, QOBS_KERNEL_F32, from, 1, columns, importance, expected);
    const struct kernel_table *table;
    for (size_t i = 0; (table = next_table(&i));) {
        unsigned char *const got = arena_place(&first_output, size, true, 0);
        memcpy(got, blocks, size);
        table->superblock_improve(type, QOBS_KERNEL_F32, from, 1, columns, importance, got);
        if (memcmp(got, expected, size) != 0)
            finding("%s: better blocks of %s are not scalar's", table->isa, type->name);
    }
}

void fuzz_superblock(struct bytes *b)
{
    enum { TYPES = 21, MOST = 4096 };
    static float x[MOST], importance[MOST];
    static unsigned char expected[4 * MOST];
    const struct gguf_type *const type = &qobs_gguf_types[take_below(b, TYPES)];
    const size_t columns = type->elements * (1 + take_below(b, MOST / 2 / type->elements));
    const size_t rows = 1 + take_below(b, MOST / columns), n = rows * columns;
    const bool weighted = take_below(b, 2);
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        bits = b->left > 0 ? (uint32_t)take(b, 4) : bits * 1664525 + 1013904223;
        memcpy(&x[i], &bits, sizeof *x);
        x[i] = isfinite(x[i]) ? x[i] : 0;
    }
    for (size_t i = 0; i < columns; i++)
        importance[i] = fabsf(x[(i * 7 + 3) % n]);
    float *const from = (float *)(void *)arena_place(&elements, n * sizeof *x, true, 0);
    memcpy(from, x, n * sizeof *x);
    qobs_kernels_scalar.superblock_rows(type, QOBS_KERNEL_F32, from, rows, columns, weighted ? importance : NULL,
                                        expected);
    const size_t blocks = n / type->elements;
    const struct kernel_table *table;
    for (size_t i = 0; (table = next_table(&i));) {
        unsigned char *const got = arena_place(&first_output, blocks * type->bytes, true, 0);
        table->superblock_rows(type, QOBS_KERNEL_F32, from, rows, columns, weighted ? importance : NULL, got);
        if (has_finite_scales(type, expected, blocks) && memcmp(got, expected, blocks * type->bytes) != 0)
            finding("%s: blocks of %s are not scalar's", table->isa, type->name);
    }
    if (columns <= 1024)
        fuzz_improve(type, from, columns, weighted ? importance : NULL, expected);
}

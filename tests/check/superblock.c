/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "superblock.h"

#include <stdio.h>
#include <string.h>

#include "exercised.h"
#include "memory.h"
#include "upper_halves.h"
#include "values.h"

enum { MOST_ROWS = 35, MOST_ELEMENTS = 9 * 1024, MOST_BYTES = 4 * MOST_ELEMENTS };

struct trial {
    const struct kernel_table *table;
    bool improves; /* superblock_improve, of the blocks that the scalar superblock_rows makes */
    const struct gguf_type *type;
    enum kernel_dtype dtype;
    size_t rows, columns, row_bytes;
    const unsigned char *x;
    const float *importance;
    unsigned char *out;
};

static struct arena elements, weights, blocks;

static const char *name_of(const struct trial *t) { return t->improves ? "superblock_improve" : "superblock_rows"; }

static void call(void *argument)
{
    const struct trial *t = argument;
    if (t->improves)
        CALL(t->table, superblock_improve)(t->type, t->dtype, t->x, t->rows, t->columns, t->importance, t->out);
    else
        CALL(t->table, superblock_rows)(t->type, t->dtype, t->x, t->rows, t->columns, t->importance, t->out);
    check_upper_halves(t->table->isa, name_of(t));
}

/* Elements of one size, of any size up to one, or of a few values: searches differ in what they find of each. */
static void fill_elements(struct rng *rng, const struct trial *t, unsigned char *x)
{
    const struct dtype *const dtype = &dtypes[t->dtype];
    const size_t kind = rng_below(rng, 6), n = t->rows * t->columns;
    fill_data(rng, dtype, FINITE_RUNS, x, n);
    for (size_t i = 0; i < n && kind > 0; i++) {
        const uint64_t one = (dtype->infinity >> (dtype->mantissa + 1)) << dtype->mantissa, random = rng_next(rng);
        const uint64_t mantissa = random & ((UINT64_C(1) << dtype->mantissa) - 1);
        const uint64_t exponent = kind == 1 ? random >> 60 : kind == 2 ? (random >> 62) * 3 : 0;
        uint64_t bits = one - (exponent << dtype->mantissa) + (kind == 3 ? 0 : mantissa);
        if (kind == 4 && random >> 58 > 0)
            bits = 0;
        if (kind < 5)
            bits |= random >> 40 & 1 ? dtype->sign : 0;
        store_bits(dtype, x + i * dtype->size, bits);
    }
}

/* NULL, or weights of which some are 0. */
static const float *place_weights(struct rng *rng, const struct trial *t)
{
    if (rng_below(rng, 2))
        return NULL;
    float *const w = (float *)(void *)arena_place(&weights, t->columns * sizeof *w, rng_below(rng, 2), 0);
    for (size_t i = 0; i < t->columns; i++)
        w[i] = rng_below(rng, 5) ? (float)rng_below(rng, 1 << 20) / 4096 : 0;
    return w;
}

/* The blocks of one row by the scalar kernels. */
static void make_row(const struct trial *t, size_t r, bool improves, unsigned char *out)
{
    static float row[MOST_ELEMENTS];
    const struct dtype *const dtype = &dtypes[t->dtype];
    const struct kernel_table *const scalar = &qobs_kernels_scalar;
    for (size_t i = 0; i < t->columns; i++)
        row[i] = (float)value_of_bits(dtype, load_bits(dtype, t->x + (r * t->columns + i) * dtype->size));
    scalar->superblock_rows(t->type, QOBS_KERNEL_F32, row, 1, t->columns, t->importance, out);
    if (improves)
        scalar->superblock_improve(t->type, QOBS_KERNEL_F32, row, 1, t->columns, t->importance, out);
}

static bool is_right(const struct trial *t)
{
    static unsigned char expected[MOST_BYTES];
    for (size_t r = 0; r < t->rows; r++) {
        make_row(t, r, t->improves, expected);
        if (memcmp(expected, t->out + r * t->row_bytes, t->row_bytes) != 0)
            return false;
    }
    return true;
}

static bool run(struct rng *rng, struct trial *t)
{
    const size_t elements_most = t->improves ? MOST_ELEMENTS / 8 : MOST_ELEMENTS; /* scalar searches take their time */
    const size_t most = elements_most / t->type->elements, step = 1 + rng_below(rng, 20);
    t->dtype = (enum kernel_dtype)rng_below(rng, QOBS_KERNEL_F64);
    t->columns = t->type->elements * (1 + rng_below(rng, most < step ? most : step));
    const size_t fitting = elements_most / t->columns;
    t->rows = rng_below(rng, (fitting < MOST_ROWS ? fitting : MOST_ROWS) + 1);
    t->row_bytes = t->columns / t->type->elements * t->type->bytes;
    unsigned char *x = arena_place(&elements, t->rows * t->columns * dtypes[t->dtype].size, rng_below(rng, 2),
                                   rng_below(rng, 2) ? 0 : rng_below(rng, 64));
    fill_elements(rng, t, x);
    t->x = x;
    t->importance = place_weights(rng, t);
    t->out = arena_place(&blocks, t->rows * t->row_bytes, rng_below(rng, 2), rng_below(rng, 3));
    for (size_t r = 0; r < t->rows && t->improves; r++)
        make_row(t, r, false, t->out + r * t->row_bytes);
    if (!survives(call, t))
        printf("FAIL %s %s: memory touched at %p", t->table->isa, name_of(t), fault_address());
    else if (!is_right(t))
        printf("FAIL %s %s: other bytes than one row after the other", t->table->isa, name_of(t));
    else
        return true;
    printf(", %s of %s, %zu rows of %zu columns, %s importance\n", t->type->name, dtypes[t->dtype].name, t->rows,
           t->columns, t->importance ? "with" : "no");
    return false;
}

uint64_t check_superblocks(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                           unsigned *failed)
{
    uint64_t calls = 0;
    if (!elements.begin) {
        elements = arena_new(MOST_BYTES + 64);
        weights = arena_new(MOST_BYTES);
        blocks = arena_new(MOST_BYTES + 64);
    }
    for (const struct gguf_type *type = qobs_gguf_types; type->name && !type->refused; type++) {
        struct trial t = {.table = table, .type = type};
        struct rng rng = {seed + (uint64_t)type->number};
        bool right = table->superblock_rows != NULL;
        rng_next(&rng);
        for (unsigned i = 0; i < 30 * rounds && right; i++, calls++) {
            t.improves = i % 6 == 5;
            right = run(&rng, &t);
        }
        *(right ? passed : failed) += 1;
    }
    return calls;
}

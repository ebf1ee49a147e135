/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "squares.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exercised.h"
#include "memory.h"
#include "upper_halves.h"
#include "values.h"

#define DATA_BYTES ((size_t)1 << 17)
#define MOST_COLUMNS 2048
#define LONGEST_VECTOR 16 /* lanes */
#define MOST_ROWS 27      /* thrice what kernels take at a time, and the rest */

static struct arena elements, sums;
static struct islands islands;

struct trial {
    const struct kernel_table *table;
    enum kernel_dtype index;
    const struct dtype *dtype;
    const char *aspect;
    struct rng rng;
    const unsigned char *x;
    ptrdiff_t stride;
    size_t rows, columns;
    double *sum;
    uint64_t calls;
    bool failed;
};

static void report(struct trial *t, const char *what, size_t column, double got, double expected)
{
    t->failed = true;
    printf("FAIL %s squares_columns_%s, %s: %s %zu is %.17g, expected %.17g\n", t->table->isa, t->dtype->name,
           t->aspect, what, column, got, expected);
    printf("     %zu rows of %zu elements, stride %td bytes, x at 64k+%d\n", t->rows, t->columns, t->stride,
           (int)((uintptr_t)t->x % 64));
}

static void call(void *argument)
{
    struct trial *t = argument;
    CALL(t->table, squares_columns[t->index])(t->x, t->stride, t->rows, t->columns, t->sum);
    check_upper_halves(t->table->isa, "squares_columns");
}

/* Bits are right, of NaN only that it is one. */
static void run(struct trial *t)
{
    static double expected[MOST_COLUMNS];
    t->sum = (double *)(void *)arena_place(&sums, t->columns * sizeof *t->sum, true, 0);
    for (size_t j = 0; j < t->columns; j++) {
        t->sum[j] = expected[j] = rng_below(&t->rng, 2) ? 0 : (double)rng_below(&t->rng, 1000) / 7;
        for (size_t i = 0; i < t->rows; i++) {
            const unsigned char *at = t->x + (ptrdiff_t)i * t->stride + j * t->dtype->size;
            const double value = (double)(float)value_of_bits(t->dtype, load_bits(t->dtype, at));
            expected[j] += value * value;
        }
    }
    t->calls++;
    if (!survives(call, t)) {
        report(t, "memory touched that may not be, column", 0, (double)(uintptr_t)fault_address(), 0);
        return;
    }
    for (size_t j = 0; j < t->columns && !t->failed; j++)
        if (memcmp(&t->sum[j], &expected[j], sizeof expected[j]) != 0 && !(isnan(t->sum[j]) && isnan(expected[j])))
            report(t, "the sum of column", j, t->sum[j], expected[j]);
}

/* Contiguous or apart, in either direction, next to no-access memory. */
static void try_rows(struct trial *t, size_t rows, size_t columns, bool at_end, size_t offset)
{
    const size_t size = t->dtype->size, gap = rng_below(&t->rng, 2) ? 0 : rng_below(&t->rng, 40);
    while (rows > 1 && rows * (columns * size + gap) + offset > DATA_BYTES)
        rows /= 2;
    const size_t step = columns * size + gap, extent = rows == 0 ? 0 : (rows - 1) * step + columns * size;
    unsigned char *const lowest = arena_place(&elements, extent, at_end, offset);
    const bool backwards = rows > 1 && rng_below(&t->rng, 4) == 0;
    for (size_t i = 0; i < rows; i++)
        fill_data(&t->rng, t->dtype, (enum data)rng_below(&t->rng, DATA), lowest + i * step, columns);
    t->rows = rows;
    t->columns = columns;
    t->stride = backwards ? -(ptrdiff_t)step : (ptrdiff_t)step;
    t->x = backwards ? lowest + (rows - 1) * step : lowest;
    run(t);
}

static void lengths(struct trial *t, unsigned rounds)
{
    for (size_t columns = 0; columns <= 4 * LONGEST_VECTOR + 3; columns++)
        for (unsigned i = 0; i < 64 * rounds && !t->failed; i++)
            try_rows(t, rng_below(&t->rng, MOST_ROWS + 1), columns, i & 1, i / 2 % 64);
}

static void long_ones(struct trial *t, unsigned rounds)
{
    for (unsigned i = 0; i < 100 * rounds && !t->failed; i++)
        try_rows(t, rng_below(&t->rng, MOST_ROWS + 1), rng_below(&t->rng, MOST_COLUMNS + 1), i & 1,
                 rng_below(&t->rng, 64));
}

/* Every row against no-access memory of its own. */
static void gaps_without_access(struct trial *t, unsigned rounds)
{
    for (unsigned i = 0; i < 300 * rounds && !t->failed; i++) {
        const size_t most = islands.bytes / t->dtype->size;
        const size_t some = most < MOST_COLUMNS ? most : MOST_COLUMNS;
        t->columns = rng_below(&t->rng, 2) ? rng_below(&t->rng, some + 1) : rng_below(&t->rng, 40);
        t->rows = 1 + rng_below(&t->rng, islands.count);
        t->stride = islands.stride;
        unsigned char *const lowest = islands.begin + (i & 1 ? islands.bytes - t->columns * t->dtype->size : 0);
        for (size_t r = 0; r < t->rows; r++)
            fill_data(&t->rng, t->dtype, (enum data)rng_below(&t->rng, DATA), lowest + (ptrdiff_t)r * islands.stride,
                      t->columns);
        t->x = lowest;
        run(t);
    }
}

uint64_t check_squares(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                       unsigned *failed)
{
    static const struct {
        const char *name;
        void (*run)(struct trial *t, unsigned rounds);
    } aspects[] = {{"lengths", lengths}, {"long", long_ones}, {"gaps without access", gaps_without_access}};
    uint64_t calls = 0;
    if (!elements.begin) {
        elements = arena_new(DATA_BYTES);
        sums = arena_new(MOST_COLUMNS * sizeof(double));
        islands = islands_new(19);
    }
    for (int d = 0; d < QOBS_KERNEL_DTYPES; d++)
        for (size_t a = 0; a < sizeof aspects / sizeof *aspects; a++) {
            struct trial t = {.table = table,
                              .index = (enum kernel_dtype)d,
                              .dtype = &dtypes[d],
                              .aspect = aspects[a].name,
                              .rng = {seed + 1000 * a + (unsigned)d}};
            rng_next(&t.rng);
            if (table->squares_columns[d])
                aspects[a].run(&t, rounds);
            else
                t.failed = true; /* exercised.c names the slot */
            *(t.failed ? failed : passed) += 1;
            calls += t.calls;
            fflush(stdout);
        }
    return calls;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "squared_errors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exercised.h"
#include "memory.h"
#include "upper_halves.h"
#include "values.h"

#define MOST_ELEMENTS (3 * (size_t)SQUARED_ERRORS_BLOCK + 50)

struct trial {
    const struct kernel_table *table;
    enum kernel_dtype index;
    const struct dtype *dtype;
    struct rng rng;
    const unsigned char *x, *y;
    size_t n;
    double sum[2];
};

static void call(void *argument)
{
    struct trial *t = argument;
    CALL(t->table, squared_errors[t->index])(t->x, t->y, t->n, t->sum);
    check_upper_halves(t->table->isa, "squared_errors");
}

static double number(const struct trial *t, const unsigned char *array, size_t i)
{
    return value_of_bits(t->dtype, load_bits(t->dtype, array + i * t->dtype->size));
}

/* One operation of the kernel's arithmetic: float, for F64 double. */
static double rounded(const struct trial *t, double v) { return t->index == QOBS_KERNEL_F64 ? v : (double)(float)v; }

static void expect(const struct trial *t, double *sum)
{
    for (size_t first = 0; first == 0 || first < t->n; first += SQUARED_ERRORS_BLOCK) {
        double errors[16] = {0}, energies[16] = {0};
        for (size_t i = first; i < t->n && i < first + SQUARED_ERRORS_BLOCK; i++) {
            const double value = number(t, t->x, i), difference = rounded(t, value - number(t, t->y, i));
            errors[i % 16] = rounded(t, errors[i % 16] + rounded(t, difference * difference));
            energies[i % 16] = rounded(t, energies[i % 16] + rounded(t, value * value));
        }
        for (size_t k = 0; k < 16; k++) {
            sum[0] += errors[k];
            sum[1] += energies[k];
        }
    }
}

static bool same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

static bool run(struct trial *t)
{
    double expected[2];
    t->sum[0] = expected[0] = (double)rng_below(&t->rng, 1000) / 7;
    t->sum[1] = expected[1] = (double)rng_below(&t->rng, 1000) / 3;
    expect(t, expected);
    if (!survives(call, t)) {
        printf("FAIL %s squared_errors_%s: memory touched at %p, %zu elements\n", t->table->isa, t->dtype->name,
               fault_address(), t->n);
        return false;
    }
    if (same(t->sum[0], expected[0]) && same(t->sum[1], expected[1]))
        return true;
    printf("FAIL %s squared_errors_%s: %zu elements give %.17g and %.17g, expected %.17g and %.17g\n", t->table->isa,
           t->dtype->name, t->n, t->sum[0], t->sum[1], expected[0], expected[1]);
    return false;
}

uint64_t check_squared_errors(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                              unsigned *failed)
{
    static struct arena left, right;
    uint64_t calls = 0;
    if (!left.begin) {
        left = arena_new(MOST_ELEMENTS * sizeof(double) + 64);
        right = arena_new(MOST_ELEMENTS * sizeof(double) + 64);
    }
    for (int d = 0; d < QOBS_KERNEL_DTYPES; d++) {
        struct trial t = {.table = table, .index = (enum kernel_dtype)d, .dtype = &dtypes[d], .rng = {seed + (unsigned)d}};
        bool right_so_far = table->squared_errors[d] != NULL;
        rng_next(&t.rng);
        for (unsigned i = 0; i < 400 + 600 * rounds && right_so_far; i++) {
            t.n = i < 200 ? i : rng_below(&t.rng, MOST_ELEMENTS);
            unsigned char *x = arena_place(&left, t.n * t.dtype->size, i & 1, rng_below(&t.rng, 33));
            unsigned char *y = arena_place(&right, t.n * t.dtype->size, i & 2, rng_below(&t.rng, 33));
            fill_data(&t.rng, t.dtype, (enum data)rng_below(&t.rng, DATA), x, t.n);
            fill_data(&t.rng, t.dtype, (enum data)rng_below(&t.rng, DATA), y, t.n);
            t.x = x;
            t.y = y;
            right_so_far = run(&t);
            calls++;
        }
        *(right_so_far ? passed : failed) += 1;
    }
    return calls;
}

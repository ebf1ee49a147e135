/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "nearly.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exercised.h"
#include "memory.h"
#include "upper_halves.h"
#include "values.h"

enum { SIDE = QOBS_HESSIAN_SIDE, LANES = QOBS_HESSIAN_SCALES, CALLS = 3000 };

/* Every array lies before memory without access. */
static struct arena floats[4];

struct trial {
    const struct kernel_table *table;
    struct rng rng;
    float *factor, *w, *scale, *sum, bound;
    double t[SIDE][SIDE];
};

static float *place(int arena, size_t n) { return (float *)(void *)arena_place(&floats[arena], n * sizeof(float), true, 0); }

static double uniform(struct rng *rng) { return (double)rng_below(rng, 1 << 24) * 0x1p-24; }

/* A lower triangle whose columns have norms of at most 1, some of them far less, or 0. */
static void make_factor(struct trial *t)
{
    for (size_t j = 0; j < SIDE; j++) {
        const double size = rng_below(&t->rng, 8) == 0 ? 0 : ldexp(1, -(int)rng_below(&t->rng, 30)) / 4;
        for (size_t row = 0; row < SIDE; row++)
            t->t[row][j] = row < j ? 0 : (double)(float)((uniform(&t->rng) * 2 - 1) * size);
    }
    float *p = t->factor;
    for (size_t row = 0; row < SIDE; row += 4)
        for (size_t j = 0; j < row + 4; j++)
            for (size_t r = row; r < row + 4; r++)
                *p++ = (float)t->t[r][j];
}

static double error_of(float w, float scale)
{
    const double a = fabs((double)(w / scale));
    const double q = a < 2 ? rint(a * 2) / 2 : a < 4 ? rint(a) : rint(a / 2) * 2;
    return copysign(q > 6 ? 6 : q, (double)w) * (double)scale - (double)w;
}

/* |T e|^2 of the first rows, and in *slack what its root may be off by. */
static double sum_of(const struct trial *t, float scale, size_t rows, double *slack)
{
    double sum = 0, moment = 0;
    for (size_t row = 0; row < rows; row++) {
        double y = 0;
        for (size_t j = 0; j <= row; j++)
            y += t->t[row][j] * error_of(t->w[j], scale);
        sum += y * y;
    }
    for (size_t j = 0; j < SIDE; j++)
        for (size_t row = 0; row < SIDE; row++) {
            const double a = fabs((double)t->w[j]), m = t->t[row][j] * (a / (double)scale < 0.25 ? a : a + (double)scale);
            moment += m * m;
        }
    *slack = 84 * 0x1p-24 * sqrt(moment) + 2e-22;
    return sum;
}

static bool is_near(const struct trial *t, size_t k, size_t rows)
{
    double slack;
    const double expected = sqrt(sum_of(t, t->scale[k], rows, &slack)), got = sqrt((double)t->sum[k]);
    return fabs(got - expected) <= slack + 10 * 0x1p-24 * expected;
}

/* True if sums are of all rows, or of some and all of them above the bound. */
static bool is_right(const struct trial *t)
{
    bool complete = true, above = true;
    for (size_t k = 0; k < LANES; k++) {
        complete &= is_near(t, k, SIDE);
        above &= t->sum[k] > t->bound;
    }
    for (size_t rows = 4; rows < SIDE && !complete && above; rows += 4) {
        complete = true;
        for (size_t k = 0; k < LANES; k++)
            complete &= is_near(t, k, rows);
    }
    return complete;
}

static void call(void *argument)
{
    struct trial *t = argument;
    CALL(t->table, hessian_nearly)(t->factor, t->w, t->scale, t->bound, t->sum);
    check_upper_halves(t->table->isa, "hessian_nearly");
}

/* Elements between 0 and more than the largest scale covers, ties among them. */
static void make_elements(struct trial *t)
{
    const double size = ldexp(1, (int)rng_below(&t->rng, 50) - 25);
    for (size_t k = 0; k < LANES; k++)
        t->scale[k] = (float)(size * exp2(6 * uniform(&t->rng) - 4));
    for (size_t i = 0; i < SIDE; i++) {
        const double x = (uniform(&t->rng) * 2 - 1) * size * 4;
        const float tie = t->scale[rng_below(&t->rng, LANES)] * (float)((int)rng_below(&t->rng, 40) - 20) / 4;
        t->w[i] = rng_below(&t->rng, 4) == 0 ? tie : rng_below(&t->rng, 10) == 0 ? 0 : (float)x;
    }
    double slack;
    const double some = sum_of(t, t->scale[0], SIDE, &slack);
    t->bound = rng_below(&t->rng, 3) == 0 ? 1e38f : (float)(some * 2 * uniform(&t->rng));
}

uint64_t check_nearly(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                      unsigned *failed)
{
    static const size_t length[] = {QOBS_HESSIAN_FACTOR, SIDE, LANES, LANES};
    struct trial t = {.table = table, .rng = {seed}};
    bool right = true;
    uint64_t calls = 0;
    for (int i = 0; i < 4 && !floats[3].begin; i++)
        floats[i] = arena_new(length[i] * sizeof(float));
    t.factor = place(0, length[0]);
    t.w = place(1, length[1]);
    t.scale = place(2, length[2]);
    t.sum = place(3, length[3]);
    rng_next(&t.rng);
    for (; calls < (uint64_t)CALLS * rounds && right; calls++) {
        make_factor(&t);
        make_elements(&t);
        right = survives(call, &t) && is_right(&t);
    }
    if (!right)
        printf("FAIL %s hessian_nearly: memory touched that may not be (%p), or a sum is wrong, call %llu\n",
               table->isa, fault_address(), (unsigned long long)calls);
    *(right ? passed : failed) += 1;
    return calls;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "gram.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exercised.h"
#include "fused.h"
#include "memory.h"
#include "upper_halves.h"
#include "values.h"

enum { MOST = 72, MOST_TOKENS = 70, MOST_EVENTS = 40, DOUBLES = 2 * MOST * MOST };

/* Every array lies before or behind memory without access. */
static struct arena floats[6], doubles[5], moves;

struct trial {
    const struct kernel_table *table;
    const char *kernel;
    struct rng rng;
    uint64_t calls;
    bool failed;

    size_t stride, tokens, rows, columns, inner, x_stride, h_stride, sum_stride;
    bool upper;
    const float *a, *b;
    double *x, *h, *sum, *g, *u, *linear, *square;
    struct hessian_event *events;

    struct optimal_number number;
    float scale, zero_point;
    struct hessian_lattice lattice;
    struct hessian_step step;
    int32_t *bucket, most;

    struct code_grid grid;
    struct code_book book;
    struct code_column column[MOST];
    float *w, *q, *d;
    size_t steps;
};

static float random_float(struct rng *rng, bool wild)
{
    const float value = (float)((double)rng_below(rng, 1 << 20) / (1 << 19) - 1);
    if (!wild || rng_below(rng, 8) > 0)
        return value;
    static const float special[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1e30f, -1e-30f, 0x1p-149f};
    return special[rng_below(rng, sizeof special / sizeof *special)];
}

static double *fill_doubles(struct trial *t, const struct arena *arena, size_t n)
{
    double *p = (double *)(void *)arena_place(arena, n * sizeof *p, rng_below(&t->rng, 2), 0);
    for (size_t i = 0; i < n; i++)
        p[i] = (double)random_float(&t->rng, false) * (1 + (double)rng_below(&t->rng, 1000) / 1e9);
    return p;
}

static void compare(struct trial *t, const char *what, const double *got, const double *expected, size_t n)
{
    for (size_t i = 0; i < n && !t->failed; i++)
        if (load_sized(&got[i], sizeof *got) != load_sized(&expected[i], sizeof *expected) &&
            !(isnan(got[i]) && isnan(expected[i]))) {
            t->failed = true;
            printf("FAIL %s %s: %s %zu is %.17g, expected %.17g\n", t->table->isa, t->kernel, what, i, got[i],
                   expected[i]);
            printf("     %zu tokens, %zu rows, %zu columns, %zu inner\n", t->tokens, t->rows, t->columns, t->inner);
        }
}

static void run(struct trial *t, void (*call)(void *))
{
    t->calls++;
    if (!survives(call, t)) {
        t->failed = true;
        printf("FAIL %s %s: memory touched that may not be, %p\n", t->table->isa, t->kernel, fault_address());
    }
}

/* ---- gram -------------------------------------------------------------------------------------------------------- */

static void call_gram(void *argument)
{
    struct trial *t = argument;
    CALL(t->table, gram)(t->a, t->b, t->stride, t->tokens, t->rows, t->columns, t->upper, t->sum, t->sum_stride);
    check_upper_halves(t->table->isa, t->kernel);
}

static void try_gram(struct trial *t)
{
    static double expected[DOUBLES];
    t->tokens = rng_below(&t->rng, MOST_TOKENS);
    t->columns = rng_below(&t->rng, MOST + 1);
    t->upper = rng_below(&t->rng, 2);
    t->rows = t->upper ? t->columns : rng_below(&t->rng, MOST + 1);
    const size_t padded = (t->columns + 15) / 16 * 16, wide = padded > t->rows ? padded : (t->rows + 15) / 16 * 16;
    t->stride = wide + 16 * rng_below(&t->rng, 2);
    const size_t n = t->tokens == 0 ? 0 : (t->tokens - 1) * t->stride + padded;
    const size_t m = t->tokens == 0 ? 0 : (t->tokens - 1) * t->stride + t->rows;
    const bool wild = rng_below(&t->rng, 4) == 0;
    float *b = (float *)(void *)arena_place(&floats[0], n * sizeof *b, true, 0);
    float *a = (float *)(void *)arena_place(&floats[1], m * sizeof *a, true, 0);
    for (size_t i = 0; i < n; i++)
        b[i] = i % t->stride < t->columns ? random_float(&t->rng, wild) : 0;
    for (size_t i = 0; i < m; i++)
        a[i] = t->upper ? b[i] : random_float(&t->rng, wild);
    t->a = t->upper ? b : a;
    t->b = b;
    t->sum_stride = t->columns + rng_below(&t->rng, 9);
    t->sum = fill_doubles(t, &doubles[0], t->rows == 0 ? 0 : (t->rows - 1) * t->sum_stride + t->columns);
    const size_t entries = t->rows == 0 ? 0 : (t->rows - 1) * t->sum_stride + t->columns;
    memcpy(expected, t->sum, entries * sizeof *expected);
    for (size_t j = 0; j < t->rows; j++)
        for (size_t k = t->upper ? j : 0; k < t->columns; k++) {
            float s = 0;
            for (size_t i = 0; i < t->tokens; i++)
                s = fused(t->a[i * t->stride + j], b[i * t->stride + k], s);
            expected[j * t->sum_stride + k] += (double)s;
        }
    run(t, call_gram);
    compare(t, "entry", t->sum, expected, entries);
}

/* ---- hessian_product --------------------------------------------------------------------------------------------- */

static void call_product(void *argument)
{
    struct trial *t = argument;
    CALL(t->table, hessian_product)
    (t->x, t->x_stride, t->rows, t->h, t->h_stride, t->inner, t->columns, t->sum, t->sum_stride);
    check_upper_halves(t->table->isa, t->kernel);
}

static void try_product(struct trial *t)
{
    static double expected[DOUBLES];
    t->rows = rng_below(&t->rng, 8);
    t->inner = rng_below(&t->rng, 30);
    t->columns = 8 * rng_below(&t->rng, MOST / 8 + 1);
    t->x_stride = t->inner + rng_below(&t->rng, 3);
    t->h_stride = t->columns + rng_below(&t->rng, 3);
    t->sum_stride = t->columns + rng_below(&t->rng, 3);
    t->x = fill_doubles(t, &doubles[0], t->rows == 0 ? 0 : (t->rows - 1) * t->x_stride + t->inner);
    t->h = fill_doubles(t, &doubles[1], t->inner == 0 ? 0 : (t->inner - 1) * t->h_stride + t->columns);
    const size_t n = t->rows == 0 ? 0 : (t->rows - 1) * t->sum_stride + t->columns;
    t->sum = fill_doubles(t, &doubles[2], n);
    memcpy(expected, t->sum, n * sizeof *expected);
    for (size_t r = 0; r < t->rows; r++)
        for (size_t i = 0; i < t->inner; i++)
            for (size_t j = 0; j < t->columns; j++) {
                const double product = t->x[r * t->x_stride + i] * t->h[i * t->h_stride + j];
                expected[r * t->sum_stride + j] += product;
            }
    run(t, call_product);
    compare(t, "entry", t->sum, expected, n);
}

/* ---- hessian_steps ----------------------------------------------------------------------------------------------- */

static void call_steps(void *argument)
{
    struct trial *t = argument;
    CALL(t->table, hessian_steps)
    (t->h, t->h_stride, t->columns, t->g, t->events, t->inner, t->u, t->linear, t->square);
    check_upper_halves(t->table->isa, t->kernel);
}

static void try_steps(struct trial *t)
{
    static double u[MOST], b[MOST_EVENTS + 1], c[MOST_EVENTS + 1];
    t->columns = rng_below(&t->rng, 3) == 0 ? 16 : 8 + 8 * rng_below(&t->rng, MOST / 8);
    t->inner = rng_below(&t->rng, MOST_EVENTS + 1);
    t->h_stride = t->columns + rng_below(&t->rng, 3);
    t->h = fill_doubles(t, &doubles[0], (t->columns - 1) * t->h_stride + t->columns);
    t->g = fill_doubles(t, &doubles[1], t->columns);
    t->u = fill_doubles(t, &doubles[2], t->columns);
    t->linear = fill_doubles(t, &doubles[3], t->inner + 1);
    t->square = fill_doubles(t, &doubles[4], t->inner + 1);
    t->events = (struct hessian_event *)(void *)arena_place(&moves, t->inner * sizeof *t->events, true, 0);
    const size_t elements = 1 + rng_below(&t->rng, t->columns); /* few: the same element several times in a row */
    for (size_t e = 0; e < t->inner; e++)
        t->events[e] =
            (struct hessian_event){(uint32_t)rng_below(&t->rng, elements),
                                   (rng_below(&t->rng, 2) ? 1.0f : -1.0f) * (float)(1 + rng_below(&t->rng, 4)) / 2};
    memcpy(u, t->u, t->columns * sizeof *u);
    b[0] = t->linear[0];
    c[0] = t->square[0];
    for (size_t e = 0; e < t->inner; e++) {
        const size_t i = t->events[e].element;
        const double d = (double)t->events[e].step, *row = t->h + i * t->h_stride;
        const double linear = d * t->g[i], cross = (2 * d) * u[i], own = (d * d) * row[i], both = cross + own;
        b[e + 1] = b[e] + linear;
        c[e + 1] = c[e] + both;
        for (size_t j = 0; j < t->columns; j++) {
            const double product = d * row[j];
            u[j] += product;
        }
    }
    run(t, call_steps);
    compare(t, "B", t->linear, b, t->inner + 1);
    compare(t, "C", t->square, c, t->inner + 1);
    compare(t, "u", t->u, u, t->columns);
}

/* ---- hessian_residual -------------------------------------------------------------------------------------------- */

static void call_residual(void *argument)
{
    struct trial *t = argument;
    CALL(t->table, hessian_residual)(&t->number, t->a, t->columns, t->scale, t->zero_point, t->sum);
    check_upper_halves(t->table->isa, t->kernel);
}

static void try_residual(struct trial *t)
{
    static double expected[MOST];
    const int half = 1 << (1 + rng_below(&t->rng, 7));
    t->number = (struct optimal_number){rng_below(&t->rng, 2), (float)-half, (float)(half - 1)};
    t->zero_point = t->number.e2m1 ? 0 : (float)((int)rng_below(&t->rng, 2 * (size_t)half) - half);
    t->scale = ldexpf(0.5f + (float)rng_below(&t->rng, 1000) / 2000, (int)rng_below(&t->rng, 10) - 8);
    t->scale = rng_below(&t->rng, 4) == 0 ? -t->scale : t->scale;
    t->columns = rng_below(&t->rng, MOST + 1);
    float *w = (float *)(void *)arena_place(&floats[0], t->columns * sizeof *w, true, 0);
    t->a = w;
    t->sum = (double *)(void *)arena_place(&doubles[0], t->columns * sizeof *t->sum, true, 0);
    for (size_t i = 0; i < t->columns; i++) {
        w[i] = rng_below(&t->rng, 3) > 0 ? random_float(&t->rng, false) * 4
                                         : t->scale * (float)((int)rng_below(&t->rng, 20) - 10) / 2; /* ties */
        const float x = w[i] / t->scale;
        const double a = fabs((double)x);
        double q = a < 2 ? rint(a * 2) / 2 : a < 4 ? rint(a) : rint(a / 2) * 2;
        q = copysign(q > 6 ? 6 : q, (double)x);
        if (!t->number.e2m1)
            q = rint(fmin(fmax((double)(x + t->zero_point), -half), half - 1)) - (double)t->zero_point;
        const double product = q * (double)t->scale;
        expected[i] = product - (double)w[i];
    }
    run(t, call_residual);
    for (size_t i = 0; i < t->columns; i++)
        t->sum[i] += 0, expected[i] += 0; /* zeros of either sign */
    compare(t, "error", t->sum, expected, t->columns);
}

/* ---- hessian_buckets --------------------------------------------------------------------------------------------- */

static void call_buckets(void *argument)
{
    struct trial *t = argument;
    t->most = CALL(t->table, hessian_buckets)(&t->lattice, &t->step, t->upper, t->a, t->columns, t->bucket);
    check_upper_halves(t->table->isa, t->kernel);
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Integers and powers of two: the largest candidate at which |w| / candidate reaches the middle. */
static void try_buckets(struct trial *t)
{
    const bool powers = rng_below(&t->rng, 3) == 0;
    const float middle = (float)rng_below(&t->rng, 8) + 0.5f;
    t->lattice = (struct hessian_lattice){.shift = powers ? 23 : 16,
                                          .first = powers ? 1 : 0x3d00 + (int32_t)rng_below(&t->rng, 256),
                                          .last = powers ? 253 : (int32_t)rng_below(&t->rng, 500),
                                          .exact = true};
    t->step = (struct hessian_step){middle, 1 / middle, 1 / middle};
    t->upper = rng_below(&t->rng, 2);
    t->columns = 16 * (1 + rng_below(&t->rng, MOST / 16));
    float *w = (float *)(void *)arena_place(&floats[0], t->columns * sizeof *w, true, 0);
    t->a = w;
    t->bucket = (int32_t *)(void *)arena_place(&moves, t->columns * sizeof *t->bucket, true, 0);
    int32_t most = INT32_MIN;
    for (size_t i = 0; i < t->columns; i++)
        w[i] = rng_below(&t->rng, 3) > 0   ? random_float(&t->rng, false)
               : rng_below(&t->rng, 2) > 0 ? middle * float_of((0x3d00 + (uint32_t)rng_below(&t->rng, 600)) << 16)
                                           : 0;
    run(t, call_buckets);
    for (size_t i = 0; i < t->columns && !t->failed; i++) {
        const double a = fabs((double)w[i]);
        int32_t k = -1;
        for (int32_t c = 0; c <= t->lattice.last && a > 0; c++) {
            const double scale = (double)float_of((uint32_t)(t->lattice.first + c) << t->lattice.shift);
            k = a > scale * (double)middle || (a == scale * (double)middle && t->upper) ? c : k;
        }
        const int32_t got = t->bucket[i] < -1 ? -1 : t->bucket[i];
        most = t->bucket[i] > most ? t->bucket[i] : most;
        if (got == QOBS_HESSIAN_UNDECIDED) { /* only next to a candidate */
            const double scale = a / (double)middle, step = powers ? 1 : 0x1p-7;
            const double below = fmod(scale / ldexp(1, ilogb(scale)) - 1, step), off = fmin(below, step - below);
            t->failed = off > 0x1p-15;
        } else {
            t->failed = got != k;
        }
        if (t->failed)
            printf("FAIL %s %s: bucket of %.9g is %d, expected %d\n", t->table->isa, t->kernel, a, got, k);
    }
    if (!t->failed && t->most != most) {
        t->failed = true;
        printf("FAIL %s %s: the largest bucket is %d, expected %d\n", t->table->isa, t->kernel, t->most, most);
    }
}

/* ---- hessian_round ----------------------------------------------------------------------------------------------- */

static void call_round(void *argument)
{
    struct trial *t = argument;
    t->steps = CALL(t->table, hessian_round)(&t->grid, t->a, t->h_stride, t->columns, t->column, t->rows, t->stride,
                                             t->w, t->q, t->d, t->g, t->x, t->sum);
    check_upper_halves(t->table->isa, t->kernel);
}

static float *fill_floats(struct trial *t, int arena, size_t n)
{
    float *p = (float *)(void *)arena_place(&floats[arena], n * sizeof *p, rng_below(&t->rng, 2), 0);
    for (size_t i = 0; i < n; i++)
        p[i] = random_float(&t->rng, false);
    return p;
}

/* Integers, e2m1, or numbers of a book. */
static float on_grid(const struct trial *t, double x)
{
    size_t k = 0;
    while (t->grid.book && k + 1 < CODE_BOOK && x > (double)t->book.middle[k])
        k++;
    if (t->grid.book)
        return t->book.number[k];
    const double limited = fmin(fmax(x, (double)t->grid.quant_min), (double)t->grid.quant_max), a = fabs(limited);
    if (!t->upper)
        return (float)rint(limited);
    return (float)copysign(a < 2 ? rint(a * 2) / 2 : a < 4 ? rint(a) : rint(a / 2) * 2, limited);
}

/* A row as the contract has it. */
static size_t round_row(const struct trial *t, size_t r, double *g, float *q, float *d, double *error_bound,
                        double *change)
{
    size_t steps = 0;
    for (size_t k = 0; k < t->columns; k++) {
        const double own = (double)t->a[k * t->h_stride + k], inverse = 1 / own, root = sqrt(own);
        const double s = (double)t->column[k].scale[r], z = (double)t->column[k].zero_point[r];
        const double w = (double)t->w[k * t->stride + r], now = (double)d[k];
        if (!(own > 0))
            continue;
        const double target = g[k] * inverse, goal = (w - now) + target, quotient = goal / s;
        const float x = on_grid(t, (double)(float)(quotient + z));
        const double number = ((double)x - z) * s;
        const float e = (float)(w - number);
        const double step = (double)e - now, half = own * step, slope = 2 * g[k] + half, rise = step * slope;
        const double doubt = (2 * fabs(step)) * ((0x1.2p-17 * root) * *error_bound);
        if (!(-rise > doubt))
            continue;
        const double more = (fabs((double)e) - fabs(now)) * root;
        *change += rise;
        *error_bound += more;
        q[k] = x;
        d[k] = e;
        steps++;
        for (size_t j = k + 1; j < t->columns; j++) {
            const double product = step * (double)t->a[k * t->h_stride + j];
            g[j] += product;
        }
    }
    return steps;
}

/* Rising numbers, fewer than there could be. */
static void fill_book(struct trial *t)
{
    const size_t count = 2 + rng_below(&t->rng, CODE_BOOK - 1);
    for (size_t k = 0; k < count; k++)
        t->book.number[k] = (k == 0 ? -9 : t->book.number[k - 1]) + 0.1f + (float)rng_below(&t->rng, 4);
    for (size_t k = 0; k + 1 < CODE_BOOK; k++)
        t->book.middle[k] = k + 1 < count ? (t->book.number[k] + t->book.number[k + 1]) / 2 : INFINITY;
    t->grid.book = &t->book;
}

static void try_round(struct trial *t)
{
    static double g[MOST], error_bound[MOST], change[MOST];
    static float q[MOST * MOST], d[MOST * MOST];
    t->columns = rng_below(&t->rng, MOST + 1);
    t->rows = 16 * rng_below(&t->rng, 4);
    t->stride = t->rows + rng_below(&t->rng, 8);
    t->h_stride = t->columns + rng_below(&t->rng, 3);
    t->upper = rng_below(&t->rng, 3) == 0; /* e2m1 */
    const float half = (float)(1 << (1 + rng_below(&t->rng, 7)));
    t->grid = t->upper ? (struct code_grid){-6, 6, 1, (uint32_t)22 << 23, NULL}
                       : (struct code_grid){-half, half - 1, 0x1p16f, (uint32_t)(23 - 16) << 23, NULL};
    if (rng_below(&t->rng, 3) == 0)
        fill_book(t);
    const size_t n = t->columns == 0 ? 0 : (t->columns - 1) * t->stride + t->rows;
    float *h = fill_floats(t, 0, t->columns == 0 ? 0 : (t->columns - 1) * t->h_stride + t->columns);
    for (size_t k = 0; k < t->columns; k++)
        h[k * t->h_stride + k] = rng_below(&t->rng, 6) == 0 ? 0 : 1 + fabsf(h[k * t->h_stride + k]);
    t->a = h;
    t->w = fill_floats(t, 1, n);
    t->q = fill_floats(t, 2, n);
    t->d = fill_floats(t, 3, n);
    const float *scale = fill_floats(t, 4, t->rows), *zero = fill_floats(t, 5, t->rows);
    for (size_t r = 0; r < t->rows; r++) {
        ((float *)(uintptr_t)scale)[r] = (scale[r] < 0 ? -1 : 1) * (0.1f + fabsf(scale[r]));
        ((float *)(uintptr_t)zero)[r] = t->upper ? 0 : rintf(zero[r] * 3);
    }
    for (size_t k = 0; k < t->columns; k++)
        t->column[k] = (struct code_column){scale, zero};
    for (size_t i = 0; i < n && rng_below(&t->rng, 50) > 0; i++)
        t->d[i] *= 0.1f;
    if (n > 0 && rng_below(&t->rng, 8) == 0)
        t->w[rng_below(&t->rng, n)] = NAN;
    t->g = fill_doubles(t, &doubles[0], n);
    t->x = fill_doubles(t, &doubles[1], t->rows);
    t->sum = fill_doubles(t, &doubles[2], t->rows);
    size_t steps = 0;
    for (size_t r = 0; r < t->rows; r++) {
        t->x[r] = fabs(t->x[r]);
        error_bound[r] = t->x[r];
        change[r] = t->sum[r];
        for (size_t k = 0; k < t->columns; k++) {
            g[k] = t->g[k * t->stride + r];
            q[r * MOST + k] = t->q[k * t->stride + r];
            d[r * MOST + k] = t->d[k * t->stride + r];
        }
        steps += round_row(t, r, g, q + r * MOST, d + r * MOST, &error_bound[r], &change[r]);
    }
    run(t, call_round);
    compare(t, "error_bound", t->x, error_bound, t->rows);
    compare(t, "change", t->sum, change, t->rows);
    for (size_t r = 0; r < t->rows && !t->failed; r++)
        for (size_t k = 0; k < t->columns && !t->failed; k++) {
            const double got[2] = {(double)t->q[k * t->stride + r], (double)t->d[k * t->stride + r]};
            const double expected[2] = {(double)q[r * MOST + k] + 0, (double)d[r * MOST + k]};
            compare(t, "number and error", (const double[]){got[0] + 0, got[1]}, expected, 2);
        }
    if (!t->failed && t->steps != steps) {
        t->failed = true;
        printf("FAIL %s %s: %zu steps, expected %zu\n", t->table->isa, t->kernel, t->steps, steps);
    }
}

uint64_t check_gram(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                    unsigned *failed)
{
    static const struct {
        const char *name;
        void (*run)(struct trial *t);
        unsigned calls;
    } kernels[] = {{"gram", try_gram, 1500},
                   {"hessian_product", try_product, 3000},
                   {"hessian_steps", try_steps, 3000},
                   {"hessian_residual", try_residual, 3000},
                   {"hessian_buckets", try_buckets, 3000},
                   {"hessian_round", try_round, 1000}};
    uint64_t calls = 0;
    if (!moves.begin) {
        moves = arena_new((MOST_EVENTS + MOST) * sizeof(struct hessian_event));
        for (int i = 0; i < 6; i++)
            floats[i] = arena_new(MOST_TOKENS * (MOST + 32) * sizeof(float));
        for (int i = 0; i < 5; i++)
            doubles[i] = arena_new(DOUBLES * sizeof(double));
    }
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        struct trial t = {.table = table, .kernel = kernels[k].name, .rng = {seed + k}};
        rng_next(&t.rng);
        for (unsigned i = 0; i < kernels[k].calls * rounds && !t.failed; i++)
            kernels[k].run(&t);
        *(t.failed ? failed : passed) += 1;
        calls += t.calls;
        fflush(stdout);
    }
    return calls;
}

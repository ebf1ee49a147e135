/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "gptq.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exercised.h"
#include "memory.h"
#include "number/convert.h"
#include "number/format.h"
#include "qobs/format.h"
#include "upper_halves.h"
#include "values.h"

enum { ROWS = QOBS_GPTQ_ROWS, MOST = 130, STRIDE = MOST + 2 };

static struct arena arenas[7];

struct trial {
    const struct kernel_table *table;
    qobs_dtype dtype;
    struct rng rng;
    struct quantizer quantizer;
    const struct qobs_format *format; /* NULL: integers */
    size_t columns, stride;
    float *factor, *scale, *add, *sub, *w, *q, *error;
    uint64_t calls;
    bool failed;
};

static void call(void *argument)
{
    struct trial *t = argument;
    CALL(t->table, gptq_block)(&t->quantizer, t->dtype, t->factor, t->stride, t->columns, t->scale, t->add, t->sub,
                               t->w, t->q, t->error);
    check_upper_halves(t->table->isa, "gptq_block");
}

/* The nearest number of the format, with the sign of x. */
static float nearest(const struct trial *t, float x)
{
    const float limited = fminf(fmaxf(x, (float)t->quantizer.quant_min), (float)t->quantizer.quant_max);
    return t->format ? qobs_format_round(t->format, limited, true) : rintf(limited);
}

static float rounded(const struct trial *t, float x) { return (float)qobs_round_to(t->dtype, (double)x); }

/* A row as the contract has it. */
static void expect_row(const struct trial *t, size_t r, float *w, float *q, float *error)
{
    for (size_t k = 0; k < t->columns; k++) {
        const size_t at = k * ROWS + r;
        const float quotient = w[k] / t->scale[at], x = quotient + t->add[at];
        const float number = rounded(t, nearest(t, x) - t->sub[at]), result = rounded(t, number * t->scale[at]);
        const float rest = w[k] - result;
        q[k] = result;
        error[k] = rest / t->factor[k * t->stride + k];
        for (size_t j = k; j < t->columns; j++) {
            const float product = error[k] * t->factor[k * t->stride + j];
            w[j] -= product;
        }
    }
}

static float *place(struct trial *t, int arena, size_t n, float spread, float centre)
{
    float *p = (float *)(void *)arena_place(&arenas[arena], n * sizeof *p, rng_below(&t->rng, 2), 0);
    for (size_t i = 0; i < n; i++)
        p[i] = centre + spread * ((float)rng_below(&t->rng, 20001) / 10000 - 1);
    return p;
}

static bool same(const struct trial *t, const char *what, const float *got, const float *expected, size_t r)
{
    for (size_t k = 0; k < t->columns; k++)
        if (memcmp(&got[k * ROWS + r], &expected[k], sizeof *got) != 0) {
            printf("FAIL %s gptq_block: %s of row %zu, column %zu is %.9g, expected %.9g\n", t->table->isa, what, r, k,
                   (double)got[k * ROWS + r], (double)expected[k]);
            return false;
        }
    return true;
}

static void try_block(struct trial *t)
{
    static float w[ROWS][MOST], q[MOST], error[MOST];
    static const char *const formats[] = {NULL, "fp4_e2m1", "fp8_e4m3"};
    const size_t kind = rng_below(&t->rng, 3);
    const int64_t half = 1 << (1 + rng_below(&t->rng, 7));
    t->format = formats[kind] ? qobs_format_find(formats[kind]) : NULL;
    if (t->format)
        qobs_quantizer_for_format(&t->quantizer, t->format);
    else
        qobs_quantizer_for_integers(&t->quantizer, -half, half - 1, false);
    t->columns = rng_below(&t->rng, MOST + 1);
    t->stride = t->columns + rng_below(&t->rng, 3);
    const size_t n = t->columns * ROWS, entries = t->columns == 0 ? 0 : (t->columns - 1) * t->stride + t->columns;
    t->factor = place(t, 0, entries, 0.05f, 0);
    for (size_t k = 0; k < t->columns; k++)
        t->factor[k * t->stride + k] = 0.5f + fabsf(t->factor[k * t->stride + k]);
    t->scale = place(t, 1, n, 0.01f, 0.02f);
    t->add = place(t, 2, n, kind == 0 && rng_below(&t->rng, 2) ? (float)half : 0, 0);
    t->sub = place(t, 3, n, 0, 0);
    t->w = place(t, 4, n, 0.3f, 0);
    t->q = place(t, 5, n, 1, 0);
    t->error = place(t, 6, n, 1, 0);
    for (size_t i = 0; i < n; i++) {
        t->scale[i] = rounded(t, t->scale[i]);
        t->sub[i] = t->add[i] = rintf(t->add[i]);
    }
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = 0; k < t->columns; k++)
            w[r][k] = t->w[k * ROWS + r];
    t->calls++;
    if (!survives(call, t)) {
        t->failed = true;
        printf("FAIL %s gptq_block: memory touched that may not be\n", t->table->isa);
    }
    for (size_t r = 0; r < ROWS && !t->failed; r++) {
        expect_row(t, r, w[r], q, error);
        t->failed = !same(t, "quantized number", t->q, q, r) || !same(t, "error", t->error, error, r) ||
                    !same(t, "rest", t->w, w[r], r);
    }
}

uint64_t check_gptq(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                    unsigned *failed)
{
    static const qobs_dtype types[] = {QOBS_F32, QOBS_BF16, QOBS_F16};
    uint64_t calls = 0;
    for (int i = 0; i < 7 && !arenas[i].begin; i++)
        arenas[i] = arena_new(MOST * (i == 0 ? STRIDE : ROWS) * sizeof(float));
    for (size_t d = 0; d < sizeof types / sizeof *types; d++) {
        struct trial t = {.table = table, .dtype = types[d], .rng = {seed + 77 * d}};
        rng_next(&t.rng);
        for (unsigned i = 0; i < 300 * rounds && !t.failed; i++)
            try_block(&t);
        *(t.failed ? failed : passed) += 1;
        calls += t.calls;
        fflush(stdout);
    }
    return calls;
}

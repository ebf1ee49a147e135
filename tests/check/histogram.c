/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "histogram.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exercised.h"
#include "memory.h"
#include "upper_halves.h"
#include "values.h"

#define DATA_BYTES ((size_t)1 << 18)
#define LONGEST_VECTOR 16          /* lanes */
#define MOST_BINS (UINT16_MAX + 2) /* more than 16 bits tell */
#define UNTOUCHED 0xa5a5a5a5

static struct arena elements, counters;
static struct islands islands;

struct trial {
    const struct kernel_table *table;
    enum kernel_dtype index;
    const struct dtype *dtype;
    const char *aspect;
    struct rng rng;
    struct binning binning;
    const unsigned char *x;
    ptrdiff_t stride;
    size_t runs, length;
    uint32_t *counters;
    struct extrema seen;
    uint64_t calls;
    bool failed;
};

/* ---- What is right ----------------------------------------------------------------------------------------------- */

static float element(const struct trial *t, size_t run, size_t i)
{
    const unsigned char *x = t->x + (ptrdiff_t)run * t->stride + i * t->dtype->size;
    const float value = (float)value_of_bits(t->dtype, load_bits(t->dtype, x));
    return t->binning.magnitude ? fabsf(value) : value;
}

/* One rounding to float an operation. */
static size_t bin_of(const struct binning *b, float x)
{
    const float scaled = (float)((double)x * b->scale), distance = (float)((double)scaled - b->from);
    const float bin = (float)((double)(float)((double)distance * b->bins) / b->width);
    return bin >= (float)b->bins ? b->bins - 1 : (size_t)bin;
}

static void expect(const struct trial *t, uint64_t *counts, struct extrema *seen)
{
    for (size_t r = 0; r < t->runs; r++)
        for (size_t i = 0; i < t->length; i++) {
            const float x = element(t, r, i);
            if (isnan(x) || isinf(x)) {
                *(isnan(x) ? &seen->nonfinite.nan : &seen->nonfinite.inf) += 1;
                continue;
            }
            if (x == 0 && t->binning.skip_zeros)
                continue;
            seen->min = x < seen->min ? x == 0 ? 0 : x : seen->min;
            seen->max = x > seen->max ? x == 0 ? 0 : x : seen->max;
            if (x >= t->binning.lo && x <= t->binning.hi)
                counts[bin_of(&t->binning, x)]++;
        }
}

/* ---- One call ---------------------------------------------------------------------------------------------------- */

static void fail(struct trial *t, const char *what, double got, double expected)
{
    t->failed = true;
    printf("FAIL %s histogram_rows_%s, %s: %s is %.9g, expected %.9g\n", t->table->isa, t->dtype->name, t->aspect, what,
           got, expected);
    printf("     %zu runs of %zu elements, stride %td bytes, x at 64k+%d, %u bins from %.9g to %.9g%s%s\n", t->runs,
           t->length, t->stride, (int)((uintptr_t)t->x % 64), t->binning.bins, (double)t->binning.lo,
           (double)t->binning.hi, t->binning.magnitude ? ", magnitude" : "",
           t->binning.skip_zeros ? ", skip_zeros" : "");
}

static void call(void *argument)
{
    struct trial *t = argument;
    CALL(t->table, histogram_rows[t->index])(&t->binning, t->x, t->stride, t->runs, t->length, t->counters, &t->seen);
    check_upper_halves(t->table->isa, "histogram_rows");
}

static void compare(struct trial *t, const uint64_t *counts, const struct extrema *seen, uint32_t before)
{
    const size_t bins = t->binning.bins, stride = qobs_counter_stride(bins);
    for (size_t k = 0; k < bins && !t->failed; k++) {
        uint64_t got = 0;
        for (size_t copy = 0; copy < QOBS_COUNTER_COPIES; copy++)
            got += t->counters[copy * stride + k] - before;
        if (got != counts[k]) {
            char what[32];
            snprintf(what, sizeof what, "bin %zu", k);
            fail(t, what, (double)got, (double)counts[k]);
        }
    }
    for (size_t i = 0; i < QOBS_COUNTER_COPIES * stride && !t->failed; i++)
        if (i % stride >= bins && t->counters[i] != UNTOUCHED)
            fail(t, "a counter that is none", t->counters[i], UNTOUCHED);
    if (!t->failed && memcmp(&t->seen.min, &seen->min, sizeof seen->min) != 0)
        fail(t, "the minimum", (double)t->seen.min, (double)seen->min);
    if (!t->failed && memcmp(&t->seen.max, &seen->max, sizeof seen->max) != 0)
        fail(t, "the maximum", (double)t->seen.max, (double)seen->max);
    if (!t->failed && t->seen.nonfinite.nan != seen->nonfinite.nan)
        fail(t, "the number of NaN", (double)t->seen.nonfinite.nan, (double)seen->nonfinite.nan);
    if (!t->failed && t->seen.nonfinite.inf != seen->nonfinite.inf)
        fail(t, "the number of infinities", (double)t->seen.nonfinite.inf, (double)seen->nonfinite.inf);
}

static void run(struct trial *t)
{
    static uint64_t counts[MOST_BINS];
    const size_t bins = t->binning.bins, stride = qobs_counter_stride(bins), n = QOBS_COUNTER_COPIES * stride;
    const uint32_t before = rng_below(&t->rng, 2) ? 0 : 1000;
    t->counters = (uint32_t *)(void *)arena_place(&counters, n * sizeof *t->counters, true, 0);
    for (size_t i = 0; i < n; i++)
        t->counters[i] = i % stride < bins ? before : UNTOUCHED;
    memset(counts, 0, bins * sizeof *counts);
    t->seen = (struct extrema){.min = INFINITY, .max = -INFINITY};
    if (rng_below(&t->rng, 2))
        t->seen = (struct extrema){.min = -1, .max = 2, .nonfinite = {3, 4}};
    struct extrema seen = t->seen;
    expect(t, counts, &seen);
    t->calls++;
    if (survives(call, t))
        compare(t, counts, &seen, before);
    else
        fail(t, "memory touched that may not be, first at", (double)(uintptr_t)fault_address(), 0);
}

/* ---- What is tried ----------------------------------------------------------------------------------------------- */

/* A range: of two of the elements, of all numbers, a point, a narrow one, one of round numbers. */
static void choose_binning(struct trial *t)
{
    static const size_t all_bins[] = {1, 2, 7, 100, 256, 2048, 5000};
    const size_t few = all_bins[rng_below(&t->rng, sizeof all_bins / sizeof *all_bins)];
    const size_t bins = rng_below(&t->rng, 64) ? few : UINT16_MAX + rng_below(&t->rng, 3);
    float lo = -3, hi = 3;
    t->binning.magnitude = false;
    if (t->runs > 0 && t->length > 0) {
        lo = element(t, rng_below(&t->rng, t->runs), rng_below(&t->rng, t->length));
        hi = element(t, rng_below(&t->rng, t->runs), rng_below(&t->rng, t->length));
    }
    switch (rng_below(&t->rng, 6)) {
    case 0:
        lo = -FLT_MAX;
        hi = FLT_MAX;
        break;
    case 1:
        lo = 0;
        hi = 0x1p-149f * (float)(1 + rng_below(&t->rng, 100));
        break;
    case 2:
        lo = -1;
        hi = 4;
        break;
    default:
        break;
    }
    lo = isfinite(lo) ? lo : 0;
    hi = isfinite(hi) ? hi : 1;
    struct binning b = {.lo = lo < hi ? lo : hi, .hi = lo < hi ? hi : lo, .scale = 1, .bins = (uint32_t)bins};
    if (!(b.lo < b.hi)) {
        b.lo -= 1;
        b.hi += 1;
    }
    if (!(b.lo < b.hi)) {
        b.lo = -1;
        b.hi = 1;
    }
    if (!isfinite((b.hi - b.lo) * (float)bins))
        b.scale = 0x1p-26f;
    b.from = b.lo * b.scale;
    b.width = b.hi * b.scale - b.from;
    b.magnitude = rng_below(&t->rng, 3) == 0;
    b.skip_zeros = rng_below(&t->rng, 3) == 0;
    t->binning = b;
}

/* Integers from -1 to 4, of which one is more common than the others by a share that changes from piece to piece. */
static void fill_few(struct trial *t, unsigned char *p, size_t n)
{
    size_t share = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % 700 == 0)
            share = rng_below(&t->rng, 12);
        const double value = rng_below(&t->rng, 10) < share ? 1 : (double)rng_below(&t->rng, 6) - 1;
        const uint64_t bias = t->dtype->infinity >> (t->dtype->mantissa + 1), hidden = UINT64_C(1)
                                                                                       << t->dtype->mantissa;
        const double size = fabs(value);
        const uint64_t exponent = size == 0 ? 0 : size < 2 ? bias : size < 4 ? bias + 1 : bias + 2;
        const uint64_t bits = size == 0 ? 0 : exponent * hidden + (size == 3 ? hidden / 2 : 0);
        store_bits(t->dtype, p + i * t->dtype->size, value < 0 ? bits | t->dtype->sign : bits);
    }
}

static void fill(struct trial *t, unsigned char *p, size_t n)
{
    const size_t way = rng_below(&t->rng, DATA + 3);
    if (way >= DATA)
        fill_few(t, p, n);
    else
        fill_data(&t->rng, t->dtype, (enum data)way, p, n);
}

/* Contiguous or apart, next to no-access memory. */
static void try_rows(struct trial *t, size_t runs, size_t length, bool at_end, size_t offset)
{
    const size_t size = t->dtype->size;
    size_t gap = rng_below(&t->rng, 2) ? 0 : rng_below(&t->rng, 40);
    while (runs > 1 && runs * (length * size + gap) + offset > DATA_BYTES)
        runs /= 2;
    const size_t step = length * size + gap, extent = runs == 0 ? 0 : (runs - 1) * step + length * size;
    unsigned char *const lowest = arena_place(&elements, extent, at_end, offset);
    const bool backwards = runs > 1 && rng_below(&t->rng, 4) == 0;
    for (size_t i = 0; i < runs; i++)
        fill(t, lowest + i * step, length);
    t->runs = runs;
    t->length = length;
    t->stride = backwards ? -(ptrdiff_t)step : (ptrdiff_t)step;
    t->x = backwards ? lowest + (runs - 1) * step : lowest;
    choose_binning(t);
    run(t);
}

static void lengths(struct trial *t, unsigned rounds)
{
    for (size_t length = 0; length <= 4 * LONGEST_VECTOR + 3; length++)
        for (unsigned i = 0; i < 64 * rounds && !t->failed; i++)
            try_rows(t, rng_below(&t->rng, 4) ? 1 : rng_below(&t->rng, 6), length, i & 1, i / 2 % 64);
}

/* The elements that the table's kernel bins together. */
static size_t chunk_of(const struct kernel_table *table)
{
    const struct kernel_limit *l = table->limits;
    while (l->name && l->kernels != QOBS_LIMITS_HISTOGRAM)
        l++;
    return l->name ? l->size : LONGEST_VECTOR;
}

/* Around multiples of chunks, in one run or several. */
static void chunks(struct trial *t, unsigned rounds)
{
    for (unsigned i = 0; i < 600 * rounds && !t->failed; i++) {
        const size_t length =
            chunk_of(t->table) * (1 + rng_below(&t->rng, 8)) + rng_below(&t->rng, 2 * LONGEST_VECTOR) - LONGEST_VECTOR;
        try_rows(t, rng_below(&t->rng, 2) ? 1 : rng_below(&t->rng, 5), length, i & 1, rng_below(&t->rng, 64));
    }
}

static void long_ones(struct trial *t, unsigned rounds)
{
    for (unsigned i = 0; i < 12 * rounds && !t->failed; i++)
        try_rows(t, 1, 20000 + rng_below(&t->rng, 10000), i & 1, rng_below(&t->rng, 64));
}

/* Every run against no-access memory of its own. */
static void gaps_without_access(struct trial *t, unsigned rounds)
{
    for (unsigned i = 0; i < 400 * rounds && !t->failed; i++) {
        const size_t most = islands.bytes / t->dtype->size;
        t->length = rng_below(&t->rng, 2) ? rng_below(&t->rng, most + 1) : rng_below(&t->rng, 40);
        t->runs = 1 + rng_below(&t->rng, islands.count);
        t->stride = islands.stride;
        unsigned char *const lowest = islands.begin + (i & 1 ? islands.bytes - t->length * t->dtype->size : 0);
        for (size_t r = 0; r < t->runs; r++)
            fill(t, lowest + (ptrdiff_t)r * islands.stride, t->length);
        t->x = lowest;
        choose_binning(t);
        run(t);
    }
}

/* Every element of the 16-bit types, and 2^18 patterns of the others. */
static void patterns(struct trial *t, unsigned rounds)
{
    const uint64_t top = t->dtype->sign | (t->dtype->sign - 1), parts = t->dtype->size == 2 ? 4 : 16 * rounds;
    const size_t each = 1 << 14;
    for (uint64_t part = 0; part < parts && !t->failed; part++) {
        unsigned char *const p = arena_place(&elements, each * t->dtype->size, part & 1, 0);
        for (size_t i = 0; i < each; i++)
            store_bits(t->dtype, p + i * t->dtype->size,
                       t->dtype->size == 2 ? part * each + i : (uint64_t)(part * each + i) * (top / (parts * each)));
        t->x = p;
        t->runs = 1;
        t->length = each;
        t->stride = 0;
        choose_binning(t);
        run(t);
    }
}

uint64_t check_histograms(const struct kernel_table *table, uint64_t seed, unsigned rounds, unsigned *passed,
                          unsigned *failed)
{
    static const struct {
        const char *name;
        void (*run)(struct trial *t, unsigned rounds);
    } aspects[] = {{"lengths", lengths},
                   {"chunks", chunks},
                   {"long", long_ones},
                   {"gaps without access", gaps_without_access},
                   {"patterns", patterns}};
    uint64_t calls = 0;
    if (!elements.begin) {
        elements = arena_new(DATA_BYTES);
        counters = arena_new(QOBS_COUNTER_COPIES * qobs_counter_stride(MOST_BINS) * sizeof(uint32_t));
        islands = islands_new(7);
    }
    for (int d = 0; d < QOBS_KERNEL_DTYPES; d++)
        for (size_t a = 0; a < sizeof aspects / sizeof *aspects; a++) {
            struct trial t = {.table = table,
                              .index = (enum kernel_dtype)d,
                              .dtype = &dtypes[d],
                              .aspect = aspects[a].name,
                              .rng = {seed + 1000 * a + (unsigned)d}};
            rng_next(&t.rng);
            if (table->histogram_rows[d])
                aspects[a].run(&t, rounds);
            else
                t.failed = true; /* exercised.c names the slot */
            *(t.failed ? failed : passed) += 1;
            calls += t.calls;
            fflush(stdout);
        }
    return calls;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "kernels_calls.h"

#include <math.h>

#include "number/number.h"
#include "histogram/binning.h"

struct arena elements, first_output, second_output;

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* The input's bytes as elements, over and over, or what the kernel checker draws. */
static void fill(struct bytes *b, const struct matrix *m, unsigned char *p, size_t n)
{
    const size_t way = take_below(b, DATA + 2);
    struct rng rng = {take(b, 4)};
    const size_t there = b->left / m->dtype->size * m->dtype->size;
    if (way < DATA) {
        fill_data(&rng, m->dtype, (enum data)way, p, n);
        return;
    }
    for (size_t i = 0; i < n * m->dtype->size; i++)
        p[i] = there > 0 ? b->at[i % there] : 0;
    if (way == DATA && there > 0) /* bytes as they are, and what they are not */
        for (size_t i = 0; i < n; i++)
            if (rng_below(&rng, 8) == 0)
                store_bits(m->dtype, p + i * m->dtype->size, draw(&rng, m->dtype, (enum kind)rng_below(&rng, KINDS)));
}

void take_matrix(struct bytes *b, struct matrix *m, size_t most_length)
{
    static const size_t lengths[] = {70, 70, 300, 3000};
    m->index = (enum kernel_dtype)take_below(b, QOBS_KERNEL_DTYPES);
    m->dtype = &dtypes[m->index];
    m->length = take_below(b, lengths[take_below(b, 4)]);
    m->length = m->length < most_length ? m->length : most_length;
    m->count = take_below(b, take_below(b, 4) ? 9 : 200);
    const size_t gap = take_below(b, 3) ? 0 : take_below(b, 70), offset = take_below(b, 64);
    const size_t size = m->dtype->size, step = m->length * size + gap, at_end = take_below(b, 2);
    while (m->count * step + offset > MOST_BYTES)
        m->count /= 2;
    const size_t extent = m->count == 0 ? 0 : (m->count - 1) * step + m->length * size;
    unsigned char *lowest = arena_place(&elements, extent, at_end, offset);
    for (size_t i = 0; i < m->count; i++)
        fill(b, m, lowest + i * step, m->length);
    const bool backwards = m->count > 1 && take_below(b, 4) == 0;
    m->stride = backwards ? -(ptrdiff_t)step : (ptrdiff_t)step;
    m->x = backwards ? lowest + (m->count - 1) * step : lowest;
}

const struct kernel_table *next_table(size_t *i)
{
    const struct kernel_table *table;
    while ((table = qobs_kernel_tables[*i])) {
        ++*i;
        if (table != &qobs_kernels_scalar && table->usable())
            return table;
    }
    return NULL;
}

static void same_bytes(const struct kernel_table *table, const char *what, const void *got, const void *expected,
                       size_t n)
{
    if (memcmp(got, expected, n) == 0)
        return;
    size_t i = 0;
    while (((const unsigned char *)got)[i] == ((const unsigned char *)expected)[i])
        i++;
    finding("%s: %s: byte %zu of %zu is not that of scalar", table->isa, what, i, n);
}

void same_floats(const struct kernel_table *table, const char *what, const float *got, const float *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bits_of_float(got[i]) != bits_of_float(expected[i]) && !(isnan(got[i]) && isnan(expected[i])))
            finding("%s: %s[%zu] of %zu is %a, scalar's %a", table->isa, what, i, n, (double)got[i],
                    (double)expected[i]);
}

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

enum { MOST_RESULTS = 8192 };

/* Outputs before a call: identities, or numbers other than -0. */
static void fill_results(struct bytes *b, const struct matrix *m, unsigned char *min, unsigned char *max, size_t n)
{
    const bool identities = take_below(b, 2);
    struct rng rng = {take(b, 2)};
    for (size_t i = 0; i < n * m->dtype->size; i += m->dtype->size) {
        const uint64_t either = draw(&rng, m->dtype, FINITE), drawn = either == m->dtype->sign ? 0 : either;
        store_bits(m->dtype, min + i, identities ? m->dtype->infinity : drawn);
        store_bits(m->dtype, max + i, identities ? m->dtype->infinity | m->dtype->sign : drawn);
    }
}

struct minmax_call {
    struct matrix m;
    int form; /* rows, columns, indexed, panels */
    ptrdiff_t out_stride;
    size_t panels, runs;
    const uint32_t *group;
    size_t groups, results;
};

static void minmax(const struct kernel_table *table, const struct minmax_call *c, unsigned char *min,
                   unsigned char *max, struct nonfinite_count *nonfinite)
{
    static unsigned char scratch[QOBS_INDEXED_SCRATCH(64) + 1];
    const struct matrix *m = &c->m;
    if (c->form == 0)
        table->minmax_rows[m->index](m->x, m->stride, m->count, m->length, min, max, c->out_stride, nonfinite);
    else if (c->form == 3)
        table->minmax_row_panels[m->index](m->x, m->stride, c->panels, m->count / c->panels, c->runs,
                                           m->length / c->runs, min, max, nonfinite);
    else if (c->form == 1)
        table->minmax_columns[m->index](m->x, m->stride, m->count, m->length, min, max, nonfinite);
    else
        table->minmax_indexed[m->index](m->x, m->stride, m->count, m->length, c->group, c->groups, min, max,
                                        scratch + 1, nonfinite);
}

static void minmax_on_all(struct bytes *b, const struct minmax_call *c)
{
    static unsigned char min[MOST_RESULTS * 8], max[sizeof min], expected_min[sizeof min], expected_max[sizeof min];
    const size_t bytes = c->results * c->m.dtype->size;
    struct nonfinite_count expected = {5, 7};
    must(bytes <= sizeof min);
    fill_results(b, &c->m, min, max, c->results);
    memcpy(expected_min, min, bytes);
    memcpy(expected_max, max, bytes);
    minmax(&qobs_kernels_scalar, c, expected_min, expected_max, &expected);
    const struct kernel_table *table;
    for (size_t i = 0; (table = next_table(&i));) {
        struct nonfinite_count nonfinite = {5, 7};
        unsigned char *got_min = arena_place(&first_output, bytes, i % 2, 0),
                      *got_max = arena_place(&second_output, bytes, i % 2, 0);
        memcpy(got_min, min, bytes);
        memcpy(got_max, max, bytes);
        minmax(table, c, got_min, got_max, &nonfinite);
        same_bytes(table, "min", got_min, expected_min, bytes);
        same_bytes(table, "max", got_max, expected_max, bytes);
        must(nonfinite.nan == expected.nan && nonfinite.inf == expected.inf);
    }
}

void fuzz_minmax(struct bytes *b)
{
    struct minmax_call c = {.form = (int)take_below(b, 2), .out_stride = (ptrdiff_t)take_below(b, 4)};
    take_matrix(b, &c.m, SIZE_MAX);
    c.results = c.form == 1 ? c.m.length : c.m.count == 0 ? 0 : (c.m.count - 1) * (size_t)c.out_stride + 1;
    minmax_on_all(b, &c);
}

/* Rows and elements that are left over belong to no band. */
void fuzz_row_panels(struct bytes *b)
{
    struct minmax_call c = {.form = 3, .panels = 1 + take_below(b, 20), .runs = 1 + take_below(b, 80)};
    take_matrix(b, &c.m, SIZE_MAX);
    c.results = c.panels * c.runs;
    minmax_on_all(b, &c);
}

void fuzz_indexed(struct bytes *b)
{
    static uint32_t group[3000];
    struct minmax_call c = {.form = 2, .group = group, .groups = 1 + take_below(b, 64)};
    struct rng rng = {take(b, 4)};
    take_matrix(b, &c.m, SIZE_MAX);
    while (c.m.count * c.groups > MOST_RESULTS)
        c.groups /= 2;
    for (size_t j = 0; j < c.m.length; j++)
        group[j] = (uint32_t)rng_below(&rng, c.groups);
    c.results = c.m.count * c.groups;
    minmax_on_all(b, &c);
}

void fuzz_absmax(struct bytes *b)
{
    static unsigned char expected[MOST_RESULTS * 8];
    struct matrix m;
    const bool columns = take_below(b, 2);
    const ptrdiff_t out_stride = (ptrdiff_t)take_below(b, 4);
    struct rng rng = {take(b, 2)};
    take_matrix(b, &m, SIZE_MAX);
    const size_t n = columns        ? m.length
                     : m.count == 0 ? 0
                                    : (m.count - 1) * (size_t)out_stride + 1,
                 bytes = n * m.dtype->size;
    unsigned char *before = arena_place(&second_output, bytes, true, 0);
    const bool identities = take_below(b, 2);
    for (size_t i = 0; i < bytes; i += m.dtype->size)
        store_bits(m.dtype, before + i, identities ? 0 : draw(&rng, m.dtype, FINITE) & ~m.dtype->sign);
    struct nonfinite_count seen[2];
    const struct kernel_table *table = &qobs_kernels_scalar;
    size_t next = 0;
    do {
        const bool first = table == &qobs_kernels_scalar;
        unsigned char *out = first ? expected : arena_place(&first_output, bytes, next % 2, 0);
        memcpy(out, before, bytes);
        seen[!first] = (struct nonfinite_count){5, 7};
        if (columns)
            table->absmax_columns[m.index](m.x, m.stride, m.count, m.length, out, &seen[!first]);
        else
            table->absmax_rows[m.index](m.x, m.stride, m.count, m.length, out, out_stride, &seen[!first]);
        same_bytes(table, "absmax", out, expected, bytes);
        must(first || (seen[1].nan == seen[0].nan && seen[1].inf == seen[0].inf));
    } while ((table = next_table(&next)));
}

/* ---- Histograms and squares -------------------------------------------------------------------------------------- */

static size_t count_all(const struct kernel_table *table, const struct matrix *m, const struct binning *binning,
                        uint32_t *counters, uint32_t *total, struct extrema *seen)
{
    const size_t stride = qobs_counter_stride(binning->bins), n = (QOBS_COUNTER_COPIES - 1) * stride + binning->bins;
    memset(counters, 0, n * sizeof *counters);
    table->histogram_rows[m->index](binning, m->x, m->stride, m->count, m->length, counters, seen);
    for (size_t k = 0; k < binning->bins; k++) {
        total[k] = 0;
        for (size_t copy = 0; copy < QOBS_COUNTER_COPIES; copy++)
            total[k] += counters[copy * stride + k];
    }
    return n;
}

void fuzz_histogram(struct bytes *b)
{
    enum { MOST = 5000, WORKSPACE = 2 * (MOST + 1104) };
    static uint32_t expected[MOST], got[MOST];
    static const float limits[] = {0, 1, -1, 0x1p-149f, 0x1.fffffep127f, -0x1.fffffep127f, 255, 0x1p-126f};
    struct matrix m;
    const size_t bins = 1 + take_below(b, take_below(b, 2) ? 16 : MOST);
    float lo = take_below(b, 2) ? limits[take_below(b, 8)] : take_float(b),
          hi = take_below(b, 2) ? limits[take_below(b, 8)] : take_float(b);
    lo = isfinite(lo) ? lo : -1;
    hi = isfinite(hi) ? hi : 1;
    const struct binning binning =
        qobs_binning_of(lo < hi ? lo : hi, lo < hi ? hi : lo, bins, take_below(b, 2), take_below(b, 2));
    take_matrix(b, &m, SIZE_MAX);
    struct extrema seen = qobs_extrema_of_nothing();
    uint32_t *counters = (uint32_t *)(void *)arena_place(&first_output, WORKSPACE * sizeof *counters, false, 0);
    const size_t n = count_all(&qobs_kernels_scalar, &m, &binning, counters, expected, &seen);
    const struct kernel_table *table;
    for (size_t i = 0; (table = next_table(&i));) {
        struct extrema got_seen = qobs_extrema_of_nothing();
        count_all(table, &m, &binning, (uint32_t *)(void *)arena_place(&first_output, n * sizeof *counters, true, 0),
                  got, &got_seen);
        same_bytes(table, "counts", got, expected, bins * sizeof *got);
        same_bytes(table, "seen", &got_seen, &seen, sizeof seen);
    }
}

void fuzz_squares(struct bytes *b)
{
    static double expected[3000];
    struct matrix m;
    take_matrix(b, &m, SIZE_MAX);
    memset(expected, 0, sizeof expected);
    qobs_kernels_scalar.squares_columns[m.index](m.x, m.stride, m.count, m.length, expected);
    const struct kernel_table *table;
    for (size_t i = 0; (table = next_table(&i));) {
        double *got = (double *)(void *)arena_place(&first_output, m.length * sizeof *got, true, 0);
        memset(got, 0, m.length * sizeof *got);
        table->squares_columns[m.index](m.x, m.stride, m.count, m.length, got);
        for (size_t j = 0; j < m.length; j++)
            if (memcmp(&got[j], &expected[j], sizeof *got) != 0 && !(isnan(got[j]) && isnan(expected[j])))
                finding("%s: square %zu is %a, scalar's %a", table->isa, j, got[j], expected[j]);
    }
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const kinds[])(struct bytes *) = {
        fuzz_minmax,        fuzz_row_panels,    fuzz_indexed,         fuzz_absmax,      fuzz_histogram,    fuzz_squares,
        fuzz_fake_quantize, fuzz_search_errors, fuzz_search_improved, fuzz_search_load, fuzz_search_shrink,
        fuzz_superblock};
    struct bytes b = {data, size};
    size_t first = 0;
    if (!next_table(&first))
        finding("this CPU runs no kernels but the scalar ones: there is nothing to compare");
    if (!elements.begin) {
        elements = arena_new(MOST_BYTES + 64);
        first_output = arena_new(2 * MOST_BYTES);
        second_output = arena_new(2 * MOST_BYTES);
    }
    kinds[take_below(&b, sizeof kinds / sizeof *kinds)](&b);
    return 0;
}

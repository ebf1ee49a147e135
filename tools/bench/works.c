/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The works, as a table. */
#include "bench/works.h"

#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "qobs/stateless.h"

/* A row has 16 KB. The search takes too long on all rows, and the loop that counts on all elements. */
enum { COLUMNS = 8192, FEW_ROWS = 64, GROUP = 128, LANES = 8, COUNTED = 1 << 19 };

size_t bench_bytes(const struct bench_data *d) { return (size_t)d->rows * COLUMNS * sizeof(uint16_t); }

/* ---- Data -------------------------------------------------------------------------------------------------------- */

/* Fills with numbers around 0, from a fixed seed: the sum of four bytes is nearly Gaussian. */
static void fill(uint16_t *numbers, size_t n)
{
    uint64_t state = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < n; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const int sum =
            (int)(state & 255) + (int)(state >> 8 & 255) + (int)(state >> 16 & 255) + (int)(state >> 24 & 255);
        const float x = (float)(sum - 510) * 0x1p-8f;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        numbers[i] = (uint16_t)(bits >> 16 & 0xfffe); /* no byte is 0xff: read_by_search finds none */
    }
}

static qobs_tensor tensor(const void *data, qobs_dtype dtype, int64_t *shape, int64_t rows, int64_t columns)
{
    shape[0] = rows;
    shape[1] = columns;
    return (qobs_tensor){.struct_size = sizeof(qobs_tensor), .data = data, .dtype = dtype, .ndim = 2, .shape = shape};
}

static int make_configs(struct bench_data *d)
{
    qobs_error error;
    if (qobs_config_parse(&d->group, "llmc.memoryless_minmax num_bits=4 group_size=128", NULL, &error) != QOBS_OK ||
        qobs_config_parse(&d->search, "llmc.memoryless_mse num_bits=4 group_size=128", NULL, &error) != QOBS_OK)
        return print_status_error(&error, NULL);
    const qobs_qparam_buffers out = {
        .struct_size = sizeof out, .scale = d->scale, .scale_size = d->groups * sizeof(uint16_t)};
    if (qobs_qparams_from_tensor("llmc.memoryless_minmax num_bits=4 group_size=128", &d->bf16, &out, NULL, &error) !=
        QOBS_OK)
        return print_status_error(&error, NULL);
    return EXIT_OK;
}

int bench_data_make(struct bench_data *d, size_t megabytes)
{
    d->rows = (int64_t)(megabytes * FEW_ROWS);
    const size_t n = (size_t)d->rows * COLUMNS;
    d->groups = n / GROUP;
    d->numbers = malloc(bench_bytes(d));
    d->min = malloc(d->groups * sizeof(double)); /* large enough for any dtype */
    d->max = malloc(d->groups * sizeof(double));
    d->scale = malloc(d->groups * sizeof(uint16_t));
    d->codes = malloc(n);
    d->bins = malloc(BENCH_BINS * sizeof *d->bins);
    d->bin_of = malloc(COUNTED * sizeof *d->bin_of);
    d->counters = calloc(BENCH_BINS, sizeof *d->counters);
    if (!d->numbers || !d->min || !d->max || !d->scale || !d->codes || !d->bins || !d->bin_of || !d->counters)
        return print_error(EXIT_SYSTEM, "no memory for a tensor of %zu bytes", bench_bytes(d));
    fill(d->numbers, n);
    memset(d->codes, 0, n); /* the system gives the pages now, not while the time is taken */
    for (size_t i = 0; i < COUNTED; i++)
        d->bin_of[i] = (uint16_t)((d->numbers[i] ^ d->numbers[i] << 3) % BENCH_BINS);
    d->bf16 = tensor(d->numbers, QOBS_BF16, d->bf16_shape, d->rows, COLUMNS);
    d->f32 = tensor(d->numbers, QOBS_F32, d->f32_shape, d->rows, COLUMNS / 2);
    d->few = tensor(d->numbers, QOBS_BF16, d->few_shape, FEW_ROWS, COLUMNS);
    return make_configs(d);
}

void bench_data_free(struct bench_data *d)
{
    qobs_config_destroy(d->group);
    qobs_config_destroy(d->search);
    free(d->numbers);
    free(d->min);
    free(d->max);
    free(d->scale);
    free(d->codes);
    free(d->bins);
    free(d->bin_of);
    free(d->counters);
}

/* ---- Loops ------------------------------------------------------------------------------------------------------- */

/* Searches a byte that is not there: the C library does so with the widest vectors, if it is a good one. */
static int read_by_search(struct bench_data *d, const qobs_runtime *runtime, qobs_error *error)
{
    (void)runtime;
    (void)error;
    d->limit_sum += memchr(d->numbers, 0xff, bench_bytes(d)) != NULL;
    return QOBS_OK;
}

/* Ors all bytes together. */
static int read_all(struct bench_data *d, const qobs_runtime *runtime, qobs_error *error)
{
    const unsigned char *at = (const unsigned char *)d->numbers;
    uint64_t sums[LANES] = {0};
    (void)runtime;
    (void)error;
    for (size_t i = 0; i < bench_bytes(d); i += sizeof sums) {
        uint64_t words[LANES];
        memcpy(words, at + i, sizeof words);
        for (int k = 0; k < LANES; k++)
            sums[k] |= words[k];
    }
    for (int k = 0; k < LANES; k++)
        d->limit_sum |= sums[k];
    return QOBS_OK;
}

/* Counts one element after the other in one array of counters, by indices that are known. */
static int count_all(struct bench_data *d, const qobs_runtime *runtime, qobs_error *error)
{
    (void)runtime;
    (void)error;
    for (size_t i = 0; i < COUNTED; i++)
        d->counters[d->bin_of[i]]++;
    d->limit_sum += d->counters[0];
    return QOBS_OK;
}

/* ---- Works ------------------------------------------------------------------------------------------------------- */

static int minmax(struct bench_data *d, const qobs_config *config, const qobs_tensor *value, size_t size,
                  const qobs_runtime *runtime, qobs_error *error)
{
    const qobs_minmax_args args = {.struct_size = sizeof args,
                                   .config = config,
                                   .value = value,
                                   .min = d->min,
                                   .max = d->max,
                                   .size = size,
                                   .runtime = runtime};
    return qobs_minmax(&args, error);
}

static int minmax_all(struct bench_data *d, const qobs_runtime *runtime, qobs_error *error)
{
    return minmax(d, NULL, &d->f32, sizeof(float), runtime, error);
}

static int minmax_groups(struct bench_data *d, const qobs_runtime *runtime, qobs_error *error)
{
    return minmax(d, d->group, &d->bf16, d->groups * sizeof(uint16_t), runtime, error);
}

static int histogram(struct bench_data *d, const qobs_runtime *runtime, qobs_error *error)
{
    const qobs_histogram_options bins = {.struct_size = sizeof bins, .count = BENCH_BINS, .min = -2, .max = 2};
    const qobs_histogram_args args = {.struct_size = sizeof args,
                                      .value = &d->f32,
                                      .options = &bins,
                                      .counts = d->bins,
                                      .counts_size = BENCH_BINS * sizeof *d->bins,
                                      .runtime = runtime};
    return qobs_histogram(&args, error);
}

static int search(struct bench_data *d, const qobs_runtime *runtime, qobs_error *error)
{
    const qobs_search_args args = {.struct_size = sizeof args,
                                   .config = d->search,
                                   .value = &d->few,
                                   .min = d->min,
                                   .max = d->max,
                                   .size = (size_t)FEW_ROWS * (COLUMNS / GROUP) * sizeof(uint16_t),
                                   .runtime = runtime};
    return qobs_search(&args, error);
}

static int quantize(struct bench_data *d, const qobs_runtime *runtime, qobs_error *error)
{
    const int64_t groups = (int64_t)d->groups;
    const qobs_tensor scale = {
        .struct_size = sizeof scale, .data = d->scale, .dtype = QOBS_BF16, .ndim = 1, .shape = &groups};
    const qobs_quantize_args args = {.struct_size = sizeof args,
                                     .config = d->group,
                                     .value = &d->bf16,
                                     .scale = &scale,
                                     .codes = d->codes,
                                     .codes_size = (size_t)d->rows * COLUMNS,
                                     .runtime = runtime};
    return qobs_quantize(&args, error);
}

static const struct bench_work works[] = {
    {"min/max, f32", "minmax", minmax_all, false, BENCH_READ, sizeof(float)},
    {"min/max, bf16, groups", "minmax_groups", minmax_groups, false, BENCH_READ, sizeof(uint16_t)},
    {"histogram, f32, 2048 bins", "histogram", histogram, false, BENCH_COUNT, sizeof(float)},
    {"quantize, bf16 to int4", "quantize", quantize, false, BENCH_READ, sizeof(uint16_t)},
    {"MSE search, bf16, int4", "search", search, true, BENCH_NO_LIMIT, sizeof(uint16_t)},
    {NULL, NULL, NULL, false, BENCH_NO_LIMIT, 0},
};

static const struct bench_work loops[BENCH_LIMITS] = {
    [BENCH_READ] = {"read loop", "read_loop", read_all, false, BENCH_NO_LIMIT, 1},
    [BENCH_READ_BY_SEARCH] = {"read loop", "read_loop", read_by_search, false, BENCH_NO_LIMIT, 1},
    [BENCH_COUNT] = {"count loop", "count_loop", count_all, false, BENCH_NO_LIMIT, sizeof(float)},
};

const struct bench_work *bench_work_at(size_t index) { return &works[index]; }

const struct bench_work *bench_limit_loop(enum bench_limit limit) { return &loops[limit]; }

double bench_elements(const struct bench_work *work, const struct bench_data *d)
{
    return work->run == count_all ? COUNTED
           : work->few            ? (double)FEW_ROWS * COLUMNS
                                  : (double)bench_bytes(d) / (double)work->element_size;
}

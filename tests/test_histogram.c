/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms against a slow count: granularities, layouts, threads, extreme ranges; torch.HistogramObserver per
 * channel, merged, saved, over a long stream. */
#include "observing.h"

#include <float.h>
#include <math.h>

#include "histogram/histogram.h"
#include "number/number.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "repeats.h"
#include "calls.h"

static uint32_t random_bits(void)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 32);
}

/* An approximately normal distribution. */
static float *gaussian(size_t n, float scale)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < 12; j++)
            sum += (float)(random_bits() >> 16) / 65536;
        x[i] = (sum - 6) * scale;
    }
    return x;
}

static void each_isa(void (*test)(void))
{
    for (size_t i = 0; select_isa(&i); i++)
        test();
    assert_ok(qobs_isa_select(NULL, &error));
}

/* ---- Without an observer ----------------------------------------------------------------------------------------- */

static qobs_histogram_options bins_of(int64_t count, float min, float max)
{
    return (qobs_histogram_options){
        .struct_size = sizeof(qobs_histogram_options), .count = count, .min = min, .max = max};
}

/* torch's rule for one element, every operation rounded to float. */
static int64_t slow_bin(float lo, float hi, int64_t bins, float x)
{
    const float distance = x - lo, product = distance * (float)bins, width = hi - lo, quotient = product / width;
    return (int64_t)quotient < bins ? (int64_t)quotient : bins - 1;
}

/* Each run of the plan counted slowly. */
static void expect_counts(const qobs_config *config, const qobs_tensor *value, const qobs_histogram_options *bins,
                          const qobs_runtime *runtime)
{
    qobs_plan *plan;
    assert_ok(qobs_plan_create(&plan, config, value, NULL, NULL, &error));
    int64_t shape[QOBS_PLAN_MAX_NDIM], qparams = 1;
    const int ndim = qobs_plan_shape(plan, shape, sizeof shape);
    for (int d = 1; d + 1 < ndim; d++)
        qparams *= shape[d];
    const size_t n = (size_t)qparams, all = n * (size_t)bins->count;
    uint64_t *expected = calloc(all, sizeof *expected), *got = malloc(all * sizeof *got);
    float *first = malloc(n * sizeof *first), *last = malloc(n * sizeof *last);
    assert_true(expected && got && first && last);
    assert_ok(call_histogram(config, value, NULL, bins, got, first, last, NULL, runtime, &error));
    for (int64_t i = 0; i < qobs_plan_run_count(plan); i++) {
        qobs_run run;
        assert_ok(qobs_plan_run(plan, i, &run, &error));
        for (int64_t j = 0; j < run.length; j++) {
            float x = 0;
            if (run.offset != QOBS_PADDING)
                memcpy(&x, (const unsigned char *)value->data + run.offset + j * run.stride, sizeof x);
            const float lo = first[run.qparam], hi = last[run.qparam];
            if (x >= lo && x <= hi)
                expected[run.qparam * bins->count + slow_bin(lo, hi, bins->count, x)]++;
        }
    }
    assert_memory_equal(got, expected, all * sizeof *got);
    free(expected);
    free(got);
    free(first);
    free(last);
    qobs_plan_destroy(plan);
}

static void try_granularities(void)
{
    static const struct {
        const char *preset, *settings;
    } cases[] = {{"torch.MinMaxObserver", ""},
                 {"torch.PerChannelMinMaxObserver", "ch_axis=0"},
                 {"torch.PerChannelMinMaxObserver", "ch_axis=1"},
                 {"llmc.memoryless_minmax", "strategy=channel"},
                 {"llmc.memoryless_minmax", "strategy=group;group_size=32"},
                 {"llmc.memoryless_minmax", "strategy=block;block_structure=[7,50]"}};
    const int64_t rows = 33, columns = 96, apart[] = {(columns + 5) * 4, 4}, swapped[] = {4, rows * 4};
    float *x = gaussian((size_t)(rows * (columns + 5)), 2);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        qobs_config *config = make_config(cases[c].preset, cases[c].settings, NULL);
        for (int layout = 0; layout < 3; layout++) {
            qobs_tensor value = tensor(QOBS_F32, x, rows, columns);
            value.strides = layout == 0 ? NULL : layout == 1 ? apart : swapped;
            for (int own = 0; own < 2; own++) {
                const qobs_histogram_options bins = bins_of(64, own ? 0 : -3, own ? 0 : 2.5f);
                expect_counts(config, &value, &bins, NULL);
            }
        }
        qobs_config_destroy(config);
    }
    free(x);
}

static void test_granularities(void **state)
{
    each_isa(try_granularities);
}

/* Parts run one after the other, the last one first. */
static void backwards(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    while (count-- > 0)
        task(argument, count);
}

static void test_threads(void **state)
{
    static const char *const presets[] = {"torch.MinMaxObserver", "torch.PerChannelMinMaxObserver"};
    const qobs_executor executor = {.struct_size = sizeof executor, .threads = 3, .parallel_for = backwards};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = &executor};
    const int64_t rows = 700, columns = 512;
    float *x = gaussian((size_t)(rows * columns), 1);
    const qobs_tensor value = tensor(QOBS_F32, x, rows, columns);
    for (int p = 0; p < 2; p++) {
        qobs_config *config = make_config(presets[p], "", NULL);
        const qobs_histogram_options bins = bins_of(64, 0, 0);
        expect_counts(config, &value, &bins, &runtime);
        qobs_config_destroy(config);
    }
    free(x);
}

/* If max - min overflows, torch divides by infinity; here the bins have equal widths all the same. */
static void try_huge(void)
{
    const float x[] = {-FLT_MAX, -FLT_MAX / 4 * 3, -1, 0, 1, FLT_MAX / 4 * 3, FLT_MAX, FLT_MAX};
    const qobs_tensor value = tensor(QOBS_F32, x, 8);
    const qobs_histogram_options bins = bins_of(4, 0, 0);
    uint64_t counts[4];
    const uint64_t expected[4] = {2, 1, 2, 3};
    float first, last;
    assert_ok(call_histogram(NULL, &value, NULL, &bins, counts, &first, &last, NULL, NULL, &error));
    assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 8);
    assert_int_equal(counts[0], expected[0]);
    assert_int_equal(counts[3], expected[3]);
    assert_true(first == -FLT_MAX && last == FLT_MAX);
    const float points[] = {0x1p-140f, -1e30f, FLT_MAX, 0};
    for (int i = 0; i < 4; i++) { /* one value: [c - 1, c + 1], or the next floats if those are c */
        const qobs_tensor point = tensor(QOBS_F32, &points[i], 1);
        assert_ok(call_histogram(NULL, &point, NULL, &bins, counts, &first, &last, NULL, NULL, &error));
        assert_true(first <= points[i] && points[i] <= last && first < last && isfinite(first) && isfinite(last));
        assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 1);
    }
}

static void test_huge(void **state)
{
    each_isa(try_huge);
}

static void test_choices(void **state)
{
    const float x[] = {-2, -1, -0.0f, 0, 0, 0.5f, 2, NAN, INFINITY};
    const qobs_tensor value = tensor(QOBS_F32, x, 9);
    qobs_histogram_options bins = bins_of(2, 0, 2);
    uint64_t counts[2];
    qobs_counts seen = {.struct_size = sizeof seen};
    assert_ok(call_histogram(NULL, &value, NULL, &bins, counts, NULL, NULL, &seen, NULL, &error));
    assert_true(counts[0] == 4 && counts[1] == 1 && seen.nan == 1 && seen.inf == 1 && seen.elements == 9);
    bins.magnitude = true;
    assert_ok(call_histogram(NULL, &value, NULL, &bins, counts, NULL, NULL, NULL, NULL, &error));
    assert_true(counts[0] == 4 && counts[1] == 3);
    bins.skip_zeros = true;
    assert_ok(call_histogram(NULL, &value, NULL, &bins, counts, NULL, NULL, NULL, NULL, &error));
    assert_true(counts[0] == 1 && counts[1] == 3);
    bins.min = bins.max = 0;
    assert_refused(call_histogram(NULL, &value, NULL, &bins, counts, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_NONFINITE, "value|1 NaN|1 infinite");
    bins.count = 0;
    assert_refused(call_histogram(NULL, &value, NULL, &bins, counts, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "options.count|0|16777216");
    bins = bins_of(2, 1, -1);
    assert_refused(call_histogram(NULL, &value, NULL, &bins, counts, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "options.min|options.max");
}

/* ---- torch.HistogramObserver ------------------------------------------------------------------------------------- */

static float *read_result(const qobs_observer *o, const char *name, size_t *n)
{
    qobs_result result = {.struct_size = sizeof result};
    assert_ok(qobs_observer_result_find(o, name, &result, &error));
    assert_int_equal(result.dtype, QOBS_F32);
    float *out = malloc(result.size);
    assert_ok(qobs_observer_read(o, name, out, result.size, &error));
    *n = result.size / sizeof *out;
    return out;
}

/* Result `name` of b is part `at` of that of a. */
static void expect_same(const qobs_observer *a, const qobs_observer *b, const char *name, size_t at)
{
    size_t n, m;
    float *x = read_result(a, name, &n), *y = read_result(b, name, &m);
    assert_int_equal(n % m, 0);
    assert_memory_equal(x + at * m, y, m * sizeof *y);
    free(x);
    free(y);
}

static double sum_of(const qobs_observer *o, const char *name)
{
    size_t n;
    float *x = read_result(o, name, &n);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i];
    free(x);
    return sum;
}

/* Every channel has what an observer of it alone has. */
static void try_channels(void)
{
    static const char *const names[] = {"histogram", "min_val", "max_val", "new_min", "new_max", "scale"};
    enum { ROWS = 5, COLUMNS = 700 };
    qobs_observer *all = make("torch.HistogramObserver", "qscheme=per_channel_affine;ch_axis=0;bins=256"), *alone[ROWS];
    for (int r = 0; r < ROWS; r++)
        alone[r] = make("torch.HistogramObserver", "bins=256");
    for (int batch = 0; batch < 4; batch++) {
        float *x = gaussian(ROWS * COLUMNS, 1 + (float)batch / 4);
        for (int r = 0; r < ROWS; r++)
            x[r * COLUMNS] *= (float)(r + 1);
        assert_ok(observe(all, ROWS, COLUMNS, x));
        for (int r = 0; r < ROWS; r++)
            assert_ok(observe(alone[r], 1, COLUMNS, x + (ptrdiff_t)r * COLUMNS));
        free(x);
    }
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            expect_same(all, alone[r], names[i], r);
        qobs_observer_destroy(alone[r]);
    }
    qobs_observer_destroy(all);
}

static void test_channels(void **state)
{
    each_isa(try_channels);
}

/* Merging gives the union of the ranges and all mass, and if the ranges agree the result of one observer. */
static void test_merge(void **state)
{
    qobs_observer *a = make("torch.HistogramObserver", "bins=128"), *b = make("torch.HistogramObserver", "bins=128");
    qobs_observer *one = make("torch.HistogramObserver", "bins=128"),
                  *empty = make("torch.HistogramObserver", "bins=128");
    float *x = gaussian(4096, 1);
    x[0] = x[2048] = -8;
    x[1] = x[2049] = 8;
    assert_ok(observe(a, 1, 2048, x));
    assert_ok(observe(b, 1, 2048, x + 2048));
    assert_ok(observe(one, 1, 4096, x));
    const qobs_observer *others[] = {b, empty};
    assert_ok(qobs_observer_merge(a, others, 2, &error));
    expect_same(a, one, "histogram", 0);
    expect_same(a, one, "scale", 0);
    x[5] = 20;
    assert_ok(observe(b, 1, 2048, x));
    assert_ok(qobs_observer_merge(a, others, 2, &error));
    assert_result(a, "max_val", 20);
    assert_result(a, "min_val", -8);
    assert_true(sum_of(a, "histogram") == 4096 + 4096);
    const qobs_observer *into[] = {a};
    assert_ok(qobs_observer_merge(empty, into, 1, &error));
    expect_same(empty, a, "histogram", 0);
    assert_int_equal(counts_of(empty).batches, counts_of(a).batches);
    free(x);
    qobs_observer_destroy(a);
    qobs_observer_destroy(b);
    qobs_observer_destroy(one);
    qobs_observer_destroy(empty);
}

/* A loaded observer continues like the saved one. Every changed byte and every truncation is detected. */
static void test_state(void **state)
{
    qobs_observer *o = make("torch.HistogramObserver", "bins=16;qscheme=per_channel_symmetric;ch_axis=1;dtype=qint8");
    qobs_observer *loaded = NULL;
    float *x = gaussian(600, 1), *wider = gaussian(600, 2);
    assert_ok(observe(o, 200, 3, x));
    size_t size;
    unsigned char *bytes = saved_state(o, &size);
    assert_ok(qobs_observer_load(&loaded, bytes, size, NULL, &error));
    assert_ok(observe(o, 200, 3, wider));
    assert_ok(observe(loaded, 200, 3, wider));
    expect_same(o, loaded, "histogram", 0);
    expect_same(o, loaded, "new_max", 0);
    for (size_t i = 0; i < size; i++) {
        qobs_observer *none = NULL;
        bytes[i] ^= 1;
        assert_int_not_equal(qobs_observer_load(&none, bytes, size, NULL, &error), QOBS_OK);
        bytes[i] ^= 1;
        assert_int_not_equal(qobs_observer_load(&none, bytes, i, NULL, &error), QOBS_OK);
        assert_null(none);
    }
    free(bytes);
    free(x);
    free(wider);
    qobs_observer_destroy(o);
    qobs_observer_destroy(loaded);
}

/* Counting stops at an element outside the range, near the beginning of the batch. The result is that of a loaded
 * observer, which scans the extrema first. */
static void try_stopped(const char *preset, const char *settings, const char *histogram, float unusual)
{
    enum { N = 200000 };
    float *x = gaussian(N, 1);
    qobs_observer *o = make(preset, settings), *loaded = NULL;
    assert_ok(observe(o, 1, N, x));
    assert_ok(observe(o, 1, N, x)); /* inside: the next one is counted at once */
    size_t size;
    unsigned char *bytes = saved_state(o, &size);
    assert_ok(qobs_observer_load(&loaded, bytes, size, NULL, &error));
    x[5] = 7, x[N - 70000] = -9, x[N - 1000] = unusual, x[N - 3] = 11;
    assert_ok(observe(o, 1, N, x));
    assert_ok(observe(loaded, 1, N, x));
    if (strncmp(preset, "torch.", 6) == 0) {
        assert_result(o, "min_val", -9);
        assert_result(o, "max_val", 11);
    }
    expect_same(o, loaded, histogram, 0);
    expect_same(o, loaded, "scale", 0);
    assert_int_equal(counts_of(o).inf, counts_of(loaded).inf);
    assert_int_equal(counts_of(o).inf, isinf(unusual) != 0);
    free(bytes);
    free(x);
    qobs_observer_destroy(o);
    qobs_observer_destroy(loaded);
}

static void try_all_stopped(void)
{
    try_stopped("torch.HistogramObserver", "bins=64", "histogram", 0.5f);
    try_stopped("torch.HistogramObserver", "bins=64", "histogram", INFINITY);
    try_stopped("quark.PerTensorHistogramObserver", "symmetric=false", "calib_hist", 0.5f);
    try_stopped("quark.PerTensorPercentileObserver", "symmetric=false", "calib_hist", 0);
}

static void test_stopped(void **state)
{
    each_isa(try_all_stopped);
}

/* A first batch of one value gives the bins no width: it is counted as if it came together with the second. */
static void try_one_value_first(void)
{
    static const struct {
        const char *preset, *settings, *histogram;
        float value;
    } cases[] = {{"modelopt.HistogramCalibrator", "", "calib_hist", 0},
                 {"quark.PerTensorHistogramObserver", "symmetric=false", "calib_hist", 0},
                 {"quark.PerTensorHistogramObserver", "symmetric=false", "calib_hist", -3},
                 {"quark.PerTensorMSEObserver", "", "scale", 0},
                 {"quark.PerTensorPercentileObserver", "", "scale", 0}};
    enum { N = 4000, SAME = 1000 };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const size_t c = i / 2;
        float *x = gaussian(N, i % 2 ? 2 : 0.2f);
        for (size_t k = 0; k < SAME; k++)
            x[k] = cases[c].value;
        qobs_observer *apart = make(cases[c].preset, cases[c].settings),
                      *other = make(cases[c].preset, cases[c].settings),
                      *together = make(cases[c].preset, cases[c].settings);
        assert_ok(observe(together, 1, N, x));
        assert_ok(observe(apart, 1, SAME / 2, x));
        assert_ok(observe(apart, 1, SAME / 2, x));
        assert_ok(observe(other, 1, N - SAME, x + SAME));
        assert_ok(i % 4 < 2 ? observe(apart, 1, N - SAME, x + SAME)
                            : qobs_observer_merge(apart, (const qobs_observer *const[]){other}, 1, &error));
        expect_same(together, apart, cases[c].histogram, 0);
        qobs_observer_destroy(apart);
        qobs_observer_destroy(other);
        qobs_observer_destroy(together);
        free(x);
    }
}

static void test_one_value_first(void **state)
{
    each_isa(try_one_value_first);
}

/* A range that grows while one run is counted gives the result of rows with a gap between them, which are scanned
 * first. Some runs are short enough to be scanned to the end, some are scanned to three quarters. */
static void try_growing(void)
{
    enum { MOST = 700000, BATCHES = 5 };
    static const char *const names[] = {"histogram", "min_val", "max_val", "scale"};
    const size_t columns[] = {1 + random_bits() % 1000, 30000 + random_bits() % 40000, MOST / 2};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        qobs_observer *run = make("torch.HistogramObserver", "bins=100"),
                      *rows = make("torch.HistogramObserver", "bins=100");
        for (int batch = 0; batch < BATCHES; batch++) {
            const size_t n = columns[i];
            float *x = gaussian(2 * n + 1, 0.25f), *packed = malloc(2 * n * sizeof *packed);
            for (uint32_t outside = random_bits() % 4; outside > 0; outside--)
                x[random_bits() % (2 * n)] = (float)random_bits() * 0x1p-28f - 8;
            if (random_bits() % 4 == 0)
                x[random_bits() % n] = INFINITY;
            memcpy(packed, x, n * sizeof *x);
            memcpy(packed + n, x + n + 1, n * sizeof *x);
            const int64_t shape[] = {2, (int64_t)n}, strides[] = {((int64_t)n + 1) * 4, 4}; /* bytes */
            const qobs_tensor apart = {sizeof apart, x, QOBS_F32, 2, shape, strides};
            assert_ok(observe(run, 2, (int64_t)n, packed));
            assert_ok(qobs_observer_observe(rows, &apart, NULL, &error));
            for (size_t k = 0; k < sizeof names / sizeof *names; k++)
                expect_same(run, rows, names[k], 0);
            assert_int_equal(counts_of(run).inf, counts_of(rows).inf);
            free(packed);
            free(x);
        }
        qobs_observer_destroy(run);
        qobs_observer_destroy(rows);
    }
}

static void test_growing(void **state)
{
    for (int i = 0; i < repeats(1, 3); i++)
        each_isa(try_growing);
}

/* Infinities are left out and counted. NaN fails and changes nothing. */
static void test_nonfinite(void **state)
{
    qobs_observer *o = make("torch.HistogramObserver", "bins=8");
    assert_ok(observe(o, 1, 2, F32(INFINITY, -INFINITY)));
    assert_int_equal(counts_of(o).batches, 0);
    assert_int_equal(counts_of(o).inf, 2);
    assert_ok(observe(o, 1, 4, F32(1, INFINITY, 3, 2)));
    assert_result(o, "max_val", 3);
    assert_refused(observe(o, 1, 3, F32(7, NAN, INFINITY)), QOBS_ERROR_NONFINITE, "1 NaN|[0, 1]|refuse_nan");
    assert_result(o, "max_val", 3);
    assert_true(sum_of(o, "histogram") == 3);
    assert_int_equal(counts_of(o).inf, 3);
    assert_ok(observe(o, 1, 2, F32(2, INFINITY)));
    assert_true(sum_of(o, "histogram") == 4);
    qobs_observer_destroy(o);
    /* F64 numbers beyond F32 count as infinities. */
    const double wide[] = {1, -2, 1e300, 0.5};
    const qobs_tensor value = tensor(QOBS_F64, wide, 4);
    const qobs_histogram_options bins = {.struct_size = sizeof bins, .count = 4};
    uint64_t counts[4];
    assert_refused(call_histogram(NULL, &value, NULL, &bins, counts, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_NONFINITE, "1 infinite");
    o = make("torch.HistogramObserver", "bins=8");
    assert_ok(qobs_observer_observe(o, &value, NULL, &error));
    assert_result(o, "min_val", -2);
    assert_result(o, "max_val", 1);
    assert_int_equal(counts_of(o).inf, 1);
    assert_true(sum_of(o, "histogram") == 3);
    qobs_observer_destroy(o);
    /* A range wider than integers is read unchanged. */
    o = make("quark.PerTensorPercentileObserver", "percentile=100;symmetric=false");
    assert_ok(observe(o, 1, 4, F32(-3e29f, 1, 3e29f, 2)));
    assert_result(o, "min_val", -3e29f);
    qobs_observer_destroy(o);
    o = make("torch.HistogramObserver", "nonfinite=refuse");
    assert_refused(observe(o, 1, 2, F32(2, INFINITY)), QOBS_ERROR_NONFINITE, "1 infinite|[0, 1]|refuse");
    qobs_observer_destroy(o);
    qobs_config *config = make_config("torch.HistogramObserver", "is_dynamic=true", NULL);
    assert_refused(qobs_config_check(config, &error), QOBS_ERROR_INVALID_ARGUMENT, "is_dynamic");
    qobs_config_destroy(config);
}

/* Bytes the observer holds, and the most it ever held. */
static size_t held, most;

static void *count_allocate(void *context, size_t size)
{
    held += size;
    most = held > most ? held : most;
    return malloc(size);
}

static void count_release(void *context, void *memory, size_t size)
{
    held -= size;
    free(memory);
}

/* QOBS_STREAM_GB gigabytes (by default 1) of the same four batches. Every element is counted, and memory does not grow.
 */
static void test_stream(void **state)
{
    const qobs_allocator allocator = {
        .struct_size = sizeof allocator, .allocate = count_allocate, .release = count_release};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .allocator = &allocator};
    const char *text = getenv("QOBS_STREAM_GB");
    const size_t n = 1 << 20, batches = (size_t)((text ? atof(text) : 1) * 1e9 / (double)(n * sizeof(float)));
    float *x[4];
    for (int i = 0; i < 4; i++) {
        x[i] = gaussian(n, 1);
        x[i][0] = -7;
        x[i][1] = 7;
    }
    qobs_config *config = make_config("torch.HistogramObserver", "", NULL);
    qobs_observer *o = NULL;
    assert_ok(qobs_observer_create(&o, config, &runtime, &error));
    assert_ok(observe(o, 1, (int64_t)n, x[0]));
    assert_ok(observe(o, 1, (int64_t)n, x[1]));
    const size_t held_early = held, most_early = most, saved = qobs_observer_save_size(o);
    for (size_t i = 2; i < batches; i++)
        assert_ok(observe(o, 1, (int64_t)n, x[i % 4]));
    assert_int_equal(held, held_early);
    assert_int_equal(most, most_early);
    assert_true(held < 40000 && most < 120000);
    assert_int_equal(qobs_observer_save_size(o), saved);
    assert_int_equal(counts_of(o).elements, batches * n);
    const double expected = (double)batches * (double)n, sum = sum_of(o, "histogram");
    assert_true(fabs(sum - expected) <= expected * 1e-6); /* float32 of exact counts */
    qobs_observer_destroy(o);
    for (int i = 0; i < 4; i++)
        free(x[i]);
    qobs_config_destroy(config);
    assert_int_equal(held, 0);
}

/* Beyond 2^24 upstream's float32 loses counts; here only with float32_counts=true. */
static void test_float32_counts(void **state)
{
    const int64_t n = 1 << 20;
    float *x = calloc((size_t)n, sizeof *x);
    x[0] = -1;
    x[1] = 1;
    qobs_observer *exact = make("torch.HistogramObserver", "bins=3");
    qobs_observer *upstream = make("torch.HistogramObserver", "bins=3;float32_counts=true");
    for (int i = 0; i < 20; i++) {
        assert_ok(observe(exact, 1, n, x));
        assert_ok(observe(upstream, 1, n, x));
    }
    /* 20 * (2^20 - 2), which is a float, as is every sum on the way there */
    assert_result(exact, "histogram", 20, 20971480, 20);
    assert_result(upstream, "histogram", 20, 20971480, 20);
    for (int i = 0; i < 3; i++) {
        assert_ok(observe(exact, 1, 1, x + 2));
        assert_ok(observe(upstream, 1, 1, x + 2));
    }
    assert_result(upstream, "histogram", 20, 20971480, 20);
    assert_result(exact, "histogram", 20, 20971484, 20); /* 20971483 as a float */
    free(x);
    qobs_observer_destroy(exact);
    qobs_observer_destroy(upstream);
}

/* The range of a caller's histogram is that of the observer. */
static void test_range(void **state)
{
    qobs_observer *o = make("torch.HistogramObserver", "bins=512");
    float *x = gaussian(5000, 1), edges[513], min = NAN, max = NAN;
    x[0] = 30;
    assert_ok(observe(o, 1, 5000, x));
    size_t n, one;
    float *counts = read_result(o, "histogram", &n), *lo = read_result(o, "min_val", &one),
          *hi = read_result(o, "max_val", &one);
    assert_int_equal(n, 512);
    for (int i = 0; i <= 512; i++)
        edges[i] = i == 512 ? *hi : *lo + (*hi - *lo) * (float)i / 512;
    const qobs_tensor histogram = tensor(QOBS_F32, counts, 512), bin_edges = tensor(QOBS_F32, edges, 513);
    qobs_config *config = make_config("torch.HistogramObserver", "", NULL);
    assert_ok(call_range_by_l2_norm(config, &histogram, &bin_edges, &min, &max, NULL, &error));
    assert_result(o, "new_min", min);
    assert_result(o, "new_max", max);
    assert_true(max < 30 && min >= *lo);
    qobs_config_destroy(config);
    qobs_observer_destroy(o);
    free(counts);
    free(lo);
    free(hi);
    free(x);
}

static float unit_random(void) { return (float)(random_bits() >> 8) * 0x1p-24f; }

/* Re-binning new bin by new bin gives the bits of its definition. */
static void test_rebin(void **state)
{
    enum { MOST = 600 };
    double mass[MOST], expected[MOST], got[MOST];
    for (int i = 0; i < 3000; i++) {
        const size_t bins = 2 + random_bits() % (MOST - 2),
                     next_bins = random_bits() % 2 ? bins : 2 + random_bits() % (MOST - 2);
        const float size = ldexpf(1, (int)(random_bits() % 60) - 30),
                    place = ldexpf((float)(random_bits() % 5), (int)(random_bits() % 24));
        const struct bin_range now = {(place - unit_random()) * size, (place + unit_random()) * size, 0};
        const float wider = (now.hi - now.lo) * ldexpf(unit_random(), (int)(random_bits() % 12) - 4);
        const struct bin_range next = {now.lo - (random_bits() % 4 ? wider : 0),
                                       now.hi + (random_bits() % 4 ? wider : 0), 0};
        const struct histogram_params params = {.float32_counts = random_bits() % 2};
        const float top = ldexpf(1, (int)(random_bits() % 40)); /* some beyond 2^24 */
        for (size_t k = 0; k < bins; k++)
            mass[k] = random_bits() % 4 ? add_mass(0, rint((double)(unit_random() * top)), params.float32_counts) : 0;
        memset(expected, 0, sizeof expected);
        memset(got, 0, sizeof got);
        qobs_rebin_by_parts(&params, &now, bins, mass, &next, next_bins, expected);
        qobs_rebin(&params, &now, bins, mass, &next, next_bins, got);
        assert_memory_equal(got, expected, sizeof got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_granularities), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_huge),          cmocka_unit_test(test_choices),
        cmocka_unit_test(test_channels),      cmocka_unit_test(test_merge),
        cmocka_unit_test(test_state),         cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_stream),        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_growing),       cmocka_unit_test(test_float32_counts),
        cmocka_unit_test(test_range),         cmocka_unit_test(test_rebin),
        cmocka_unit_test(test_one_value_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

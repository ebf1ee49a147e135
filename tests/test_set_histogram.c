/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_observer_set_histogram: an observer that is given the histogram of another one gives the same results, before
 * and after further batches. */
#include <math.h>

#include "calls.h"
#include "observing.h"

enum { N = 1000, MOST_BINS = 1 << 16 };

static const char *const cases[][2] = {
    {"torch.HistogramObserver", "bins=256"},
    {"quark.PerTensorHistogramObserver", ""},
    {"quark.PerTensorHistogramObserverPro", ""},
    {"quark.PerTensorPercentileObserver", "percentile=99.5"},
    {"quark.PerTensorMSEObserver", ""},
    {"modelopt.HistogramCalibrator", "method=percentile;percentile=99.9;num_bins=300"},
    {"modelopt.HistogramCalibrator", "method=entropy;num_bins=300;num_bits=4"},
    {"modelopt.HistogramCalibrator", "method=mse;num_bins=300"},
    {"modelopt.HistogramCalibrator", "method=percentile;percentile=99;num_bins=64;torch_hist=false"},
};

static void fill(float *x, int batch)
{
    uint32_t state = 99 + (uint32_t)batch;
    for (size_t i = 0; i < N; i++) {
        state = state * 1664525 + 1013904223;
        x[i] = ((float)(state >> 8) * 0x1p-24f - 0.4f) * (float)(1 + batch);
    }
}

static void observe_batch(qobs_observer *o, int batch)
{
    static float x[N];
    static const int64_t shape[] = {N};
    const qobs_tensor value = {sizeof value, x, QOBS_F32, 1, shape, NULL};
    fill(x, batch);
    assert_ok(qobs_observer_observe(o, &value, NULL, &error));
}

/* A result as F64; returns the number of its elements, 0 if there is no such result. */
static size_t read_doubles(const qobs_observer *o, const char *name, double *out)
{
    qobs_result r = {.struct_size = sizeof r};
    if (qobs_observer_result_find(o, name, &r, &error) != QOBS_OK)
        return 0;
    const size_t n = r.size / qobs_dtype_size(r.dtype);
    assert_in_range(n, 1, MOST_BINS + 1);
    assert_ok(qobs_observer_read_as(o, name, QOBS_F64, out, n * sizeof *out, &error));
    return n;
}

static void expect_same_results(const qobs_observer *a, const qobs_observer *b, const char *preset)
{
    static unsigned char of_a[MOST_BINS * 8], of_b[MOST_BINS * 8];
    assert_int_equal(qobs_observer_result_count(a), qobs_observer_result_count(b));
    for (size_t i = 0; i < qobs_observer_result_count(a); i++) {
        qobs_result r = {.struct_size = sizeof r};
        assert_ok(qobs_observer_result_info(a, i, &r, &error));
        assert_in_range(r.size, 1, sizeof of_a);
        if (strstr(r.name, "tokens")) /* a histogram does not know them */
            continue;
        assert_ok(qobs_observer_read(a, r.name, of_a, r.size, &error));
        assert_ok(qobs_observer_read(b, r.name, of_b, r.size, &error));
        if (memcmp(of_a, of_b, r.size) != 0)
            fail_msg("%s: %s differs", preset, r.name);
    }
}

/* Moves the histogram of one observer into another. */
static void transfer(const qobs_observer *from, qobs_observer *to)
{
    static double counts[MOST_BINS], edges[MOST_BINS + 1];
    double min = 0, max = 0;
    const bool torch = read_doubles(from, "histogram", counts) > 0;
    const int64_t bins = (int64_t)read_doubles(from, torch ? "histogram" : "calib_hist", counts), all = bins + 1;
    assert_in_range(bins, 2, MOST_BINS);
    const qobs_tensor histogram = {sizeof histogram, counts, QOBS_F64, 1, &bins, NULL};
    const qobs_tensor bin_edges = {sizeof bin_edges, edges, QOBS_F64, 1, &all, NULL};
    qobs_histogram_state state = {.struct_size = sizeof state, .counts = &histogram, .batches = 2};
    if (torch) {
        assert_int_equal(read_doubles(from, "min_val", &min), 1);
        assert_int_equal(read_doubles(from, "max_val", &max), 1);
        state.min = (float)min;
        state.max = (float)max;
    } else {
        assert_int_equal(read_doubles(from, "calib_bin_edges", edges), all);
        state.bin_edges = &bin_edges;
    }
    assert_ok(qobs_observer_set_histogram(to, &state, &error));
    assert_int_equal(counts_of(to).batches, 2);
    double sum = 0; /* upstream's rules lose elements at the edges when they re-bin */
    for (int64_t i = 0; i < bins; i++)
        sum += counts[i];
    assert_int_equal(counts_of(to).elements, (uint64_t)sum);
}

static void test_transfer(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qobs_observer *from = make(cases[i][0], cases[i][1]), *to = make(cases[i][0], cases[i][1]);
        observe_batch(from, 1);
        observe_batch(from, 0);
        observe_batch(to, 5); /* is replaced */
        transfer(from, to);
        expect_same_results(from, to, cases[i][0]);
        observe_batch(from, 2);
        observe_batch(to, 2);
        expect_same_results(from, to, cases[i][0]);
        qobs_observer_destroy(from);
        qobs_observer_destroy(to);
    }
}

static void expect_refusal(qobs_observer *o, const qobs_histogram_state *h, const char *words)
{
    assert_refused(qobs_observer_set_histogram(o, h, &error), QOBS_ERROR_INVALID_ARGUMENT, words);
    assert_int_equal(counts_of(o).batches, 1); /* nothing has changed */
}

static void test_refusals(void **state)
{
    double counts[4] = {1, 2, 3, 4};
    float edges[5] = {0, 1, 2, 3, 4};
    int64_t bins = 4, all = 5;
    qobs_tensor histogram = {sizeof histogram, counts, QOBS_F64, 1, &bins, NULL};
    qobs_tensor bin_edges = {sizeof bin_edges, edges, QOBS_F32, 1, &all, NULL};
    qobs_histogram_state h = {.struct_size = sizeof h, .counts = &histogram, .bin_edges = &bin_edges};
    qobs_observer *o = make("torch.HistogramObserver", "bins=4"), *other = make("torch.MinMaxObserver", "");
    observe_batch(o, 1);
    observe_batch(other, 1);
    expect_refusal(other, &h, "observer|has no histogram");
    expect_refusal(o, NULL, "histogram: is NULL");
    counts[2] = NAN;
    expect_refusal(o, &h, "counts: [2]");
    counts[2] = -1;
    expect_refusal(o, &h, "counts: [2]|-1");
    counts[2] = 0x1p53;
    expect_refusal(o, &h, "counts: [2]|2^53");
    counts[2] = 3;
    edges[3] = 1;
    expect_refusal(o, &h, "bin_edges: [2]");
    edges[3] = 3.5f;
    expect_refusal(o, &h, "bin_edges|linspace");
    edges[3] = 3;
    bins = 3;
    expect_refusal(o, &h, "counts: has 3");
    bins = 4, all = 4;
    expect_refusal(o, &h, "bin_edges|5");
    all = 5;
    histogram.dtype = QOBS_I8;
    expect_refusal(o, &h, "counts: dtype is I8");
    histogram.dtype = QOBS_F64;
    h.bin_edges = NULL;
    h.min = 2;
    h.max = 1;
    expect_refusal(o, &h, "min, max");
    h.max = 3;
    h.batches = UINT64_MAX;
    expect_refusal(o, &h, "batches: is 18446744073709551615");
    h.batches = 0;
    assert_ok(qobs_observer_set_histogram(o, &h, &error));
    assert_int_equal(counts_of(o).elements, 10);
    qobs_observer_destroy(o);
    qobs_observer_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transfer), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests_name("set_histogram", tests, NULL, NULL);
}

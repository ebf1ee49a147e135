/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How torch.ao's HistogramObserver (2.5 and later) grows: its forward, _combine_histograms and _upscale_histogram. */
#include "statistic/histogram.h"

enum { PARTS = 16 };

static size_t first_bins(const qobs_config *config)
{
    return (size_t)config->bins;
}

static bool never(const qobs_config *config)
{
    (void)config;
    return false;
}

static int unite(const qobs_config *config, const struct bin_range *now, size_t bins, const struct qobs_seen *seen,
                 struct bin_range *next, size_t *next_bins, qobs_error *error)
{
    (void)config, (void)error;
    next->lo = seen->min < now->lo ? seen->min : now->lo;
    next->hi = seen->max > now->hi ? seen->max : now->hi;
    *next_bins = bins;
    return QOBS_OK;
}

/* The whole mass of a point into the bin that torch.histc puts the point in. */
static void move_point(float point, size_t bins, const double *mass, const struct bin_range *next, size_t next_bins, double *to,
                       bool float32)
{
    const struct qobs_binning b = qobs_binning_of(next->lo, next->hi, next_bins, false, false);
    double sum = 0;
    for (size_t i = 0; i < bins; i++)
        sum = add_mass(sum, mass[i], float32);
    to[qobs_bin_of(&b, point)] = sum;
}

/* A bin among those between the edges, right-open. */
struct bucket {
    size_t index;
    float lower, upper;
};

/* Moves on to the bin of x. */
static inline void find_bucket(struct bucket *b, const struct linspace *edges, float x)
{
    while (b->upper <= x && b->index + 2 < edges->n) {
        b->lower = b->upper;
        b->upper = linspace_at(edges, ++b->index + 1);
    }
    while (b->lower > x && b->index > 0) {
        b->upper = b->lower;
        b->lower = linspace_at(edges, --b->index);
    }
}

/* The middles of the parts of a bin: their starts, from number `first` on, and half a part. False if that is not as simple as for
 * most: one formula for all of them, which puts them in order, and no sum that multiply_add would look at twice. */
static inline bool find_middles(const struct linspace *starts, size_t first, float half, float middle[PARTS])
{
    const bool early = first < starts->n / 2;
    const double step = early ? (double)starts->step : -(double)starts->step, from = (double)(early ? starts->start : starts->end);
    const int32_t number = (int32_t)(early ? first : starts->n - first - 1), sign = early ? 1 : -1;
    uint64_t rare = early != (first + PARTS - 1 < starts->n / 2);
    double sum[PARTS];
#pragma GCC unroll 1
    for (int32_t part = 0; part < PARTS; part++)
        sum[part] = step * (double)(float)(number + sign * part) + from;
#pragma GCC unroll 1
    for (int part = 0; part < PARTS; part++)
        rare |= must_fuse(sum[part]);
#pragma GCC unroll 1
    for (int part = 0; part < PARTS; part++)
        middle[part] = (float)sum[part] + half;
    return !rare;
}

/* Parts that lie in a bin and the one after it, in float; false, with nothing done, if it is not as simple as that. */
static inline bool share_out_in_float(const struct bucket *b, const struct linspace *edges, const float middle[PARTS], float share,
                                      double *to)
{
    const size_t last = edges->n - 2, next = b->index < last ? b->index + 1 : last;
    const float upper = b->index < last ? b->upper : INFINITY;
    if (next < last && middle[PARTS - 1] >= linspace_at(edges, next + 1))
        return false;
    float here[PARTS], there[PARTS], a = (float)to[b->index], c = (float)to[next];
#pragma GCC unroll 1
    for (int part = 0; part < PARTS; part++) {
        here[part] = middle[part] >= upper ? 0 : share;
        there[part] = middle[part] >= upper ? share : 0;
    }
#pragma GCC unroll 1
    for (int part = 0; part < PARTS; part++) {
        a += here[part];
        c += there[part];
    }
    if (!(a < 0x1p24f && c < 0x1p24f))
        return false;
    to[next] = (double)c;
    to[b->index] = (double)a;
    return true;
}

static void rebin(const qobs_config *config, const struct bin_range *now, size_t bins, const double *mass,
                  const struct bin_range *next, size_t next_bins, double *to)
{
    const bool float32 = config->float32_counts;
    if (now->lo == now->hi) {
        move_point(now->lo, bins, mass, next, next_bins, to, float32);
        return;
    }
    const size_t parts = bins * PARTS;
    const struct linspace starts = linspace_of(now->lo, now->hi, parts + 1), edges = linspace_of(next->lo, next->hi, next_bins + 1);
    const float half = 0.5f * ((now->hi - now->lo) / (float)parts);
    struct bucket bucket = {0, linspace_at(&edges, 0), linspace_at(&edges, 1)};
    for (size_t i = 0; i < bins; i++) {
        const double share = add_mass(mass[i] / PARTS, 0, float32);
        float middle[PARTS];
        if (share <= 0)
            continue;
        const bool simple = find_middles(&starts, i * PARTS, half, middle);
        if (simple)
            find_bucket(&bucket, &edges, middle[0]);
        if (simple && share_out_in_float(&bucket, &edges, middle, (float)share, to))
            continue;
        for (size_t part = 0; part < PARTS; part++) {
            find_bucket(&bucket, &edges, linspace_at(&starts, i * PARTS + part) + half);
            to[bucket.index] = add_mass(to[bucket.index], share, float32);
        }
    }
}

const struct histogram_rule qobs_histogram_torch = {
    .bins = first_bins, .magnitude = never, .skip_zeros = never, .grow = unite, .move = rebin};

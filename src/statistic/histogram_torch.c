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
        for (size_t part = 0; part < PARTS && share > 0; part++) {
            find_bucket(&bucket, &edges, linspace_at(&starts, i * PARTS + part) + half);
            to[bucket.index] = add_mass(to[bucket.index], share, float32);
        }
    }
}

const struct histogram_rule qobs_histogram_torch = {
    .bins = first_bins, .magnitude = never, .skip_zeros = never, .grow = unite, .move = rebin};

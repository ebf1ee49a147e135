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

/* The parts of all old bins, in order: their middles. */
struct parts {
    struct linspace starts;
    float half;
    double rate; /* parts in a unit of length */
};

static inline float middle_of(const struct parts *p, size_t part)
{
    return linspace_at(&p->starts, part) + p->half;
}

/* How many of the parts from `first` to `end` go where the first one goes, with those below `upper`: at least one. Middles do not
 * fall, but perhaps halfway, where their formula changes. */
static inline size_t parts_below(const struct parts *p, size_t first, size_t end, float middle, float upper)
{
    const size_t most = end - first, halfway = p->starts.n / 2;
    if (first < halfway && halfway < end)
        return 1;
    const double guess = ((double)upper - (double)middle) * p->rate;
    size_t n = guess >= (double)most ? most : guess > 1 ? (size_t)guess : 1;
    while (n < most && middle_of(p, first + n) < upper)
        n++;
    while (n > 1 && !(middle_of(p, first + n - 1) < upper))
        n--;
    return n;
}

/* Adds `share` n times, rounding every sum. */
static inline double add_masses(double mass, double share, size_t n, bool float32)
{
    float sum = (float)mass;
    for (size_t i = 0; i < n; i++)
        sum += (float)share;
    if (sum < 0x1p24f)
        return (double)sum;
    for (size_t i = 0; i < n; i++)
        mass = add_mass(mass, share, float32);
    return mass;
}

static void rebin(const qobs_config *config, const struct bin_range *now, size_t bins, const double *mass,
                  const struct bin_range *next, size_t next_bins, double *to)
{
    const bool float32 = config->float32_counts;
    if (now->lo == now->hi) {
        move_point(now->lo, bins, mass, next, next_bins, to, float32);
        return;
    }
    const size_t all = bins * PARTS;
    const struct linspace edges = linspace_of(next->lo, next->hi, next_bins + 1);
    const struct parts parts = {.starts = linspace_of(now->lo, now->hi, all + 1),
                                .half = 0.5f * ((now->hi - now->lo) / (float)all),
                                .rate = (double)all / ((double)now->hi - (double)now->lo)};
    struct bucket bucket = {0, linspace_at(&edges, 0), linspace_at(&edges, 1)};
    for (size_t i = 0; i < bins; i++) {
        const double share = add_mass(mass[i] / PARTS, 0, float32);
        const size_t end = (i + 1) * PARTS;
        for (size_t part = i * PARTS, n; share > 0 && part < end; part += n) {
            const float middle = middle_of(&parts, part);
            find_bucket(&bucket, &edges, middle);
            const float upper = bucket.index + 2 < edges.n ? bucket.upper : INFINITY;
            n = parts_below(&parts, part, end, middle, upper);
            to[bucket.index] = add_masses(to[bucket.index], share, n, float32);
        }
    }
}

const struct histogram_rule qobs_histogram_torch = {
    .bins = first_bins, .magnitude = never, .skip_zeros = never, .grow = unite, .move = rebin};

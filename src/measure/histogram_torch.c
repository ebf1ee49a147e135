/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How torch.ao's HistogramObserver (2.5 and later) grows: its forward, _combine_histograms and _upscale_histogram. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "measure/histogram.h"

enum { PARTS = 16 };

static int unite(const struct histogram_params *params, const struct bin_range *now, size_t bins, const struct qobs_extrema *seen,
                 struct bin_range *next, size_t *next_bins, qobs_error *error)
{
    (void)params, (void)error;
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
    double rate;  /* parts in a unit of length */
    double error; /* how far from its place, in parts, rounding may put a middle */
};

static inline float middle_of(const struct parts *p, size_t part)
{
    return linspace_at(&p->starts, part) + p->half;
}

/* Can the first part of a bin be guessed from its edge? Neither edges nor middles may fall, which they could only halfway, where their
 * formula changes, and floats must not be much further apart than middles. */
static bool in_order(const struct linspace *edges, const struct parts *p)
{
    const size_t edge = edges->n / 2, part = p->starts.n / 2;
    return linspace_at(edges, edge - 1) <= linspace_at(edges, edge) && middle_of(p, part - 1) <= middle_of(p, part) &&
           p->starts.step >= FLT_MIN && p->error < 8;
}

/* The first of all parts whose middle is not below x: where rounding may have moved middles past x, they are looked at. */
static inline size_t first_part(const struct parts *p, float x)
{
    const size_t all = p->starts.n - 1;
    const double below = ((double)x - (double)p->starts.start) * p->rate + 0.5; /* middles, and a fraction */
    size_t part = below >= (double)all ? all : below > 0 ? (size_t)below : 0;
    const double fraction = below - (double)part;
    if (fraction > p->error && fraction < 1 - p->error)
        return part;
    while (part < all && middle_of(p, part) < x)
        part++;
    while (part > 0 && !(middle_of(p, part - 1) < x))
        part--;
    return part;
}

/* New bins that are summed side by side, as an addition waits for the one before, and how many old ones they may be made of. */
enum { TOGETHER = 4, MOST_OLD = 64 };

/* The parts of some new bins: from first[i] to first[i + 1]. Their sums, rounded to float with every part. Nothing is asked about as
 * many parts as all of them have; those that then have no more add zeros, as branches would not be foreseen. */
static inline bool sum_side_by_side(const double *mass, const size_t *first, float *sums)
{
    const size_t from = first[0] / PARTS, old = (first[TOGETHER] + PARTS - 1) / PARTS - from;
    size_t n[TOGETHER], at[TOGETHER], quant_min = SIZE_MAX, most = 0;
    float share[MOST_OLD + 1], sum[TOGETHER] = {0};
    if (old > MOST_OLD)
        return false;
    for (size_t i = 0; i < old; i++)
        share[i] = (float)(mass[from + i] / PARTS);
    share[MOST_OLD] = 0;
    for (size_t i = 0; i < TOGETHER; i++) {
        n[i] = first[i + 1] - first[i];
        at[i] = first[i] - from * PARTS;
        quant_min = n[i] < quant_min ? n[i] : quant_min;
        most = n[i] > most ? n[i] : most;
    }
    size_t part = 0;
    for (; part < quant_min; part++)
        for (size_t i = 0; i < TOGETHER; i++)
            sum[i] += share[(at[i] + part) / PARTS];
    for (; part < most; part++)
        for (size_t i = 0; i < TOGETHER; i++)
            sum[i] += share[part < n[i] ? (at[i] + part) / PARTS : MOST_OLD];
    memcpy(sums, sum, sizeof sum);
    return true;
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

static double sum_parts(const double *mass, size_t first, size_t end, bool float32)
{
    double sum = 0;
    for (size_t part = first, n; part < end; part += n) {
        const size_t left = PARTS - part % PARTS;
        n = left < end - part ? left : end - part;
        sum = add_masses(sum, add_mass(mass[part / PARTS] / PARTS, 0, float32), n, float32);
    }
    return sum;
}

/* Part by part, whatever the order. */
static void rebin_slowly(const struct linspace *edges, const struct parts *parts, const double *mass, double *to, bool float32)
{
    struct bucket bucket = {0, linspace_at(edges, 0), linspace_at(edges, 1)};
    for (size_t part = 0; part + 1 < parts->starts.n; part++) {
        const double share = add_mass(mass[part / PARTS] / PARTS, 0, float32);
        if (!(share > 0))
            continue;
        find_bucket(&bucket, edges, middle_of(parts, part));
        to[bucket.index] = add_mass(to[bucket.index], share, float32);
    }
}

static void rebin(const struct histogram_params *params, const struct bin_range *now, size_t bins, const double *mass,
                  const struct bin_range *next, size_t next_bins, double *to)
{
    const bool float32 = params->float32_counts;
    if (now->lo == now->hi) {
        move_point(now->lo, bins, mass, next, next_bins, to, float32);
        return;
    }
    const size_t all = bins * PARTS;
    const double rate = (double)all / ((double)now->hi - (double)now->lo), largest = fmax(fabs((double)now->lo), fabs((double)now->hi));
    const struct linspace edges = linspace_of(next->lo, next->hi, next_bins + 1);
    const struct parts parts = {.starts = linspace_of(now->lo, now->hi, all + 1),
                                .half = 0.5f * ((now->hi - now->lo) / (float)all),
                                .rate = rate,
                                .error = largest * 0x1p-21 * rate + 0x1p-20};
    if (!in_order(&edges, &parts)) {
        rebin_slowly(&edges, &parts, mass, to, float32);
        return;
    }
    size_t first[TOGETHER + 1] = {0};
    for (size_t bin = 0; bin < next_bins; bin += TOGETHER) {
        for (size_t i = 1; i <= TOGETHER; i++)
            first[i] = bin + i < next_bins ? first_part(&parts, linspace_at(&edges, bin + i)) : all;
        float sums[TOGETHER];
        const bool summed = sum_side_by_side(mass, first, sums);
        for (size_t i = 0; i < TOGETHER && bin + i < next_bins; i++)
            to[bin + i] = summed && sums[i] < 0x1p24f ? (double)sums[i] : sum_parts(mass, first[i], first[i + 1], float32);
        first[0] = first[TOGETHER];
    }
}

const struct histogram_ops qobs_histogram_torch = {.grow = unite, .same_bins = true, .move = rebin};

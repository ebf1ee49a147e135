/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The ranges that ONNX Runtime's HistogramCollector finds. */
#include <math.h>

#include "histogram/from_histogram.h"

/* ONNX Runtime's HistogramCollector.compute_percentile: left edges of the first bins at which the cumulative share, in
 * double, reaches a share; the last edge if none does. */

/* numpy.searchsorted of the cumulative shares. They are NaN without elements; numpy sorts NaN last. */
static size_t first_bin(const struct histogram *h, double total, double share)
{
    double cumulative = 0;
    for (size_t i = 0; i < h->bins; i++) {
        cumulative += h->mass[i] / total;
        if (!(cumulative < share))
            return i;
    }
    return h->bins;
}

static int find_percentile(const struct range_request *r, float *min, float *max, qobs_error *error)
{
    const struct histogram *h = r->histogram;
    const double percentile = r->rule->params.bins.percentile, cut = (100 - percentile) / 200;
    double total = 0;
    (void)error;
    for (size_t i = 0; i < h->bins; i++)
        total += h->mass[i];
    if (r->rule->params.bins.symmetric) {
        *max = (float)h->edges[first_bin(h, total, percentile / 100)];
        *min = -*max;
    } else {
        *max = (float)h->edges[first_bin(h, total, 1 - cut)];
        *min = (float)h->edges[first_bin(h, total, cut)];
    }
    return QOBS_OK;
}

const struct range_ops qobs_range_ort_percentile = {
    .reads = READS_PERCENTILE,
    .histogram = &(const struct histogram_range){.find = find_percentile, .found = FOUND_WITHIN_DATA}};

/* ONNX Runtime's HistogramCollector.compute_distribution: mean and standard deviation of the centres of bins, or of
 * their cube roots. Centres are float, sums double, results float. */

static float centre(const struct histogram *h, size_t i, bool roots)
{
    const float value = ((float)h->edges[i] + (float)h->edges[i + 1]) * 0.5f;
    return roots ? (float)cbrt((double)value) : value;
}

/* min and max are mean and standard deviation. */
static int find_distribution(const struct range_request *r, float *min, float *max, qobs_error *error)
{
    const struct histogram *h = r->histogram;
    double total = 0, sum = 0, squares = 0;
    (void)error;
    for (size_t i = 0; i < h->bins; i++) {
        const float value = centre(h, i, r->rule->params.bins.roots), square = value * value;
        total += h->mass[i];
        sum += h->mass[i] * (double)value;
        squares += h->mass[i] * (double)square;
    }
    const double mean = sum / total;
    *min = (float)mean;
    *max = (float)sqrt(squares / total - mean * mean);
    return QOBS_OK;
}

const struct range_ops qobs_range_ort_distribution = {
    .histogram = &(const struct histogram_range){.find = find_distribution, .found = FOUND_MOMENTS}};

/* ONNX Runtime's HistogramCollector.get_entropy_threshold: of the ranges around the middle bin, the one whose histogram
 * with its outliers differs least, by Kullback-Leibler divergence, from its quantized form. Upstream computes the
 * divergence in float; here it is double. */

/* smooth_distribution: an empty bin gets this, and the others give it. */
#define SMOOTHING 0.0001

struct distribution {
    double sum;   /* of the counts */
    size_t zeros; /* empty bins */
    double less;  /* taken from each bin that is not empty */
};

/* Bins first to end of the histogram, and that range with outliers and quantized. */
struct candidate {
    const struct histogram *h;
    size_t first, end, levels, merged;
    double left, right; /* outliers */
    struct distribution p, q;
};

static double reference(const struct candidate *c, size_t i)
{
    return c->h->mass[i] + (i == c->first ? c->left : 0) + (i + 1 == c->end ? c->right : 0);
}

/* The count of each bin of a quantized bin: its sum, spread over its bins as a whole number. Upstream spreads over bins
 * that are not empty with their outliers, and fills all of them. */
static double quantized(const struct candidate *c, size_t level)
{
    const size_t from = c->first + level * c->merged, to = from + c->merged;
    double sum = 0;
    size_t used = 0;
    for (size_t i = from; i < to; i++) {
        sum += c->h->mass[i];
        used += reference(c, i) != 0;
    }
    for (size_t i = to; level + 1 == c->levels && i < c->end; i++)
        sum += c->h->mass[i];
    return used > 0 ? trunc(sum / (double)used) : 0;
}

static void add(struct distribution *d, double count, size_t bins)
{
    d->sum += count * (double)bins;
    d->zeros += count == 0 ? bins : 0;
}

/* False if upstream's assertion fails: too few bins are not empty. */
static bool smooth(struct distribution *d, size_t bins)
{
    d->less = SMOOTHING * (double)d->zeros / (double)(bins - d->zeros);
    return d->less < 1;
}

static double smoothed(const struct distribution *d, double count) { return count == 0 ? SMOOTHING : count - d->less; }

static double smoothed_sum(const struct distribution *d, size_t bins)
{
    return d->sum + (double)d->zeros * SMOOTHING - (double)(bins - d->zeros) * d->less;
}

/* Infinity if p or q is empty. *defined is false if upstream raises. */
static double divergence(struct candidate *c, bool *defined)
{
    const size_t bins = c->end - c->first;
    c->merged = bins / c->levels;
    for (size_t i = c->first; i < c->end; i++)
        add(&c->p, reference(c, i), 1);
    for (size_t level = 0; level < c->levels && c->merged > 0; level++)
        add(&c->q, quantized(c, level), c->merged);
    add(&c->q, 0, bins - c->levels * c->merged);
    const bool empty = c->p.zeros == bins || c->q.zeros == bins;
    if ((c->p.zeros < bins && !smooth(&c->p, bins)) || (c->q.zeros < bins && !smooth(&c->q, bins)))
        *defined = false;
    if (empty || !*defined)
        return (double)INFINITY;
    const double p_sum = smoothed_sum(&c->p, bins), q_sum = smoothed_sum(&c->q, bins);
    double sum = 0, q = 0;
    for (size_t i = 0; i < bins; i++) {
        if (c->merged > 0 && i % c->merged == 0)
            q = i < c->levels * c->merged ? quantized(c, i / c->merged) : 0;
        const double share = smoothed(&c->p, reference(c, c->first + i)) / p_sum;
        sum += share * log(share / (smoothed(&c->q, i < c->levels * c->merged ? q : 0) / q_sum));
    }
    return sum;
}

/* The cost grows with the square of the bins. */
enum { MOST_BINS = 8192 };

static int find_entropy(const struct range_request *r, float *min, float *max, qobs_error *error)
{
    const struct histogram *h = r->histogram;
    const size_t middle = h->bins / 2, levels = r->rule->params.bins.levels, half = levels / 2;
    double best = (double)NAN, left = 0, right = 0;
    bool defined = true;
    if (middle < half)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "num_quantized_bins: is %zu, above the %zu bins of the histogram",
                         levels, h->bins);
    if (h->bins > MOST_BINS)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT,
                         "num_bins: the histogram has grown to %zu bins, the search for a range takes at most %d",
                         h->bins, MOST_BINS);
    for (size_t i = half; i <= middle && defined; i++) {
        const size_t first = middle - i, end = middle + i + 1 < h->bins ? middle + i + 1 : h->bins;
        left = right = 0;
        for (size_t k = 0; k < first; k++)
            left += h->mass[k];
        for (size_t k = end; k < h->bins; k++)
            right += h->mass[k];
        struct candidate c = {.h = h, .first = first, .end = end, .levels = levels, .left = left, .right = right};
        const double d = divergence(&c, &defined);
        if (i == half || d < best) {
            best = d;
            *min = (float)h->edges[first];
            *max = (float)h->edges[end];
        }
    }
    return defined ? QOBS_OK
                   : qobs_fail(error, QOBS_ERROR_NO_RESULT,
                               "num_bins: too few of %zu bins hold elements for a divergence", h->bins);
}

const struct range_ops qobs_range_ort_entropy = {
    .reads = READS_QUANTIZED_BINS,
    .histogram = &(const struct histogram_range){.find = find_entropy, .found = FOUND_WITHIN_DATA}};

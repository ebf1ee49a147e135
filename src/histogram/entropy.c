/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include <math.h>

#include "histogram/from_histogram.h"

/* Empty bins add nothing. They are left out because most bins of a histogram that has grown to an outlier are empty. */
struct entropy qobs_entropy_prepare(const struct histogram_view *h, size_t levels, double *workspace)
{
    double *const counts = workspace, *const logs = counts + h->bins, *const before = logs + h->bins;
    size_t *const index = (size_t *)(void *)(before + h->bins + 1), used = 0;
    before[0] = 0;
    for (size_t i = 0; i < h->bins; i++) {
        const double count = h->counts[i == 0 ? 1 : i];
        if (!(count > 0))
            continue;
        counts[used] = count;
        logs[used] = log(count);
        before[used + 1] = before[used] + count;
        index[used++] = i;
    }
    return (struct entropy){.bins = h->bins,
                            .levels = levels,
                            .used = used,
                            .index = index,
                            .counts = counts,
                            .log = logs,
                            .before = before};
}

/* The number of bins below `bin` that are not empty. */
static size_t used_below(const struct entropy *e, size_t bin)
{
    size_t from = 0, to = e->used;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (e->index[middle] < bin)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* If all bins of a level have the same count, every term is exactly 0. */
double qobs_entropy_divergence(const struct entropy *e, size_t inside)
{
    const size_t used = used_below(e, inside);
    const double all = e->before[e->used], below = e->before[used], outside = all - below;
    if (!(below > 0))
        return NAN;
    if (outside > 0 && e->index[used - 1] != inside - 1)
        return INFINITY;
    double sum = 0;
    for (size_t from = 0, to = 0; from < used; from = to) {
        /* Bin k has level floor(k * levels / inside). */
        const size_t level = (size_t)((uint64_t)e->index[from] * e->levels / inside);
        const size_t end = (size_t)(((uint64_t)(level + 1) * inside + e->levels - 1) / e->levels);
        while (to < used && e->index[to] < end)
            to++;
        const double elements = e->before[to] - e->before[from];
        if (!(elements > 0)) /* lost to rounding of `before` */
            continue;
        const double mean = log(elements / (double)(to - from));
        for (size_t i = from; i < to; i++)
            sum += e->counts[i] * (e->log[i] - mean);
        if (to == used && outside > 0) { /* the last bin also has the elements outside */
            const double last = e->counts[used - 1];
            sum += (last + outside) * (log(last + outside) - mean) - last * (e->log[used - 1] - mean);
        }
    }
    return sum / all + log(below / all);
}

/* The number of bins, of first, first + stride, ... up to all, with the smallest divergence; the last of several. NaN
 * counts as the smallest, as in numpy.argmin. amax is the edge of that index. */
static size_t find(const struct entropy *e, size_t first, size_t stride)
{
    size_t best = first;
    double min = INFINITY;
    for (size_t inside = first; inside <= e->bins; inside += stride) {
        const double divergence = qobs_entropy_divergence(e, inside);
        if (divergence <= min || isnan(divergence)) {
            best = inside;
            min = divergence;
        }
    }
    return best;
}

int qobs_amax_by_entropy(const struct bins_params *params, const struct formula *formula,
                         const struct histogram_view *h, double *workspace, struct found_amax *found, qobs_error *error)
{
    const int64_t stride = params->stride, first = params->start_bin;
    (void)formula;
    if (stride < 1)
        return qobs_invalid(error, "stride: is %lld, must be above 0", (long long)stride);
    if (params->levels == 0)
        return qobs_invalid(error, "num_bits: is [4, 3], entropy takes integers");
    if (h->bins < 2)
        return qobs_invalid(error, "histogram: has 1 bin, entropy needs 2");
    if (first < 1 || (uint64_t)first > h->bins)
        return qobs_invalid(error, "start_bin: is %lld, allowed are 1 to the number of bins, %zu", (long long)first,
                            h->bins);
    const struct entropy e = qobs_entropy_prepare(h, params->levels, workspace);
    const size_t best = find(&e, (size_t)first, (uint64_t)stride > h->bins ? h->bins : (size_t)stride);
    *found = (struct found_amax){.amax = h->edges[best], .score = qobs_entropy_divergence(&e, best)};
    return QOBS_OK;
}

/* ---- Percentile -------------------------------------------------------------------------------------------------- */

static double total(const struct histogram_view *h)
{
    double sum = 0;
    for (size_t i = 0; i < h->bins; i++)
        sum += h->counts[i];
    return sum;
}

float qobs_percentile_modelopt(const struct histogram_view *h, double percent)
{
    const double all = total(h), share = percent / 100;
    double cumulative = 0;
    for (size_t i = 0; i < h->bins; i++) {
        cumulative += h->counts[i] / all;
        if (cumulative >= share)
            return h->edges[i];
    }
    return h->edges[h->bins];
}

/* Cumulative shares as torch computes them: quotients in float, summed in double, rounded to float at every bin. */
struct cumulative_share {
    const struct histogram_view *histogram;
    float all;
    double sum;
};

static float next(struct cumulative_share *s, size_t bin)
{
    s->sum += (double)((float)s->histogram->counts[bin] / s->all);
    return (float)s->sum;
}

/* The first bin whose cumulative share reaches `share`, or exceeds it; the last one if none does. */
static size_t first_bin(const struct histogram_view *h, float share, bool exceeds)
{
    struct cumulative_share s = {h, (float)total(h), 0};
    for (size_t i = 0; i < h->bins; i++) {
        const float cumulative = next(&s, i);
        if (exceeds ? cumulative > share : cumulative >= share)
            return i;
    }
    return h->bins - 1;
}

/* The cumulative share of all bins; rounding may make it differ from 1. */
static float last_share(const struct histogram_view *h)
{
    struct cumulative_share s = {h, (float)total(h), 0};
    float last = 0;
    for (size_t i = 0; i < h->bins; i++)
        last = next(&s, i);
    return last;
}

/* The range from 0: without counts up to 0, if symmetric up to the percentile. False: the range is neither. */
static bool is_from_0(const struct histogram_view *h, bool symmetric, double percent, float *min, float *max)
{
    const bool counts = total(h) > 0;
    const double share = percent / 100, last = symmetric && counts ? (double)last_share(h) : 0;
    *min = *max = 0;
    if (symmetric && counts)
        *max = h->edges[first_bin(h, (float)(share < last ? share : last), false)];
    return symmetric || !counts;
}

void qobs_percentile_quark(const struct histogram_view *h, bool symmetric, double percent, float *min, float *max)
{
    if (is_from_0(h, symmetric, percent, min, max))
        return;
    /* Upstream's maximum is the first bin that reaches the lower share. Its minimum is the first bin whose share is not
     * above the upper one: always bin 0. */
    const double outside = (100 - percent) / 200;
    *max = h->edges[first_bin(h, (float)outside, false)];
    *min = h->edges[0];
}

void qobs_percentile(const struct histogram_view *h, bool symmetric, double percent, float *min, float *max)
{
    if (is_from_0(h, symmetric, percent, min, max))
        return;
    const double outside = (100 - percent) / 200, inside = 1 - outside, last = (double)last_share(h);
    const size_t low = first_bin(h, (float)outside, true);
    const size_t high = first_bin(h, (float)(inside < last ? inside : last), false);
    *min = h->edges[low];
    *max = h->edges[high < low ? low + 1 : high + 1];
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "histogram/from_histogram.h"

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

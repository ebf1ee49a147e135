/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The thresholds with which Quark's TQTObserver starts training: |mean| and three standard deviations, or the threshold
 * whose quantized cumulative histogram diverges least (Settle et al., arXiv 1805.07941). numpy computes in float; here
 * sums are double. */
#include <math.h>

#include "histogram/collect.h"
#include "histogram/histogram.h"
#include "plan/block_reader.h"

enum { MAX_BINS = 1 << 16 };

/* The sums of one pass over the elements; those that are not finite are left out. */
struct moments {
    double count, sum, squares; /* squares: of the distance from `mean` */
    float min, max;             /* of magnitudes */
};

static struct moments moments_of(const struct batch *batch, double mean)
{
    struct moments m = {.min = INFINITY, .max = 0};
    struct element_reader e;
    qobs_element_reader_open(&e, batch->plan, batch->data);
    while (qobs_element_reader_next(&e)) {
        for (size_t i = 0; i < e.n; i++) {
            const float v = e.x[0][i], magnitude = fabsf(v);
            if (!isfinite(v))
                continue;
            m.count++;
            m.sum += (double)v;
            m.squares += ((double)v - mean) * ((double)v - mean);
            m.min = magnitude < m.min ? magnitude : m.min;
            m.max = magnitude > m.max ? magnitude : m.max;
        }
    }
    return m;
}

static float by_deviation(const struct batch *batch)
{
    const struct moments first = moments_of(batch, 0), second = moments_of(batch, first.sum / first.count);
    const float mean = (float)(first.sum / first.count + 1e-6);
    return fabsf(mean) + 3 * (float)sqrt(second.squares / second.count);
}

/* ---- Divergence -------------------------------------------------------------------------------------------------- */

/* numpy's histogram, and arrays with one number for each bin. */
struct cumulative {
    struct histogram h;
    float *share; /* of the elements, up to each bin */
    double *few;  /* of the quantized numbers */
};

static void count(const struct batch *batch, struct cumulative *c)
{
    struct element_reader e;
    qobs_element_reader_open(&e, batch->plan, batch->data);
    while (qobs_element_reader_next(&e))
        for (size_t i = 0; i < e.n; i++)
            if (isfinite(e.x[0][i]))
                c->h.mass[numpy_linspace_bin(&c->h, fabsf(e.x[0][i]))]++;
    double total = 0;
    float sum = 0;
    for (size_t k = 0; k < c->h.bins; k++)
        total += c->h.mass[k];
    for (size_t k = 0; k < c->h.bins; k++) {
        sum += (float)(c->h.mass[k] / total);
        c->share[k] = sum;
    }
}

/* numpy.interp at `at` of n numbers at equal distances between 0 and 1. */
static double interpolate(const double *y, size_t n, double at)
{
    const double step = 1 / (double)(n - 1);
    size_t k = (size_t)(at / step);
    while (k > 0 && (double)k * step > at)
        k--;
    while (k + 1 < n && (k + 2 == n ? 1 : (double)(k + 1) * step) <= at)
        k++;
    if (k + 1 >= n)
        return y[n - 1];
    const double x0 = (double)k * step, x1 = k + 2 == n ? 1 : (double)(k + 1) * step;
    return (y[k + 1] - y[k]) / (x1 - x0) * (at - x0) + y[k];
}

static double place(size_t i, size_t n) { return i + 1 == n ? 1 : (double)i * (1 / (double)(n - 1)); }

/* The divergence if everything from bin `limit` - 1 on is clipped and the rest has `numbers` numbers. */
static float divergence(const struct cumulative *c, size_t limit, size_t numbers)
{
    for (size_t k = 0; k < limit; k++)
        c->h.mass[k] = k + 1 < limit ? (double)c->share[k] : 1;
    for (size_t k = 0; k < numbers; k++)
        c->few[k] = interpolate(c->h.mass, limit, place(k, numbers));
    double sum = 0;
    for (size_t k = 0; k < c->h.bins; k++) {
        const float p = c->share[k];
        const float q = k < limit ? (float)interpolate(c->few, numbers, place(k, limit)) : 1;
        if (p != 0)
            sum += (double)((p - q) * (float)log2((double)(p / q)));
    }
    return (float)sum;
}

static float lowest_divergence(const struct cumulative *c, size_t numbers)
{
    float best = NAN;
    size_t at = 0;
    for (size_t i = numbers + 1; i <= c->h.bins; i++) {
        const float d = divergence(c, i, numbers);
        if (at == 0 || d < best || (isnan(d) && !isnan(best))) {
            best = d;
            at = i;
        }
        if (isnan(best)) /* counts as the smallest in numpy */
            break;
    }
    const float width = (float)c->h.edges[1] - (float)c->h.edges[0];
    return (float)((double)at + 0.5) * width;
}

static int by_divergence(const struct batch *batch, size_t numbers, float *threshold, qobs_error *error)
{
    const struct moments m = moments_of(batch, 0);
    const double width = (double)(m.max - m.min) / sqrt(m.count);
    const double bins = width > 0 ? ceil((double)m.max / width) : 1;
    if (!(bins <= MAX_BINS))
        return qobs_invalid(error, "value: takes %g bins, allowed are %d", bins, MAX_BINS);
    *threshold = m.max > 0 ? m.max : 0.5f;
    if ((double)(numbers + 1) > bins)
        return QOBS_OK;
    struct cumulative c = {.h.bins = (size_t)bins};
    const size_t doubles = 2 * c.h.bins + 1 + numbers, size = doubles * sizeof(double) + c.h.bins * sizeof *c.share;
    c.h.mass = qobs_allocate(batch->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(c.h.mass, "observer", size, error));
    c.h.edges = c.h.mass + c.h.bins;
    c.few = c.h.edges + c.h.bins + 1;
    c.share = (float *)(void *)(c.few + numbers);
    memset(c.h.mass, 0, c.h.bins * sizeof *c.h.mass);
    qobs_numpy_edges(&c.h, 0, m.max);
    count(batch, &c);
    *threshold = lowest_divergence(&c, numbers);
    qobs_release(batch->runtime, c.h.mass, size);
    return QOBS_OK;
}

/* The range is (-threshold, threshold) in F32. */
static int measure(const struct reduction *r, const struct batch *b, struct histogram *histogram, void *min, void *max,
                   struct nonfinite_count *nonfinite, qobs_error *error)
{
    double native[2]; /* one number of any dtype */
    float threshold = 0;
    (void)histogram;
    RETURN_IF_FAILED(qobs_reduce_minmax(b->runtime, b->kernels, b->plan, b->data, r->nonfinite, &native[0], &native[1],
                                        nonfinite, error));
    if (r->numbers > 0)
        RETURN_IF_FAILED(by_divergence(b, r->numbers, &threshold, error));
    else
        threshold = by_deviation(b);
    *(float *)min = -threshold;
    *(float *)max = threshold;
    return QOBS_OK;
}

const struct reduction_ops qobs_reduction_tqt = {.measure = measure};

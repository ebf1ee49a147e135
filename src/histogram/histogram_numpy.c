/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer's HistogramCalibrator with torch_hist=false, which counts by numpy.histogram: a bin holds what lies
 * between its edges, the left one included, the last bin both. The range begins at the smallest magnitude of the first
 * batch; smaller ones that come later are not counted. Edges are stored, because later ones do not follow the rule of
 * the first. The calling thread counts, one element at a time. */
#include <math.h>

#include "histogram/collect.h"
#include "histogram/histogram.h"
#include "plan/block_reader.h"

enum { MAX_BINS = 1 << 20 };

void qobs_numpy_edges(struct histogram *h, float first, float last)
{
    const float from = first == last ? first - 0.5f : first, to = first == last ? last + 0.5f : last,
                step = (to - from) / (float)h->bins;
    for (size_t i = 0; i < h->bins; i++)
        h->edges[i] = (double)((step == 0 ? (float)i / (float)h->bins * (to - from) : (float)i * step) + from);
    h->edges[h->bins] = (double)to;
}

/* Appends the edges of numpy.arange(last + width, max + width, width), whose elements are doubles. Its limits are
 * floats the first time, and doubles from then on. */
static int extend(const struct histogram_params *params, const struct runtime *runtime, struct histogram *h, double max,
                  qobs_error *error)
{
    const bool wide = h->bins != params->bins;
    const double last = h->edges[h->bins],
                 width = wide ? h->edges[1] - h->edges[0] : (double)((float)h->edges[1] - (float)h->edges[0]);
    const double start = wide ? last + width : (double)((float)last + (float)width);
    const double stop = wide ? max + width : (double)((float)max + (float)width);
    const double steps = wide ? (stop - start) / width : (double)(((float)stop - (float)start) / (float)width);
    const double second = wide ? start + width : (double)((float)start + (float)width);
    const double bins = (double)h->bins + ceil(steps);
    struct histogram extended;
    if (!(bins <= MAX_BINS))
        return qobs_invalid(
            error, "value: reaches %g, which takes %g bins as wide as those of the first batch, %g; allowed are %d",
            max, bins, width, MAX_BINS);
    RETURN_IF_FAILED(qobs_histogram_allocate(runtime, &qobs_histogram_numpy, &extended, 1, (size_t)bins, error));
    memcpy(extended.mass, h->mass, h->bins * sizeof *h->mass);
    memcpy(extended.edges, h->edges, (h->bins + 1) * sizeof *h->edges);
    for (size_t i = h->bins + 1; i <= extended.bins; i++)
        extended.edges[i] = start + (double)(i - h->bins - 1) * (second - start);
    qobs_histogram_release(runtime, h);
    *h = extended;
    return QOBS_OK;
}

static void set_range(struct histogram *h)
{
    h->range[0] = (struct bin_range){.lo = (float)h->edges[0], .hi = (float)h->edges[h->bins]};
}

static void count(const struct histogram_params *params, const struct batch *batch, struct histogram *h)
{
    struct element_reader e;
    const double per_unit = bins_per_unit(h);
    qobs_element_reader_open(&e, batch->plan, batch->data);
    while (qobs_element_reader_next(&e)) {
        for (size_t i = 0; i < e.n; i++) {
            const double magnitude = (double)fabsf(e.x[0][i]);
            const bool counted =
                magnitude >= h->edges[0] && magnitude <= h->edges[h->bins] && !(params->skip_zeros && magnitude == 0);
            if (counted) {
                double *bin = &h->mass[numpy_bin(h, per_unit, magnitude)];
                *bin = add_mass(*bin, 1, params->float32_counts);
            }
        }
    }
}

static int accept(const struct histogram_rule *rule, const struct batch *batch, struct histogram *h, float *min,
                  float *max, struct nonfinite_count *nonfinite, qobs_error *error)
{
    const struct histogram_params *params = &rule->params;
    struct extrema extrema;
    const bool first = h->bins == 0;
    RETURN_IF_FAILED(qobs_scan_extrema(batch, params->magnitude, params->skip_zeros, &extrema, error));
    RETURN_IF_FAILED(qobs_check_extrema(batch, params->nonfinite, &extrema, nonfinite, error));
    if (first)
        RETURN_IF_FAILED(qobs_histogram_allocate(batch->runtime, rule->ops, h, 1, params->bins, error));
    *min = extrema.min;
    *max = extrema.max;
    if (extrema.min > extrema.max)
        return QOBS_OK;
    if (first)
        qobs_numpy_edges(h, extrema.min, extrema.max);
    else if ((double)extrema.max > h->edges[h->bins])
        RETURN_IF_FAILED(extend(params, batch->runtime, h, (double)extrema.max, error));
    set_range(h);
    count(params, batch, h);
    return QOBS_OK;
}

static int merge(const struct histogram_rule *rule, const struct runtime *runtime, struct histogram *h,
                 const struct histogram *from, qobs_error *error)
{
    const double last = from->edges[from->bins];
    RETURN_IF_FAILED(last > h->edges[h->bins] ? extend(&rule->params, runtime, h, last, error) : QOBS_OK);
    set_range(h);
    for (size_t i = 0; i < from->bins; i++) {
        const double centre = from->edges[i] + (from->edges[i + 1] - from->edges[i]) / 2;
        const size_t k = centre < h->edges[0]         ? 0
                         : centre > h->edges[h->bins] ? h->bins - 1
                                                      : numpy_bin(h, bins_per_unit(h), centre);
        h->mass[k] = add_mass(h->mass[k], from->mass[i], rule->params.float32_counts);
    }
    return QOBS_OK;
}

const struct histogram_ops qobs_histogram_numpy = {.accept = accept, .merge = merge, .stores_edges = true};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms that grow by whole bins of the same width: Quark's (PerTensorHistogramObserver.forward and its subclasses)
 * and Model-Optimizer's (HistogramCalibrator.collect, torch form). The edges of the first batch come from a linspace
 * (step 0), those of a histogram that has grown from an arange: edge i is lo + step * i, rounded once. */
#include <math.h>

#include "base/error.h"
#include "histogram/histogram.h"

/* A batch far outside the range would need any number of bins. */
enum { MAX_GROWN = 1 << 20 };

/* How many elements torch.arange(start, end, step) has. */
static double arange_size(double start, double end, double step) { return ceil((end - start) / step); }

static int too_many(double bins, float lo, float hi, float width, qobs_error *error)
{
    return qobs_invalid(
        error,
        "value: reaches from %g to %g, which are %.9g bins as wide as those of the first batch, %g; allowed are %d",
        (double)lo, (double)hi, bins, (double)width, MAX_GROWN);
}

/* The bins from lo on that `edges` edges make, or more if those would not reach `max`. */
static int grow_to(float lo, double edges, float width, float max, struct bin_range *next, size_t *bins,
                   qobs_error *error)
{
    if (!(edges <= MAX_GROWN))
        return too_many(edges, lo, max, width, error);
    *next = (struct bin_range){.lo = lo, .step = width};
    *bins = edges > 2 ? (size_t)edges - 1 : 1;
    while (qobs_bin_edge(next, *bins, *bins) < max && *bins < MAX_GROWN)
        ++*bins;
    next->hi = qobs_bin_edge(next, *bins, *bins);
    return next->hi < max ? too_many(edges, lo, max, width, error) : QOBS_OK;
}

static float width_of(const struct bin_range *now, size_t bins)
{
    return qobs_bin_edge(now, bins, 1) - qobs_bin_edge(now, bins, 0);
}

/* Upstream adds old counts to the first bins, even if bins have been added below them. With shifted_counts they move
 * with their bins. */
static void append(const struct histogram_params *params, const struct bin_range *now, size_t bins, const double *mass,
                   const struct bin_range *next, size_t next_bins, double *to)
{
    const bool shifted = params->shifted_counts && next->step > 0 && now->lo > next->lo;
    const size_t shift = shifted ? (size_t)rint(((double)now->lo - (double)next->lo) / (double)next->step) : 0;
    for (size_t i = 0; i < bins; i++) {
        double *bin = &to[i + shift < next_bins ? i + shift : next_bins - 1];
        *bin = add_mass(*bin, mass[i], params->float32_counts);
    }
}

/* ---- Quark ------------------------------------------------------------------------------------------------------- */

/* A histogram of magnitudes begins at 0. A range of one point, or of none, is widened until its bins differ in f32. */
static struct extrema quark_required_range(const struct histogram_params *params, size_t bins,
                                           const struct extrema *extrema)
{
    struct extrema required = *extrema;
    const bool nothing = extrema->min > extrema->max;
    if (nothing || params->magnitude)
        required.min = 0;
    if (nothing)
        required.max = 0;
    if (required.min == required.max) {
        const float size = fabsf(required.min) > 1 ? fabsf(required.min) : 1;
        required.max = required.min + size * (float)bins * 0x1p-23f;
    }
    return required;
}

static int quark_grow(const struct histogram_params *params, const struct bin_range *now, size_t bins,
                      const struct extrema *extrema, struct bin_range *next, size_t *next_bins, qobs_error *error)
{
    int status = QOBS_OK;
    (void)params;
    if (bin_range_is_empty(now)) {
        *next = (struct bin_range){.lo = extrema->min, .hi = extrema->max};
        *next_bins = bins;
        return isfinite(extrema->max - extrema->min)
                   ? QOBS_OK
                   : qobs_invalid(error, "value: its range from %g to %g does not fit F32", (double)extrema->min,
                                  (double)extrema->max);
    }
    *next = *now;
    *next_bins = bins;
    if (extrema->min < next->lo) {
        const float width = width_of(next, *next_bins), from = extrema->min - width;
        status = grow_to(from, arange_size((double)from, (double)next->hi, (double)width), width, extrema->min, next,
                         next_bins, error);
    }
    if (status == QOBS_OK && extrema->max > next->hi) {
        const float width = width_of(next, *next_bins), lo = next->lo;
        status = grow_to(lo, arange_size((double)lo, (double)(extrema->max + width), (double)width), width,
                         extrema->max, next, next_bins, error);
    }
    return status;
}

const struct histogram_ops qobs_histogram_quark = {.accept = qobs_histogram_accept,
                                                   .merge = qobs_histogram_merge,
                                                   .required_range = quark_required_range,
                                                   .grow = quark_grow,
                                                   .move = append,
                                                   .rebin = qobs_rebin};

/* ---- Model-Optimizer --------------------------------------------------------------------------------------------- */

static struct extrema modelopt_required_range(const struct histogram_params *params, size_t bins,
                                              const struct extrema *extrema)
{
    (void)params, (void)bins;
    struct extrema required = *extrema;
    required.min = extrema->min > extrema->max ? extrema->min : 0;
    return required;
}

static int modelopt_grow(const struct histogram_params *params, const struct bin_range *now, size_t bins,
                         const struct extrema *extrema, struct bin_range *next, size_t *next_bins, qobs_error *error)
{
    (void)params;
    *next_bins = bins;
    if (bin_range_is_empty(now)) {
        *next = (struct bin_range){.lo = 0, .hi = extrema->max};
        return QOBS_OK;
    }
    const float width = width_of(now, bins);
    if (!(width > 0))
        return qobs_invalid(error, "value: the first batch was all 0, bins of no width cannot grow to %g",
                            (double)extrema->max);
    return grow_to(0, arange_size(0, (double)(extrema->max + width), (double)width), width, extrema->max, next,
                   next_bins, error);
}

const struct histogram_ops qobs_histogram_modelopt = {.accept = qobs_histogram_accept,
                                                      .merge = qobs_histogram_merge,
                                                      .required_range = modelopt_required_range,
                                                      .grow = modelopt_grow,
                                                      .move = append,
                                                      .rebin = qobs_rebin};

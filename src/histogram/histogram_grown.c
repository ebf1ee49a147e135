/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms that grow by whole bins of the same width: Quark's (PerTensorHistogramObserver.forward and its subclasses)
 * and Model-Optimizer's (HistogramCalibrator.collect, torch form). The edges of the first batch come from a linspace
 * (step 0), those of a histogram that has grown from an arange: edge i is lo + step * i, rounded once. */
#include <math.h>

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

/* The bin of another range for edge i of `now`, as elements are counted. An edge outside is of the bin at that end:
 * saved states may have any range. */
static size_t bin_of_edge(const struct bin_range *now, size_t bins, size_t i, const struct bin_range *next,
                          size_t next_bins)
{
    const float distance = qobs_bin_edge(now, bins, i) - next->lo;
    const float bin = distance * (float)next_bins / (next->hi - next->lo);
    return !(bin > 0) ? 0 : bin < (float)next_bins ? (size_t)bin : next_bins - 1;
}

/* Upstream adds old counts to the first bins, even if bins have been added below them. With shifted_counts they move
 * with their bins. Counts of a range that has been replaced (step 0) move to the bins that they lie in. */
static void append(const struct histogram_params *params, const struct bin_range *now, size_t bins, const double *mass,
                   const struct bin_range *next, size_t next_bins, double *to)
{
    const bool shifted = params->shifted_counts && next->step > 0 && now->lo > next->lo;
    const size_t shift = shifted ? (size_t)rint(((double)now->lo - (double)next->lo) / (double)next->step) : 0;
    for (size_t i = 0; i < bins; i++) {
        const size_t moved = next->step > 0 ? i + shift : bin_of_edge(now, bins, i, next, next_bins);
        double *bin = &to[moved < next_bins ? moved : next_bins - 1];
        *bin = add_mass(*bin, mass[i], params->float32_counts);
    }
}

/* ---- Quark ------------------------------------------------------------------------------------------------------- */

/* The end of a range of one point: its bins differ in f32. */
static float end_of_point(float point, size_t bins)
{
    return point + (fabsf(point) > 1 ? fabsf(point) : 1) * (float)bins * 0x1p-23f;
}

/* A histogram of magnitudes begins at 0. A range of one point, or of none, is widened. */
static struct extrema quark_required_range(const struct histogram_params *params, size_t bins,
                                           const struct extrema *extrema)
{
    struct extrema required = *extrema;
    const bool nothing = extrema->min > extrema->max;
    if (nothing || params->magnitude)
        required.min = 0;
    if (nothing)
        required.max = 0;
    if (required.min == required.max)
        required.max = end_of_point(required.min, bins);
    return required;
}

static int quark_set(float min, float max, struct bin_range *next, qobs_error *error)
{
    *next = (struct bin_range){.lo = min, .hi = max};
    return isfinite(max - min)
               ? QOBS_OK
               : qobs_invalid(error, "value: its range from %g to %g does not fit F32", (double)min, (double)max);
}

static int quark_extend(const struct bin_range *now, size_t bins, const struct extrema *extrema, struct bin_range *next,
                        size_t *next_bins, qobs_error *error)
{
    int status = QOBS_OK;
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

/* The width of a first batch of one value is none of the data's. If too many such bins would be needed, for which
 * upstream fails, the range becomes that of both batches. */
static int quark_grow(const struct histogram_params *params, const struct bin_range *now, size_t bins,
                      const struct extrema *extrema, struct bin_range *next, size_t *next_bins, qobs_error *error)
{
    (void)params;
    *next_bins = bins;
    if (bin_range_is_empty(now))
        return quark_set(extrema->min, extrema->max, next, error);
    const bool point = now->step == 0 && now->hi == end_of_point(now->lo, bins);
    const int status = quark_extend(now, bins, extrema, next, next_bins, point ? NULL : error);
    if (status == QOBS_OK || !point)
        return status;
    *next_bins = bins;
    return quark_set(fminf(extrema->min, now->lo), fmaxf(extrema->max, now->lo), next, error);
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
    const float width = bin_range_is_empty(now) ? 0 : width_of(now, bins);
    *next_bins = bins;
    if (!(width > 0)) { /* nothing yet, or zeros alone, whose bins have no width: upstream divides by it */
        *next = (struct bin_range){.lo = 0, .hi = extrema->max};
        return QOBS_OK;
    }
    return grow_to(0, arange_size(0, (double)(extrema->max + width), (double)width), width, extrema->max, next,
                   next_bins, error);
}

const struct histogram_ops qobs_histogram_modelopt = {.accept = qobs_histogram_accept,
                                                      .merge = qobs_histogram_merge,
                                                      .required_range = modelopt_required_range,
                                                      .grow = modelopt_grow,
                                                      .move = append,
                                                      .rebin = qobs_rebin};

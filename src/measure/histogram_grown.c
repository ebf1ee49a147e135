/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms that grow by whole bins of the same width: Quark's (PerTensorHistogramObserver.forward and what is made of it)
 * and Model-Optimizer's (HistogramCalibrator.collect, torch form). The first batch has edges from a linspace (step 0), a
 * histogram that has grown from an arange: edge i is lo + step * i, rounded once. */
#include <math.h>

#include "base/error.h"
#include "measure/histogram.h"

/* A batch far out of range would need any number of bins. */
enum { MOST_GROWN = 1 << 20 };

float qobs_bin_edge(const struct bin_range *range, size_t bins, size_t i)
{
    if (range->step > 0)
        return (float)((double)range->lo + (double)range->step * (double)i);
    const struct linspace edges = linspace_of(range->lo, range->hi, bins + 1);
    return i == bins ? range->hi : linspace_at(&edges, i);
}

/* How many elements torch.arange(start, end, step) has. */
static double arange_size(double start, double end, double step) { return ceil((end - start) / step); }

static int too_many(double bins, float lo, float hi, float width, qobs_error *error)
{
    return qobs_fail(
        error, QOBS_ERROR_INVALID_ARGUMENT,
        "value: reaches from %g to %g, which are %.9g bins as wide as those of the first batch, %g; allowed are %d",
        (double)lo, (double)hi, bins, (double)width, MOST_GROWN);
}

/* The bins from lo on that `edges` edges, or more where they would not reach `max`, make. */
static int grown(float lo, double edges, float width, float max, struct bin_range *next, size_t *bins, qobs_error *error)
{
    if (!(edges <= MOST_GROWN))
        return too_many(edges, lo, max, width, error);
    *next = (struct bin_range){.lo = lo, .step = width};
    *bins = edges > 2 ? (size_t)edges - 1 : 1;
    while (qobs_bin_edge(next, *bins, *bins) < max && *bins < MOST_GROWN)
        ++*bins;
    next->hi = qobs_bin_edge(next, *bins, *bins);
    return next->hi < max ? too_many(edges, lo, max, width, error) : QOBS_OK;
}

static float width_of(const struct bin_range *now, size_t bins)
{
    return qobs_bin_edge(now, bins, 1) - qobs_bin_edge(now, bins, 0);
}

/* ---- Quark
 * ---------------------------------------------------------------------------------------------------------------- */

/* A histogram of magnitudes begins at 0. One value alone, or none, is made wide enough for its bins to differ in f32. */
static struct qobs_extrema quark_reach(const struct histogram_params *params, size_t bins, const struct qobs_extrema *seen)
{
    struct qobs_extrema reach = *seen;
    const bool nothing = seen->min > seen->max;
    if (nothing || params->magnitude)
        reach.min = 0;
    if (nothing)
        reach.max = 0;
    if (reach.min == reach.max) {
        const float size = fabsf(reach.min) > 1 ? fabsf(reach.min) : 1;
        reach.max = reach.min + size * (float)bins * 0x1p-23f;
    }
    return reach;
}

static int quark_grow(const struct histogram_params *params, const struct bin_range *now, size_t bins, const struct qobs_extrema *reach,
                      struct bin_range *next, size_t *next_bins, qobs_error *error)
{
    int status = QOBS_OK;
    if (now->lo > now->hi) {
        *next = (struct bin_range){.lo = reach->min, .hi = reach->max};
        *next_bins = bins;
        return isfinite(reach->max - reach->min)
                   ? QOBS_OK
                   : qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "value: its range from %g to %g does not fit F32",
                               (double)reach->min, (double)reach->max);
    }
    (void)params;
    *next = *now;
    *next_bins = bins;
    if (reach->min < next->lo) {
        const float width = width_of(next, *next_bins), from = reach->min - width;
        status = grown(from, arange_size((double)from, (double)next->hi, (double)width), width, reach->min, next, next_bins,
                       error);
    }
    if (status == QOBS_OK && reach->max > next->hi) {
        const float width = width_of(next, *next_bins), lo = next->lo;
        status = grown(lo, arange_size((double)lo, (double)(reach->max + width), (double)width), width, reach->max, next,
                       next_bins, error);
    }
    return status;
}

/* Upstream adds old counts to the first bins, also where bins have come before them; with shifted_counts they go with their
 * bins. */
static void leading(const struct histogram_params *params, const struct bin_range *now, size_t bins, const double *mass,
                    const struct bin_range *next, size_t next_bins, double *to)
{
    const bool shifted = params->shifted_counts && next->step > 0 && now->lo > next->lo;
    const size_t shift = shifted ? (size_t)rint(((double)now->lo - (double)next->lo) / (double)next->step) : 0;
    for (size_t i = 0; i < bins; i++) {
        double *bin = &to[i + shift < next_bins ? i + shift : next_bins - 1];
        *bin = add_mass(*bin, mass[i], params->float32_counts);
    }
}

const struct histogram_ops qobs_histogram_quark = {.reach = quark_reach, .grow = quark_grow, .move = leading};

/* ---- Model-Optimizer
 * ------------------------------------------------------------------------------------------------------ */

static struct qobs_extrema modelopt_reach(const struct histogram_params *params, size_t bins, const struct qobs_extrema *seen)
{
    (void)params, (void)bins;
    struct qobs_extrema reach = *seen;
    reach.min = seen->min > seen->max ? seen->min : 0;
    return reach;
}

static int modelopt_grow(const struct histogram_params *params, const struct bin_range *now, size_t bins, const struct qobs_extrema *reach,
                    struct bin_range *next, size_t *next_bins, qobs_error *error)
{
    (void)params;
    *next_bins = bins;
    if (now->lo > now->hi) {
        *next = (struct bin_range){.lo = 0, .hi = reach->max};
        return QOBS_OK;
    }
    const float width = width_of(now, bins);
    if (!(width > 0))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "value: the first batch was all 0, bins of no width cannot grow to %g", (double)reach->max);
    return grown(0, arange_size(0, (double)(reach->max + width), (double)width), width, reach->max, next, next_bins, error);
}

const struct histogram_ops qobs_histogram_modelopt = {.reach = modelopt_reach, .grow = modelopt_grow, .move = leading};

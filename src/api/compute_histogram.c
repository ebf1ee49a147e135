/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms without an observer: the public functions. */
#include <math.h>

#include "base/struct_size.h"
#include "base/fpenv.h"
#include "histogram/collect.h"
#include "kernels/dispatch.h"
#include "plan/make_plan.h"
#include "qobs/stateless.h"

static int check_bins(const qobs_histogram_options *bins, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_require(bins, "options", error));
    RETURN_IF_FAILED(
        struct_size_check("options", bins, SIZE_THROUGH(qobs_histogram_options, skip_zeros), sizeof *bins, error));
    if (bins->count < 1 || bins->count > QOBS_MOST_BINS)
        return qobs_invalid(error, "options.count: is %lld, allowed are 1 to %d", (long long)bins->count,
                            QOBS_MOST_BINS);
    if (!isfinite(bins->min) || !isfinite(bins->max) || bins->min > bins->max)
        return qobs_invalid(error, "options.min, options.max: %g to %g is no range of finite numbers",
                            (double)bins->min, (double)bins->max);
    return QOBS_OK;
}

/* Each qparam is binned over its own range, [0, 0] if it has no elements. Fails if an element is not finite. */
static int bin_by_own_range(const struct batch *batch, const qobs_histogram_options *bins, struct binning *binning,
                            struct extrema *extrema, qobs_error *error)
{
    const int status = qobs_scan_extrema(batch, bins->magnitude, bins->skip_zeros, extrema, error);
    for (int64_t q = 0; status == QOBS_OK && q < batch->plan->qparams; q++) {
        const struct extrema *e = &extrema[q];
        if (e->nonfinite.nan + e->nonfinite.inf > 0)
            return qobs_fail(error, QOBS_ERROR_NONFINITE,
                             "value: qparam %lld has %llu NaN and %llu infinite elements, so no range of its own",
                             (long long)q, (unsigned long long)e->nonfinite.nan, (unsigned long long)e->nonfinite.inf);
        const bool empty = e->min > e->max;
        binning[q] = qobs_binning_of(empty ? 0 : e->min, empty ? 0 : e->max, (size_t)bins->count, bins->magnitude,
                                     bins->skip_zeros);
    }
    return status;
}

static int check_sizes(const qobs_histogram_args *a, size_t qparams, qobs_error *error)
{
    const size_t edges = qparams * sizeof(float);
    RETURN_IF_FAILED(array_check("counts", a->counts, a->counts_size,
                                 qparams * (size_t)a->options->count * sizeof *a->counts, error));
    if (a->first_edge || a->last_edge || a->edges_size > 0)
        return array_check("edges_size", a->first_edge ? a->first_edge : a->last_edge, a->edges_size, edges, error);
    return QOBS_OK;
}

static int count(const struct batch *batch, const qobs_histogram_args *a, qobs_error *error)
{
    const qobs_histogram_options *bins = a->options;
    const size_t n = (size_t)batch->plan->qparams, size = n * (sizeof(struct binning) + sizeof(struct extrema));
    int status = QOBS_OK;
    RETURN_IF_FAILED(check_sizes(a, n, error));
    struct extrema *extrema = qobs_allocate(batch->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(extrema, "histogram", size, error));
    struct binning *binning = (struct binning *)(void *)(extrema + n);
    if (bins->min == bins->max)
        status = bin_by_own_range(batch, bins, binning, extrema, error);
    for (size_t q = 0; q < n && bins->min < bins->max; q++)
        binning[q] = qobs_binning_of(bins->min, bins->max, (size_t)bins->count, bins->magnitude, bins->skip_zeros);
    if (status == QOBS_OK)
        status = qobs_collect(batch, binning, a->counts, extrema, error);
    qobs_counts all = {.batches = 1, .elements = (uint64_t)batch->plan->value.elements};
    for (size_t q = 0; status == QOBS_OK && q < n; q++) {
        if (a->first_edge)
            a->first_edge[q] = binning[q].lo;
        if (a->last_edge)
            a->last_edge[q] = binning[q].hi;
        all.nan += extrema[q].nonfinite.nan;
        all.inf += extrema[q].nonfinite.inf;
    }
    if (status == QOBS_OK && a->totals)
        counts_copy(&all, a->totals);
    qobs_release(batch->runtime, extrema, size);
    return status;
}

static int compute(const qobs_histogram_args *args, qobs_error *error)
{
    struct runtime runtime;
    qobs_histogram_args a;
    qobs_plan *plan;
    RETURN_IF_FAILED(ARGS_READ(qobs_histogram_args, &a, args, runtime, error));
    if (a.totals)
        RETURN_IF_FAILED(counts_check("totals", a.totals, error));
    RETURN_IF_FAILED(check_bins(a.options, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    RETURN_IF_FAILED(a.config ? qobs_plan_create(&plan, a.config, a.value, a.g_idx, a.runtime, error)
                              : qobs_plan_new(&plan, &qobs_whole_tensor, a.value, a.g_idx, &runtime, error));
    const struct batch batch = {&runtime, qobs_kernels_active(), plan, a.value->data};
    const int status = count(&batch, &a, error);
    qobs_plan_destroy(plan);
    return status;
}

int qobs_histogram(const qobs_histogram_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(histograms, error);
    FP_SCOPE; /* limits may be subnormal */
    return qobs_finish(compute(args, error), error);
}

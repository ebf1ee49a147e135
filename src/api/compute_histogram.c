/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms and ranges found in them without an observer: the public functions. */
#include <math.h>

#include "base/counts.h"
#include "kernels/dispatch.h"
#include "base/fpenv.h"
#include "measure/histogram.h"
#include "measure/reduce.h"
#include "measure/accumulate.h"
#include "base/struct_size.h"

static int check_bins(const qobs_bins *bins, qobs_error *error)
{
    if (!bins)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "bins: is NULL");
    const int status = struct_size_check("bins", bins, sizeof *bins, sizeof *bins, error);
    if (status != QOBS_OK)
        return status;
    if (bins->count < 1 || bins->count > QOBS_MOST_BINS)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "bins.count: is %lld, allowed are 1 to %d",
                         (long long)bins->count, QOBS_MOST_BINS);
    if (!isfinite(bins->min) || !isfinite(bins->max) || bins->min > bins->max)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "bins.min, bins.max: %g to %g is no range of finite numbers",
                         (double)bins->min, (double)bins->max);
    return QOBS_OK;
}

/* A plan for `config`, or for everything as one. */
static int make_plan(qobs_plan **plan, const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                     const qobs_runtime *given, qobs_error *error)
{
    qobs_config *whole = NULL;
    int status = QOBS_OK;
    if (!config)
        status = qobs_config_create(&whole, "torch.MinMaxObserver", given, error);
    if (status == QOBS_OK)
        status = qobs_plan_create(plan, config ? config : whole, value, g_idx, given, error);
    qobs_config_destroy(whole);
    return status;
}

/* Every qparam's own range, refused where it is not finite. A qparam without elements has [0, 0]. */
static int own_ranges(const struct runtime *runtime, const qobs_plan *plan, const unsigned char *data, const qobs_bins *bins,
                      struct qobs_binning *binning, struct qobs_extrema *seen, qobs_error *error)
{
    const int status = qobs_see(runtime, qobs_kernels_active(), plan, data, bins->magnitude, bins->skip_zeros, seen, error);
    for (int64_t q = 0; status == QOBS_OK && q < plan->qparams; q++) {
        if (seen[q].nonfinite.nan + seen[q].nonfinite.inf > 0)
            return qobs_fail(error, QOBS_ERROR_NONFINITE,
                             "value: qparam %lld has %llu NaN and %llu infinite elements, so no range of its own", (long long)q,
                             (unsigned long long)seen[q].nonfinite.nan, (unsigned long long)seen[q].nonfinite.inf);
        const bool empty = seen[q].min > seen[q].max;
        binning[q] = qobs_binning_of(empty ? 0 : seen[q].min, empty ? 0 : seen[q].max, (size_t)bins->count, bins->magnitude,
                                     bins->skip_zeros);
    }
    return status;
}

static int histogram(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx, const qobs_bins *bins,
                     uint64_t *counts, float *first_edge, float *last_edge, qobs_counts *counts_seen, const qobs_runtime *given,
                     qobs_error *error)
{
    struct runtime runtime;
    qobs_plan *plan;
    if (!counts)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "counts: is NULL");
    int status = counts_seen ? counts_check(counts_seen, error) : QOBS_OK;
    if (status == QOBS_OK)
        status = check_bins(bins, error);
    if (status == QOBS_OK)
        status = qobs_runtime_resolve(&runtime, given, error);
    if (status == QOBS_OK)
        status = make_plan(&plan, config, value, g_idx, given, error);
    if (status != QOBS_OK)
        return status;
    const size_t n = (size_t)plan->qparams, size = n * (sizeof(struct qobs_binning) + sizeof(struct qobs_extrema));
    struct qobs_extrema *seen = qobs_allocate(&runtime, size);
    if (!seen) {
        qobs_plan_destroy(plan);
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "histogram: no memory for %zu bytes of ranges", size);
    }
    struct qobs_binning *binning = (struct qobs_binning *)(void *)(seen + n);
    if (bins->min == bins->max)
        status = own_ranges(&runtime, plan, value->data, bins, binning, seen, error);
    for (size_t q = 0; q < n && bins->min < bins->max; q++)
        binning[q] = qobs_binning_of(bins->min, bins->max, (size_t)bins->count, bins->magnitude, bins->skip_zeros);
    if (status == QOBS_OK)
        status = qobs_collect(&runtime, qobs_kernels_active(), plan, value->data, binning, counts, seen, NULL, error);
    qobs_counts all = {.batches = 1, .elements = (uint64_t)plan->value.elements};
    for (size_t q = 0; status == QOBS_OK && q < n; q++) {
        if (first_edge)
            first_edge[q] = binning[q].lo;
        if (last_edge)
            last_edge[q] = binning[q].hi;
        all.nan += seen[q].nonfinite.nan;
        all.inf += seen[q].nonfinite.inf;
    }
    if (status == QOBS_OK && counts_seen)
        counts_copy(&all, counts_seen);
    qobs_release(&runtime, seen, size);
    qobs_plan_destroy(plan);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

int qobs_histogram(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx, const qobs_bins *bins,
                   uint64_t *counts, float *first_edge, float *last_edge, qobs_counts *counts_seen, const qobs_runtime *given,
                   qobs_error *error)
{
    const fp_mode mode = fp_enter(); /* limits may be subnormal */
    const int status = histogram(config, value, g_idx, bins, counts, first_edge, last_edge, counts_seen, given, error);
    fp_leave(mode);
    return status;
}

void qobs_histogram_to_float(size_t n, const uint64_t *counts, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = counts[i] < (UINT64_C(1) << 24) ? (float)counts[i] : 0x1p24f;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Memory of histograms, and how those with bins of one width accept batches and merge. Rules say how their range grows
 * and where old mass goes. */
#include "histogram/histogram.h"

#include <math.h>

#include "histogram/collect.h"

static int out_of_memory(size_t qparams, size_t bins, qobs_error *error)
{
    return qobs_no_memory(error, "observer: no memory for %zu histograms of %zu bins", qparams, bins);
}

int qobs_histogram_allocate(const struct runtime *runtime, const struct histogram_ops *ops, struct histogram *h,
                            size_t qparams, size_t bins, qobs_error *error)
{
    const size_t edges = ops->stores_edges ? bins + 1 : 0;
    int64_t total_bins, limit;
    const bool fits =
        qobs_multiply((int64_t)qparams, (int64_t)bins, &total_bins) && qobs_multiply(total_bins, 32, &limit);
    *h = (struct histogram){0};
    const size_t size = fits ? ((size_t)total_bins + edges) * sizeof *h->mass + qparams * sizeof *h->range : 0;
    double *mass = fits ? qobs_allocate_state(runtime, size) : NULL;
    if (!mass)
        return out_of_memory(qparams, bins, error);
    memset(mass, 0, ((size_t)total_bins + edges) * sizeof *mass);
    *h = (struct histogram){.qparams = qparams,
                            .bins = bins,
                            .mass = mass,
                            .edges = edges > 0 ? mass + total_bins : NULL,
                            .range = (struct bin_range *)(void *)(mass + total_bins + edges),
                            .size = size,
                            .outside = MAX_OUTSIDE};
    for (size_t q = 0; q < qparams; q++)
        h->range[q] = (struct bin_range){INFINITY, -INFINITY, 0};
    return QOBS_OK;
}

int qobs_histogram_copy(const struct runtime *runtime, const struct histogram_ops *ops, struct histogram *h,
                        const struct histogram *from, qobs_error *error)
{
    const int status = qobs_histogram_allocate(runtime, ops, h, from->qparams, from->bins, error);
    if (status == QOBS_OK)
        memcpy(h->mass, from->mass, from->size);
    return status;
}

void qobs_histogram_release(const struct runtime *runtime, struct histogram *h)
{
    qobs_release(runtime, h->mass, h->size);
    *h = (struct histogram){0};
}

/* ---- The histogram of a batch ------------------------------------------------------------------------------------ */

struct batch_histogram {
    const struct histogram_rule *rule;
    const struct runtime *runtime;
    size_t qparams;
    struct extrema *extrema;  /* [qparams] */
    struct binning *binning;  /* [qparams] */
    struct bin_range *next;   /* [qparams] the ranges that hold the batch, too */
    uint64_t *counts;         /* [qparams * bins] */
    size_t size, counts_size; /* bytes of the first three arrays together, and of counts */
};

static int begin(struct batch_histogram *b, const struct histogram_rule *rule, const struct runtime *runtime,
                 size_t qparams, qobs_error *error)
{
    *b = (struct batch_histogram){.rule = rule, .runtime = runtime, .qparams = qparams};
    b->size = qparams * (sizeof *b->extrema + sizeof *b->binning + sizeof *b->next);
    b->extrema = qobs_allocate(runtime, b->size);
    RETURN_IF_FAILED(qobs_require_memory(b->extrema, "observer", b->size, error));
    b->binning = (struct binning *)(void *)(b->extrema + qparams);
    b->next = (struct bin_range *)(void *)(b->binning + qparams);
    return QOBS_OK;
}

static void end(struct batch_histogram *b)
{
    qobs_release(b->runtime, b->extrema, b->size);
    qobs_release(b->runtime, b->counts, b->counts_size);
}

static void require_ranges(struct batch_histogram *b, size_t bins)
{
    const struct histogram_rule *rule = b->rule;
    for (size_t q = 0; q < b->qparams && rule->ops->required_range; q++)
        b->extrema[q] = rule->ops->required_range(&rule->params, bins, &b->extrema[q]);
}

/* Sets b->next to the ranges that hold the batch, too. *grown becomes true if one differs from the histogram's. */
static int grow(struct batch_histogram *b, const struct histogram *h, size_t *bins, bool *grown, qobs_error *error)
{
    int status = QOBS_OK;
    require_ranges(b, h->bins);
    for (size_t q = 0; q < h->qparams && status == QOBS_OK; q++) {
        const struct bin_range *now = &h->range[q];
        const struct extrema *extrema = &b->extrema[q];
        b->next[q] = *now;
        if (extrema->min > extrema->max || (extrema->min >= now->lo && extrema->max <= now->hi))
            continue;
        status = b->rule->ops->grow(&b->rule->params, now, h->bins, extrema, &b->next[q], bins, error);
        *grown = true;
    }
    return status;
}

static int collect(struct batch_histogram *b, const struct batch *batch, const struct bin_range *range, size_t bins,
                   qobs_error *error)
{
    const struct histogram_params *p = &b->rule->params;
    qobs_release(b->runtime, b->counts, b->counts_size);
    b->counts_size = b->qparams * bins * sizeof *b->counts; /* less than a histogram; only one alone grows */
    b->counts = qobs_allocate(b->runtime, b->counts_size);
    if (!b->counts)
        return out_of_memory(b->qparams, bins, error);
    for (size_t q = 0; q < b->qparams; q++)
        b->binning[q] = bin_range_is_empty(&range[q])
                            ? qobs_binning_of_nothing(bins, p->magnitude, p->skip_zeros)
                            : qobs_binning_of(range[q].lo, range[q].hi, bins, p->magnitude, p->skip_zeros);
    return qobs_collect(batch, b->binning, b->counts, b->extrema, error);
}

/* ---- Accept a batch ---------------------------------------------------------------------------------------------- */

/* Writes the counts of qparam q to the bins of another range, which are 0. */
static void transfer(const struct histogram_rule *rule, rebin_fn *rebin, const struct histogram *from, size_t q,
                     const struct bin_range *next, size_t bins, double *to)
{
    const struct bin_range *now = &from->range[q];
    const double *mass = from->mass + q * from->bins;
    if (bin_range_is_empty(now))
        return;
    if (now->lo == next->lo && now->hi == next->hi && from->bins == bins)
        memcpy(to, mass, bins * sizeof *to);
    else
        rebin(&rule->params, now, from->bins, mass, next, bins, to);
}

/* Moves the mass to the new ranges, in new memory. */
static int move(const struct batch_histogram *b, struct histogram *h, size_t bins, qobs_error *error)
{
    const struct histogram_rule *rule = b->rule;
    struct histogram moved;
    RETURN_IF_FAILED(qobs_histogram_allocate(b->runtime, rule->ops, &moved, h->qparams, bins, error));
    for (size_t q = 0; q < h->qparams; q++) {
        moved.range[q] = b->next[q];
        transfer(rule, rule->ops->move, h, q, &b->next[q], bins, moved.mass + q * bins);
    }
    qobs_histogram_release(b->runtime, h);
    *h = moved;
    return QOBS_OK;
}

static void add_counts(const struct batch_histogram *b, struct histogram *h)
{
    const bool float32 = b->rule->params.float32_counts;
    const uint64_t most = float32 ? UINT64_C(1) << 24 : UINT64_MAX;
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        if (b->counts[k] > 0)
            h->mass[k] = add_mass(h->mass[k], (double)(b->counts[k] < most ? b->counts[k] : most), float32);
}

/* Normal case: the batch lies inside the known ranges and is read once. If it does not, it is counted again. After
 * MAX_OUTSIDE batches in a row that did not, its extrema are scanned first, which is faster than counting. */
static int count(struct batch_histogram *b, const struct batch *batch, struct histogram *h,
                 struct nonfinite_count *nonfinite, qobs_error *error)
{
    const struct histogram_params *p = &b->rule->params;
    const int before = h->outside;
    const bool scanned = before == MAX_OUTSIDE;
    bool grown = false;
    size_t bins = h->bins;
    RETURN_IF_FAILED(scanned ? qobs_scan_extrema(batch, p->magnitude, p->skip_zeros, b->extrema, error)
                             : collect(b, batch, h->range, bins, error));
    RETURN_IF_FAILED(qobs_check_extrema(batch, p->nonfinite, b->extrema, nonfinite, error));
    RETURN_IF_FAILED(grow(b, h, &bins, &grown, error));
    if (grown || scanned) {
        RETURN_IF_FAILED(collect(b, batch, b->next, bins, error));
        require_ranges(b, h->bins);
    }
    if (grown)
        RETURN_IF_FAILED(move(b, h, bins, error));
    add_counts(b, h);
    h->outside = !grown ? 0 : scanned ? MAX_OUTSIDE : before + 1;
    return QOBS_OK;
}

int qobs_histogram_accept(const struct histogram_rule *rule, const struct batch *batch, struct histogram *h, float *min,
                          float *max, struct nonfinite_count *nonfinite, qobs_error *error)
{
    const size_t n = (size_t)batch->plan->qparams;
    const bool first = h->bins == 0;
    struct batch_histogram b;
    int status = begin(&b, rule, batch->runtime, n, error);
    if (status == QOBS_OK && first)
        status = qobs_histogram_allocate(batch->runtime, rule->ops, h, n, rule->params.bins, error);
    if (status == QOBS_OK)
        status = count(&b, batch, h, nonfinite, error);
    for (size_t q = 0; q < n && status == QOBS_OK; q++) {
        min[q] = b.extrema[q].min;
        max[q] = b.extrema[q].max;
    }
    if (status != QOBS_OK && first)
        qobs_histogram_release(batch->runtime, h);
    end(&b);
    return status;
}

/* ---- Merge ------------------------------------------------------------------------------------------------------- */

int qobs_histogram_merge(const struct histogram_rule *rule, const struct runtime *runtime, struct histogram *h,
                         const struct histogram *from, qobs_error *error)
{
    const size_t n = h->qparams;
    struct batch_histogram b;
    struct histogram rebinned = {0};
    size_t bins = h->bins;
    bool grown = false;
    int status = begin(&b, rule, runtime, n, error);
    for (size_t q = 0; q < n && status == QOBS_OK; q++)
        b.extrema[q] = (struct extrema){.min = from->range[q].lo, .max = from->range[q].hi};
    if (status == QOBS_OK)
        status = grow(&b, h, &bins, &grown, error);
    if (status == QOBS_OK)
        status = qobs_histogram_allocate(runtime, rule->ops, &rebinned, n, bins, error);
    if (status == QOBS_OK)
        status = move(&b, h, bins, error);
    for (size_t q = 0; q < n && status == QOBS_OK; q++) {
        double *to = rebinned.mass + q * bins;
        transfer(rule, rule->ops->rebin, from, q, &b.next[q], bins, to);
        for (size_t k = 0; k < bins && !bin_range_is_empty(&from->range[q]); k++)
            h->mass[q * bins + k] = add_mass(h->mass[q * bins + k], to[k], rule->params.float32_counts);
    }
    qobs_histogram_release(runtime, &rebinned);
    end(&b);
    return status;
}

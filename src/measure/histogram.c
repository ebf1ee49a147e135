/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "measure/histogram.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "templates/histogram_elements.inl.h"
#include "measure/reduce.h"

struct qobs_binning qobs_binning_of(float lo, float hi, size_t bins, bool magnitude, bool skip_zeros)
{
    struct qobs_binning b = {
        .lo = lo, .hi = hi, .scale = 1, .bins = (uint32_t)bins, .magnitude = magnitude, .skip_zeros = skip_zeros};
    if (lo == hi) {
        b.lo = lo - 1;
        b.hi = hi + 1;
    }
    if (b.lo == b.hi) {
        b.lo = lo > -FLT_MAX ? nextafterf(lo, -INFINITY) : lo;
        b.hi = hi < FLT_MAX ? nextafterf(hi, INFINITY) : hi;
    }
    if (!isfinite((b.hi - b.lo) * (float)bins))
        b.scale = 0x1p-26f;
    b.from = b.lo * b.scale;
    b.width = b.hi * b.scale - b.from;
    return b;
}

struct qobs_binning qobs_binning_of_nothing(size_t bins, bool magnitude, bool skip_zeros)
{
    struct qobs_binning b = qobs_binning_of(-1, 1, bins, magnitude, skip_zeros);
    b.lo = INFINITY;
    b.hi = -INFINITY;
    return b;
}

size_t qobs_bin_of(const struct qobs_binning *binning, float x)
{
    return bin_of(binning, x);
}

struct qobs_extrema qobs_seen_nothing(void)
{
    return (struct qobs_extrema){.min = INFINITY, .max = -INFINITY};
}

int qobs_histogram_allocate(const struct runtime *runtime, struct histogram *h, size_t qparams, size_t bins, qobs_error *error)
{
    int64_t masses, size;
    const bool fits = qobs_multiply((int64_t)qparams, (int64_t)bins, &masses) && qobs_multiply(masses, 16, &size);
    h->size = fits ? (size_t)masses * sizeof *h->mass + qparams * sizeof *h->range : SIZE_MAX;
    h->mass = fits ? qobs_allocate_state(runtime, h->size) : NULL;
    if (!h->mass) {
        *h = (struct histogram){0};
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu histograms of %zu bins", qparams, bins);
    }
    h->range = (struct bin_range *)(void *)(h->mass + masses);
    h->qparams = qparams;
    h->bins = bins;
    memset(h->mass, 0, (size_t)masses * sizeof *h->mass);
    for (size_t q = 0; q < qparams; q++)
        h->range[q] = (struct bin_range){INFINITY, -INFINITY, 0};
    h->growing = MOST_GROWING;
    return QOBS_OK;
}

int qobs_histogram_copy(const struct runtime *runtime, struct histogram *h, const struct histogram *from, qobs_error *error)
{
    const int status = qobs_histogram_allocate(runtime, h, from->qparams, from->bins, error);
    if (status != QOBS_OK)
        return status;
    memcpy(h->mass, from->mass, from->size);
    if (!from->edges)
        return QOBS_OK;
    h->edges = qobs_allocate_state(runtime, (h->bins + 1) * sizeof *h->edges);
    if (!h->edges) {
        qobs_histogram_release(runtime, h);
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu edges", from->bins + 1);
    }
    memcpy(h->edges, from->edges, (h->bins + 1) * sizeof *h->edges);
    return QOBS_OK;
}

void qobs_histogram_release(const struct runtime *runtime, struct histogram *h)
{
    qobs_release(runtime, h->edges, (h->bins + 1) * sizeof *h->edges);
    qobs_release(runtime, h->mass, h->size);
    *h = (struct histogram){0};
}

/* ---- A batch ------------------------------------------------------------------------------------------------------------ */

struct taking {
    const struct histogram_ops *ops;
    const struct histogram_params *params;
    struct qobs_extrema *seen;       /* [qparams] */
    struct qobs_binning *binning; /* [qparams] */
    struct bin_range *next;       /* [qparams] */
    uint64_t *counts;             /* [qparams * bins] */
    size_t small, large;          /* bytes of the first three together, and of counts */
};

static int allocate_taking(const struct runtime *runtime, struct taking *t, size_t qparams, qobs_error *error)
{
    t->small = qparams * (sizeof *t->seen + sizeof *t->binning + sizeof *t->next);
    t->seen = qobs_allocate(runtime, t->small);
    if (!t->seen)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu bytes of ranges", t->small);
    t->binning = (struct qobs_binning *)(void *)(t->seen + qparams);
    t->next = (struct bin_range *)(void *)(t->binning + qparams);
    return QOBS_OK;
}

/* Room for counts of that many bins, in place of what there was. */
static int allocate_counts(const struct runtime *runtime, struct taking *t, size_t qparams, size_t bins, qobs_error *error)
{
    int64_t n, size;
    qobs_release(runtime, t->counts, t->large);
    const bool fits = qobs_multiply((int64_t)qparams, (int64_t)bins, &n) && qobs_multiply(n, sizeof *t->counts, &size);
    t->large = fits ? (size_t)size : 0;
    t->counts = fits ? qobs_allocate(runtime, t->large) : NULL;
    if (t->counts)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "observer: no memory for %zu histograms of %zu bins", qparams, bins);
}

static void release_taking(const struct runtime *runtime, struct taking *t)
{
    qobs_release(runtime, t->seen, t->small);
    qobs_release(runtime, t->counts, t->large);
}

static bool is_empty(const struct bin_range *range)
{
    return range->lo > range->hi;
}

static void bin_by(struct taking *t, const struct bin_range *range, size_t qparams, size_t bins)
{
    const bool magnitude = t->params->magnitude, skip_zeros = t->params->skip_zeros;
    for (size_t q = 0; q < qparams; q++)
        t->binning[q] = is_empty(&range[q]) ? qobs_binning_of_nothing(bins, magnitude, skip_zeros)
                                            : qobs_binning_of(range[q].lo, range[q].hi, bins, magnitude, skip_zeros);
}

/* The ranges that hold the batch too; *grown: they are not all what they were. */
static int grow(struct taking *t, const struct histogram *h, size_t *bins, bool *grown, qobs_error *error)
{
    int status = QOBS_OK;
    for (size_t q = 0; q < h->qparams && status == QOBS_OK; q++) {
        const struct bin_range *now = &h->range[q];
        if (t->ops->reach)
            t->seen[q] = t->ops->reach(t->params, h->bins, &t->seen[q]);
        const struct qobs_extrema *seen = &t->seen[q];
        t->next[q] = *now;
        if (seen->min > seen->max || (seen->min >= now->lo && seen->max <= now->hi))
            continue;
        status = t->ops->grow(t->params, now, h->bins, seen, &t->next[q], bins, error);
        *grown = true;
    }
    return status;
}

/* The old mass over the new ranges: memory of its own where there are more bins or mass to move. */
static int move(const struct runtime *runtime, const struct taking *t, struct histogram *h, size_t bins, qobs_error *error)
{
    struct histogram moved = {0};
    const int status = qobs_histogram_allocate(runtime, &moved, h->qparams, bins, error);
    if (status != QOBS_OK)
        return status;
    for (size_t q = 0; q < h->qparams; q++) {
        const struct bin_range *now = &h->range[q], *next = &t->next[q];
        double *to = moved.mass + q * bins;
        moved.range[q] = *next;
        if (is_empty(now))
            continue;
        if (now->lo == next->lo && now->hi == next->hi && bins == h->bins)
            memcpy(to, h->mass + q * bins, bins * sizeof *to);
        else
            t->ops->move(t->params, now, h->bins, h->mass + q * h->bins, next, bins, to);
    }
    qobs_histogram_release(runtime, h);
    *h = moved;
    return QOBS_OK;
}

static void add_counts(const struct taking *t, struct histogram *h)
{
    const bool float32 = t->params->float32_counts;
    const uint64_t most = float32 ? UINT64_C(1) << 24 : UINT64_MAX;
    for (size_t k = 0; k < h->qparams * h->bins; k++)
        if (t->counts[k] > 0)
            h->mass[k] = add_mass(h->mass[k], (double)(t->counts[k] < most ? t->counts[k] : most), float32);
}

static int collect(const struct runtime *runtime, const struct qobs_kernels *kernels, struct taking *t, const qobs_plan *plan,
                   const unsigned char *data, const struct bin_range *range, size_t bins, bool *stopped, qobs_error *error)
{
    const size_t n = (size_t)plan->qparams;
    bin_by(t, range, n, bins);
    const int status = allocate_counts(runtime, t, n, bins, error);
    return status == QOBS_OK ? qobs_collect(runtime, kernels, plan, data, t->binning, t->counts, t->seen, stopped, error) : status;
}

struct widening {
    struct qobs_widening widening; /* first */
    struct taking *taking;
    const struct histogram *histogram;
};

static int widen(struct qobs_widening *widening, qobs_error *error)
{
    const struct widening *w = (struct widening *)(void *)widening;
    size_t bins = w->histogram->bins;
    bool grown = false;
    const int status = grow(w->taking, w->histogram, &bins, &grown, error);
    bin_by(w->taking, w->taking->next, 1, bins);
    widening->min = w->taking->next->lo;
    widening->max = w->taking->next->hi;
    return status;
}

/* The batch under the range that holds it, if that can be found while it is counted; else *counted stays false. */
static int collect_widening(const struct runtime *runtime, const struct qobs_kernels *kernels, struct taking *t,
                            const qobs_plan *plan, const unsigned char *data, const struct histogram *h, bool *counted,
                            qobs_error *error)
{
    if (!t->ops->same_bins || h->qparams != 1)
        return QOBS_OK;
    struct widening w = {{h->range->lo, h->range->hi, h->growing == MOST_GROWING, widen}, t, h};
    bin_by(t, h->range, 1, h->bins);
    const int status = allocate_counts(runtime, t, 1, h->bins, error);
    return status == QOBS_OK
               ? qobs_collect_widening(runtime, kernels, plan, data, &w.widening, t->binning, t->counts, t->seen, counted, error)
               : status;
}

/* In the steady state, inside the known ranges, a batch is read once. Where the last ones were not inside it is not tried with
 * this one, and its extremes are looked at first; a try that fails has looked at them, too. A run of one qparam is counted while its
 * range grows, where that leaves the number of bins as it is. */
static int count(const struct runtime *runtime, const struct qobs_kernels *kernels, struct taking *t, const qobs_plan *plan,
                 const unsigned char *data, struct histogram *h, struct qobs_nonfinite *nonfinite, qobs_error *error)
{
    const int growing = h->growing;
    bool counted = false, grown = false;
    size_t bins = h->bins;
    int status = collect_widening(runtime, kernels, t, plan, data, h, &counted, error);
    bool look = !counted && growing == MOST_GROWING;
    if (status == QOBS_OK && !counted)
        status = look ? qobs_see(runtime, kernels, plan, data, t->params->magnitude, t->params->skip_zeros, t->seen, error)
                      : collect(runtime, kernels, t, plan, data, h->range, bins, &look, error);
    if (status == QOBS_OK)
        status = qobs_check_seen(plan, data, t->params->nonfinite, t->seen, nonfinite, error);
    if (status == QOBS_OK)
        status = grow(t, h, &bins, &grown, error);
    if (status == QOBS_OK && !counted && (grown || look)) {
        status = collect(runtime, kernels, t, plan, data, t->next, bins, NULL, error);
        for (size_t q = 0; q < h->qparams && t->ops->reach; q++)
            t->seen[q] = t->ops->reach(t->params, h->bins, &t->seen[q]);
    }
    if (status == QOBS_OK && grown)
        status = move(runtime, t, h, bins, error);
    if (status != QOBS_OK)
        return status;
    add_counts(t, h);
    h->growing = !grown ? 0 : growing < MOST_GROWING ? growing + 1 : growing;
    return QOBS_OK;
}

int qobs_histogram_take(const struct runtime *runtime, const struct qobs_kernels *kernels, const struct histogram_rule *rule,
                        const qobs_plan *plan, const unsigned char *data, struct histogram *h, float *min, float *max,
                        struct qobs_nonfinite *nonfinite, qobs_error *error)
{
    const size_t n = (size_t)plan->qparams;
    const bool empty = h->bins == 0;
    if (rule->ops == &qobs_histogram_numpy)
        return qobs_histogram_take_numpy(runtime, kernels, &rule->params, plan, data, h, min, max, nonfinite, error);
    struct taking t = {.ops = rule->ops, .params = &rule->params};
    int status = allocate_taking(runtime, &t, n, error);
    if (status == QOBS_OK && empty)
        status = qobs_histogram_allocate(runtime, h, n, rule->params.bins, error);
    if (status == QOBS_OK)
        status = count(runtime, kernels, &t, plan, data, h, nonfinite, error);
    for (size_t q = 0; q < n && status == QOBS_OK; q++) {
        min[q] = t.seen[q].min;
        max[q] = t.seen[q].max;
    }
    if (status != QOBS_OK && empty)
        qobs_histogram_release(runtime, h);
    release_taking(runtime, &t);
    return status;
}

/* ---- Merge -------------------------------------------------------------------------------------------------------------- */

int qobs_histogram_merge(const struct runtime *runtime, const struct histogram_rule *rule, struct histogram *h,
                         const struct histogram *from, qobs_error *error)
{
    struct taking t = {.ops = rule->ops, .params = &rule->params};
    const size_t n = h->qparams;
    const bool float32 = rule->params.float32_counts;
    struct histogram other = {0};
    if (h->edges && from->edges)
        return qobs_histogram_merge_numpy(runtime, &rule->params, h, from, error);
    size_t bins = h->bins;
    bool grown = false;
    int status = allocate_taking(runtime, &t, n, error);
    for (size_t q = 0; q < n && status == QOBS_OK; q++)
        t.seen[q] = (struct qobs_extrema){.min = from->range[q].lo, .max = from->range[q].hi};
    if (status == QOBS_OK)
        status = grow(&t, h, &bins, &grown, error);
    if (status == QOBS_OK)
        status = qobs_histogram_allocate(runtime, &other, n, bins, error);
    if (status == QOBS_OK)
        status = move(runtime, &t, h, bins, error);
    for (size_t q = 0; q < n && status == QOBS_OK; q++) {
        const struct bin_range *now = &from->range[q], *next = &t.next[q];
        const double *mass = from->mass + q * from->bins;
        double *moved = other.mass + q * bins;
        if (is_empty(now))
            continue;
        if (now->lo == next->lo && now->hi == next->hi && from->bins == bins)
            memcpy(moved, mass, bins * sizeof *mass);
        else
            qobs_histogram_torch.move(&rule->params, now, from->bins, mass, next, bins, moved);
        for (size_t k = 0; k < bins; k++)
            h->mass[q * bins + k] = add_mass(h->mass[q * bins + k], moved[k], float32);
    }
    qobs_histogram_release(runtime, &other);
    release_taking(runtime, &t);
    return status;
}

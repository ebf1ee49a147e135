/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Strides to kernels, whose counters are emptied before they overflow. */
#include <math.h>
#include <string.h>

#include "measure/counting.h"

/* Elements that may be counted before the counters, of 32 bits, are emptied. */
#define MOST_PENDING ((uint64_t)1 << 31)
/* Elements that do not lie next to each other are brought together here. */
#define GATHERED 2048
/* Elements between two looks at whether all lie inside. */
#define SLICE ((uint64_t)1 << 16)

static void empty_counters(struct counting *c, int64_t qparam)
{
    const size_t bins = c->job->bins;
    uint64_t *counts = c->counts + (size_t)qparam * bins;
    if (c->pending == 0)
        return;
    for (size_t copy = 0; copy < QOBS_COUNTER_COPIES; copy++) {
        uint32_t *counters = c->counters + copy * qobs_counter_stride(bins);
        for (size_t k = 0; k < bins; k++)
            counts[k] += counters[k];
        memset(counters, 0, bins * sizeof *counters);
    }
    c->pending = 0;
}

/* Runs of contiguous elements of one qparam, for which there is room. */
static void add_runs(struct counting *c, int64_t qparam, const unsigned char *x, int64_t stride, int64_t runs, int64_t length)
{
    const struct qobs_binning *binning = &c->job->binning[qparam];
    struct qobs_extrema *seen = &c->seen[qparam];
    c->job->rows(binning, x, stride, (size_t)runs, (size_t)length, c->counters, seen);
    c->pending += (uint64_t)(runs * length);
    c->stopped = c->job->stops && (seen->min < binning->lo || seen->max > binning->hi);
}

/* How many elements may be added at once, made at least 1. */
static int64_t make_workspace(struct counting *c, int64_t qparam)
{
    if (c->pending >= MOST_PENDING)
        empty_counters(c, qparam);
    const uint64_t workspace = MOST_PENDING - c->pending;
    return (int64_t)(c->job->stops && workspace > SLICE ? SLICE : workspace);
}

/* The extremes alone, with the kernels of minimum and maximum unless there is something they do not leave out. */
static void see_runs(struct counting *c, int64_t qparam, const unsigned char *x, int64_t stride, int64_t runs, int64_t length)
{
    const struct counting_job *job = c->job;
    const struct qobs_binning *binning = &job->binning[qparam];
    unsigned char min[sizeof(double)], max[sizeof(double)];
    struct qobs_nonfinite nonfinite = {0};
    if (!binning->magnitude && !binning->skip_zeros) {
        qobs_put_element(min, job->plan->dtype, INFINITY);
        qobs_put_element(max, job->plan->dtype, -INFINITY);
        job->kernels->minmax_rows[job->dtype](x, stride, (size_t)runs, (size_t)length, min, max, 0, &nonfinite);
        const struct qobs_extrema seen = {.min = (float)qobs_element(min, job->plan->dtype) + 0.0f,
                                       .max = (float)qobs_element(max, job->plan->dtype) + 0.0f};
        if (nonfinite.nan == 0 && nonfinite.inf == 0 && isfinite(seen.min) && isfinite(seen.max)) {
            merge_seen(&c->seen[qparam], &seen);
            return;
        }
    }
    const struct qobs_binning nothing = qobs_binning_of_nothing(1, binning->magnitude, binning->skip_zeros);
    job->rows(&nothing, x, stride, (size_t)runs, (size_t)length, c->counters, &c->seen[qparam]);
}

/* Runs of contiguous elements of one qparam: as many as there is room for, or part of one. */
static void count_runs(struct counting *c, int64_t qparam, const unsigned char *x, int64_t stride, int64_t runs, int64_t length)
{
    for (int64_t n; runs > 0 && length > 0; runs -= n, x += n * stride) {
        if (c->stopped) {
            see_runs(c, qparam, x, stride, runs, length);
            return;
        }
        const int64_t whole = make_workspace(c, qparam) / length;
        n = whole < 1 ? 1 : whole < runs ? whole : runs;
        if (whole > 0) {
            add_runs(c, qparam, x, stride, n, length);
            continue;
        }
        for (int64_t done = 0, part; done < length; done += part) {
            const int64_t workspace = make_workspace(c, qparam);
            part = c->stopped || workspace > length - done ? length - done : workspace;
            (c->stopped ? see_runs : add_runs)(c, qparam, x + done * (int64_t)c->job->element, 0, 1, part);
        }
    }
}

/* n elements of one qparam, `stride` bytes apart. */
static void count_strided(struct counting *c, int64_t qparam, const unsigned char *x, int64_t stride, int64_t n)
{
    const size_t element = c->job->element;
    unsigned char buffer[GATHERED * sizeof(double)];
    while (n > 0) {
        const int64_t m = n < GATHERED ? n : GATHERED;
        for (int64_t i = 0; i < m; i++)
            memcpy(buffer + (size_t)i * element, x + i * stride, element);
        count_runs(c, qparam, buffer, 0, 1, m);
        x += m * stride;
        n -= m;
    }
}

/* ---- Nests -------------------------------------------------------------------------------------------------------------- */

/* Everything a nest of reduced dimensions covers. */
static void count_reduced(struct counting *c, int64_t qparam, const struct loop *d, int n, const unsigned char *x)
{
    const bool contiguous = n > 0 && d[n - 1].in == (int64_t)c->job->element;
    if (n == 0)
        count_runs(c, qparam, x, 0, 1, 1);
    else if (n == 1 && contiguous)
        count_runs(c, qparam, x, 0, 1, d->extent);
    else if (n == 2 && contiguous)
        count_runs(c, qparam, x, d[0].in, d[0].extent, d[1].extent);
    else if (n == 1)
        count_strided(c, qparam, x, d->in, d->extent);
    else
        for (int64_t i = 0; i < d->extent; i++)
            count_reduced(c, qparam, d + 1, n - 1, x + i * d->in);
}

static void count_qparams(struct counting *c, const struct loop *kept, int n, const struct loop *reduced,
                          int m, const unsigned char *x, int64_t qparam)
{
    if (n == 0) {
        count_reduced(c, qparam, reduced, m, x);
        empty_counters(c, qparam);
        return;
    }
    for (int64_t i = 0; i < kept->extent; i++)
        count_qparams(c, kept + 1, n - 1, reduced, m, x + i * kept->in, qparam + i * kept->qparam);
}

void qobs_count_nest(struct counting *c, const struct loops *nest)
{
    struct loop kept[MAX_AXES], reduced[MAX_AXES];
    int n = 0, m = 0;
    for (int i = 0; i < nest->count; i++)
        if (nest->loop[i].qparam != 0)
            kept[n++] = nest->loop[i];
        else
            reduced[m++] = nest->loop[i];
    count_qparams(c, kept, n, reduced, m, nest->in, nest->qparam);
}

void qobs_count_each_run(struct counting *c)
{
    static const unsigned char zeros[GATHERED * sizeof(double)];
    const int64_t runs = qobs_plan_run_count(c->job->plan);
    int64_t qparam = 0;
    for (int64_t i = 0; i < runs; i++) {
        qobs_run run;
        qobs_plan_run(c->job->plan, i, &run, NULL);
        if (run.qparam != qparam)
            empty_counters(c, qparam);
        qparam = run.qparam;
        if (run.offset == QOBS_PADDING) {
            count_runs(c, qparam, zeros, 0, run.length / GATHERED, GATHERED);
            count_runs(c, qparam, zeros, 0, 1, run.length % GATHERED);
        } else if (run.stride == (int64_t)c->job->element || run.length == 1) {
            count_runs(c, qparam, c->job->data + run.offset, 0, 1, run.length);
        } else {
            count_strided(c, qparam, c->job->data + run.offset, run.stride, run.length);
        }
    }
    empty_counters(c, qparam);
}

/* ---- A run whose range grows while it is read ---------------------------------------------------------------------------- */

/* More than a core's own caches hold: looking at it then waits for memory and takes about half as long as counting. */
#define FAR ((int64_t)2 << 20)

/* What is counted before the range grows is void and counted again in the end; what comes after it is not. Where the range is expected
 * to grow, or has done so twice, three quarters are looked at first: what is out of range is then mostly known, and counting the rest
 * while it is fetched takes less time than doing so later. */
int qobs_count_widening(struct counting *c, struct qobs_widening *w, const unsigned char *x, int64_t n, qobs_error *error)
{
    const struct counting_job *job = c->job;
    const int64_t size = (int64_t)job->element, most = n * size >= FAR ? n / 4 * 3 : n;
    int64_t look = w->look ? most : 0, counted = 0; /* where looking ends, and from where on counts are good */
    bool widened = false;
    for (int64_t at = 0, part; at < n; at += part) {
        const bool looks = at < look;
        part = looks ? look - at : make_workspace(c, 0);
        part = part < n - at ? part : n - at;
        (looks ? see_runs : add_runs)(c, 0, x + at * size, 0, 1, part);
        const bool inside = c->seen->min >= w->min && c->seen->max <= w->max;
        if (looks || !inside)
            counted = at + part;
        if (inside)
            continue;
        const int status = w->widen(w, error);
        if (status != QOBS_OK)
            return status;
        if (!looks) {
            memset(c->counters, 0, counters_size(job->bins));
            memset(c->counts, 0, job->bins * sizeof *c->counts);
            c->pending = 0;
            look = widened ? most : look;
            widened = true;
        }
    }
    struct qobs_extrema again = qobs_seen_nothing();
    struct counting_job rest = *job;
    struct counting last = {.job = &rest, .counts = c->counts, .seen = &again, .counters = c->counters, .pending = c->pending};
    rest.stops = false;
    count_runs(&last, 0, x, 0, 1, counted);
    empty_counters(&last, 0);
    return QOBS_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From strided elements to calls of the histogram kernel. Its 32-bit counters are emptied into 64-bit counts before
 * they overflow. */
#include <float.h>

#include "histogram/binning.h"
#include "histogram/collect.h"
#include "number/convert.h"

/* Elements that may be counted before the 32-bit counters are emptied. */
#define MAX_PENDING ((uint64_t)1 << 31)
/* Elements that are not contiguous are gathered so many at a time. */
#define GATHERED 2048
/* Elements between two checks for elements outside the binning. */
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

/* Counts runs of contiguous elements of one qparam, at most as many elements as capacity() allows. */
static void add_runs(struct counting *c, int64_t qparam, const unsigned char *x, int64_t stride, int64_t runs,
                     int64_t length)
{
    const struct binning *binning = &c->job->binning[qparam];
    struct extrema *extrema = &c->extrema[qparam];
    c->job->rows(binning, x, stride, (size_t)runs, (size_t)length, c->counters, extrema);
    c->pending += (uint64_t)(runs * length);
    c->stopped = c->job->stops && (extrema->min < binning->lo || extrema->max > binning->hi);
}

/* How many elements may be added at once, at least 1; empties the counters if they are full. */
static int64_t capacity(struct counting *c, int64_t qparam)
{
    if (c->pending >= MAX_PENDING)
        empty_counters(c, qparam);
    const uint64_t free = MAX_PENDING - c->pending;
    return (int64_t)(c->job->stops && free > SLICE ? SLICE : free);
}

/* The extrema alone. The min/max kernels are faster, but they do not reduce magnitudes, skip zeros, or leave out NaN
 * and infinities. */
static void scan_runs(struct counting *c, int64_t qparam, const unsigned char *x, int64_t stride, int64_t runs,
                      int64_t length)
{
    const struct counting_job *job = c->job;
    const struct binning *binning = &job->binning[qparam];
    const qobs_dtype dtype = job->batch.plan->dtype;
    unsigned char min[sizeof(double)], max[sizeof(double)];
    struct nonfinite_count nonfinite = {0};
    if (!binning->magnitude && !binning->skip_zeros) {
        qobs_put_element(min, dtype, INFINITY);
        qobs_put_element(max, dtype, -INFINITY);
        job->batch.kernels->minmax_rows[job->dtype](x, stride, (size_t)runs, (size_t)length, min, max, 0, &nonfinite);
        const struct extrema extrema = {.min = (float)qobs_element(min, dtype) + 0.0f,
                                        .max = (float)qobs_element(max, dtype) + 0.0f};
        if (nonfinite.nan == 0 && nonfinite.inf == 0 && isfinite(extrema.min) && isfinite(extrema.max)) {
            extrema_merge(&c->extrema[qparam], &extrema);
            return;
        }
    }
    const struct binning nothing = qobs_binning_of_nothing(1, binning->magnitude, binning->skip_zeros);
    job->rows(&nothing, x, stride, (size_t)runs, (size_t)length, c->counters, &c->extrema[qparam]);
}

/* Counts runs of contiguous elements of one qparam: as many at a time as fit the capacity, or parts of a run that
 * exceeds it. */
static void count_runs(struct counting *c, int64_t qparam, const unsigned char *x, int64_t stride, int64_t runs,
                       int64_t length)
{
    for (int64_t n; runs > 0 && length > 0; runs -= n, x += n * stride) {
        if (c->stopped) {
            scan_runs(c, qparam, x, stride, runs, length);
            return;
        }
        const int64_t fitting = capacity(c, qparam) / length;
        n = fitting < 1 ? 1 : fitting < runs ? fitting : runs;
        if (fitting > 0) {
            add_runs(c, qparam, x, stride, n, length);
            continue;
        }
        for (int64_t done = 0, part; done < length; done += part) {
            const int64_t most = capacity(c, qparam);
            part = c->stopped || most > length - done ? length - done : most;
            (c->stopped ? scan_runs : add_runs)(c, qparam, x + done * (int64_t)c->job->element, 0, 1, part);
        }
    }
}

/* Counts n elements of one qparam, `stride` bytes apart. */
static void count_strided(struct counting *c, int64_t qparam, const unsigned char *x, int64_t stride, int64_t n)
{
    const int64_t element = (int64_t)c->job->element;
    unsigned char buffer[GATHERED * sizeof(double)];
    while (n > 0) {
        const int64_t m = n < GATHERED ? n : GATHERED;
        qobs_copy_elements(element, m, x, stride, buffer, element);
        count_runs(c, qparam, buffer, 0, 1, m);
        x += m * stride;
        n -= m;
    }
}

/* ---- Loop nests -------------------------------------------------------------------------------------------------- */

/* The loops whose elements share a qparam; the innermost ones are those of a call. */
struct reduced {
    struct counting *c;
    int64_t qparam;
    struct loop loop[MAX_AXES];
    int count; /* that are walked */
    struct loop runs, run;
};

static void count_entry(void *argument, const struct loop_entry *at)
{
    const struct reduced *r = argument;
    if (r->run.in == (int64_t)r->c->job->element)
        count_runs(r->c, r->qparam, at->in, r->runs.in, r->runs.extent, r->run.extent);
    else
        count_strided(r->c, r->qparam, at->in, r->run.in, r->run.extent);
}

static void count_qparam(void *argument, const struct loop_entry *at)
{
    struct reduced *r = argument;
    r->qparam = at->qparam;
    qobs_loops_walk(r->loop, r->count, *at, count_entry, r);
    empty_counters(r->c, at->qparam);
}

void qobs_count_loops(struct counting *c, const struct loops *loops)
{
    const int64_t element = (int64_t)c->job->element;
    struct reduced r = {.c = c, .runs = qobs_single_loop, .run = {1, element, 0, 0}};
    struct loop outer[MAX_AXES];
    int n = 0;
    for (int i = 0; i < loops->count; i++)
        if (loops->loop[i].qparam != 0)
            outer[n++] = loops->loop[i];
        else
            r.loop[r.count++] = loops->loop[i];
    if (r.count > 0)
        r.run = r.loop[--r.count];
    if (r.count > 0 && r.run.in == element)
        r.runs = r.loop[--r.count];
    qobs_loops_walk(outer, n, (struct loop_entry){loops->in, NULL, loops->qparam}, count_qparam, &r);
}

void qobs_count_each_run(struct counting *c)
{
    static const unsigned char zeros[GATHERED * sizeof(double)];
    const int64_t runs = qobs_plan_run_count(c->job->batch.plan);
    int64_t qparam = 0;
    for (int64_t i = 0; i < runs; i++) {
        qobs_run run;
        qobs_plan_run(c->job->batch.plan, i, &run, NULL);
        if (run.qparam != qparam)
            empty_counters(c, qparam);
        qparam = run.qparam;
        if (run.offset == QOBS_PADDING) {
            count_runs(c, qparam, zeros, 0, run.length / GATHERED, GATHERED);
            count_runs(c, qparam, zeros, 0, 1, run.length % GATHERED);
        } else if (run.stride == (int64_t)c->job->element || run.length == 1) {
            count_runs(c, qparam, c->job->batch.data + run.offset, 0, 1, run.length);
        } else {
            count_strided(c, qparam, c->job->batch.data + run.offset, run.stride, run.length);
        }
    }
    empty_counters(c, qparam);
}

/* ---- A run whose range grows while it is read -------------------------------------------------------------------- */

/* Longer runs, in bytes, exceed L2. Scanning one then waits for memory and takes about half as long as counting it. */
#define FAR ((int64_t)2 << 20)

static bool holds(const struct growing_range *range, const struct extrema *extrema)
{
    return extrema->min >= range->min && extrema->max <= range->max;
}

/* Scans n elements and grows the range to hold them. */
static int scan_prefix(struct counting *c, struct growing_range *range, const unsigned char *x, int64_t n,
                       qobs_error *error)
{
    scan_runs(c, 0, x, 0, 1, n);
    return holds(range, c->extrema) ? QOBS_OK : range->grow(range, error);
}

/* Counts elements [*at, n) until one is outside the range. The range then grows, all counts are discarded, *grown is
 * true and *at is the first element that has not been read. */
static int count_until_growth(struct counting *c, struct growing_range *range, const unsigned char *x, int64_t n,
                              int64_t *at, bool *grown, qobs_error *error)
{
    const struct counting_job *job = c->job;
    *grown = false;
    while (*at < n && !*grown) {
        const int64_t most = capacity(c, 0), part = most < n - *at ? most : n - *at;
        add_runs(c, 0, x + *at * (int64_t)job->element, 0, 1, part);
        *at += part;
        *grown = !holds(range, c->extrema);
    }
    if (!*grown)
        return QOBS_OK;
    memset(c->counters, 0, counters_size(job->bins));
    memset(c->counts, 0, job->bins * sizeof *c->counts);
    c->pending = 0;
    return range->grow(range, error);
}

/* Counts the first n elements of a run, under a range that holds all of them. */
static void count_prefix(struct counting *c, const unsigned char *x, int64_t n)
{
    struct extrema unused = qobs_extrema_of_nothing();
    struct counting_job job = *c->job;
    struct counting prefix = *c;
    job.stops = false;
    prefix.job = &job;
    prefix.extrema = &unused;
    prefix.stopped = false;
    count_runs(&prefix, 0, x, 0, 1, n);
    empty_counters(&prefix, 0);
}

/* One pass over the run. Each growth discards the counts so far; the elements before it are counted again at the end.
 * If growth is expected, or has happened twice, 3/4 of the run is scanned before more is counted, or all of it if it
 * fits L2. The final range is then mostly known before counting starts. */
int qobs_count_growing(struct counting *c, struct growing_range *range, const unsigned char *x, int64_t n,
                       qobs_error *error)
{
    const int64_t size = (int64_t)c->job->element, prefix = n * size >= FAR ? n / 4 * 3 : n;
    int64_t at = 0, discarded = 0; /* the next element; how many are not in the counts */
    int status = QOBS_OK, growths = range->expected ? 2 : 0;
    while (at < n && status == QOBS_OK) {
        bool grown = true;
        if (growths >= 2 && at < prefix) {
            status = scan_prefix(c, range, x + at * size, prefix - at, error);
            at = prefix;
        } else {
            status = count_until_growth(c, range, x, n, &at, &grown, error);
            growths += grown;
        }
        discarded = grown ? at : discarded;
    }
    if (status == QOBS_OK)
        count_prefix(c, x, discarded);
    return status;
}

/* ---- Bins -------------------------------------------------------------------------------------------------------- */

struct binning qobs_binning_of(float lo, float hi, size_t bins, bool magnitude, bool skip_zeros)
{
    struct binning b = {
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

struct binning qobs_binning_of_nothing(size_t bins, bool magnitude, bool skip_zeros)
{
    struct binning b = qobs_binning_of(-1, 1, bins, magnitude, skip_zeros);
    b.lo = INFINITY;
    b.hi = -INFINITY;
    return b;
}

struct extrema qobs_extrema_of_nothing(void) { return (struct extrema){.min = INFINITY, .max = -INFINITY}; }

float qobs_bin_edge(const struct bin_range *range, size_t bins, size_t i)
{
    if (range->step > 0)
        return (float)((double)range->lo + (double)range->step * (double)i);
    const struct linspace edges = linspace_of(range->lo, range->hi, bins + 1);
    return i == bins ? range->hi : linspace_at(&edges, i);
}

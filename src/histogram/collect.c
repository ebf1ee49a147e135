/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Splits a batch over threads, and its elements into calls of the histogram kernel. Each thread has 32-bit counters,
 * which are emptied into 64-bit counts before they overflow. */
#include "histogram/collect.h"

#include <float.h>
#include <math.h>

#include "base/split.h"
#include "number/convert.h"

/* Elements that may be counted before the 32-bit counters are emptied. */
#define MAX_PENDING ((int64_t)1 << 31)

enum { GATHERED = 2048, MIN_ELEMENTS = 1 << 16 }; /* GATHERED: elements that are not contiguous, at a time */

/* The counters of one thread. */
struct counting {
    const struct batch *batch;
    qobs_histogram_rows_fn *rows;
    int64_t element;               /* bytes */
    const struct binning *binning; /* [qparams] */
    size_t bins;
    uint64_t *counts;        /* [qparams * bins] */
    struct extrema *extrema; /* [qparams] */
    uint32_t *counters;      /* counters_size(bins) bytes, all 0 between qparams */
    int64_t pending, qparam; /* elements in the counters, and their qparam */
};

static size_t counters_size(size_t bins) { return QOBS_COUNTER_COPIES * qobs_counter_stride(bins) * sizeof(uint32_t); }

static int out_of_memory(size_t size, qobs_error *error)
{
    return qobs_no_memory(error, "histogram: no memory for %zu bytes of counters", size);
}

/* ---- One thread -------------------------------------------------------------------------------------------------- */

static void empty_counters(struct counting *c)
{
    uint64_t *counts = c->counts + (size_t)c->qparam * c->bins;
    for (size_t copy = 0; copy < QOBS_COUNTER_COPIES && c->pending > 0; copy++) {
        uint32_t *counters = c->counters + copy * qobs_counter_stride(c->bins);
        for (size_t k = 0; k < c->bins; k++)
            counts[k] += counters[k];
        memset(counters, 0, c->bins * sizeof *counters);
    }
    c->pending = 0;
}

/* Counts runs of contiguous elements of one qparam, `stride` bytes apart: as many elements at a time as the counters
 * take. */
static void count_runs(struct counting *c, int64_t qparam, const unsigned char *x, int64_t stride, int64_t runs,
                       int64_t length)
{
    if (qparam != c->qparam)
        empty_counters(c);
    c->qparam = qparam;
    for (int64_t done = 0, part; done < length; done += part) {
        part = length - done < MAX_PENDING ? length - done : MAX_PENDING;
        for (int64_t run = 0, n; run < runs; run += n) {
            if (c->pending > MAX_PENDING - part)
                empty_counters(c);
            const int64_t most = (MAX_PENDING - c->pending) / part;
            n = runs - run < most ? runs - run : most;
            c->rows(&c->binning[qparam], x + run * stride + done * c->element, stride, (size_t)n, (size_t)part,
                    c->counters, &c->extrema[qparam]);
            c->pending += n * part;
        }
    }
}

/* Counts n elements of one qparam, `step` bytes apart. */
static void count_run(struct counting *c, int64_t qparam, const unsigned char *x, int64_t step, int64_t n)
{
    unsigned char buffer[GATHERED * sizeof(double)];
    if (step == c->element || n == 1) {
        count_runs(c, qparam, x, 0, 1, n);
        return;
    }
    for (int64_t first = 0; first < n; first += GATHERED) {
        const int64_t some = n - first < GATHERED ? n - first : GATHERED;
        qobs_copy_elements(c->element, some, x + first * step, step, buffer, c->element);
        count_runs(c, qparam, buffer, 0, 1, some);
    }
}

/* The innermost loops of a qparam, which are those of a call. */
struct counted_runs {
    struct counting *c;
    struct loop runs, run;
};

static void count_entry(void *argument, const struct loop_entry *at)
{
    const struct counted_runs *i = argument;
    if (i->runs.extent > 1)
        count_runs(i->c, at->qparam, at->in, i->runs.in, i->runs.extent, i->run.extent);
    else
        count_run(i->c, at->qparam, at->in, i->run.in, i->run.extent);
}

/* Walks the loops of the qparams, and inside those the loops whose elements share one. */
static void count_loops(struct counting *c, const struct loops *loops)
{
    struct counted_runs inner = {.c = c, .runs = qobs_single_loop, .run = qobs_single_loop};
    struct loop walked[MAX_AXES] = {qobs_single_loop};
    int n = 0;
    for (int shared = 0; shared < 2; shared++)
        for (int i = 0; i < loops->count; i++)
            if ((loops->loop[i].qparam == 0) == shared)
                walked[n++] = loops->loop[i];
    if (n > 0 && walked[n - 1].qparam == 0)
        inner.run = walked[--n];
    if (n > 0 && walked[n - 1].qparam == 0 && inner.run.in == c->element)
        inner.runs = walked[--n];
    qobs_loops_walk(walked, n, (struct loop_entry){loops->in, NULL, loops->qparam}, count_entry, &inner);
    empty_counters(c);
}

/* Run by run: for plans with g_idx or with padded blocks. */
static void count_each_run(struct counting *c)
{
    static const double zero;
    const qobs_plan *plan = c->batch->plan;
    for (int64_t i = 0, runs = qobs_plan_run_count(plan); i < runs; i++) {
        qobs_run run;
        qobs_plan_run(plan, i, &run, NULL);
        if (run.offset == QOBS_PADDING)
            count_run(c, run.qparam, (const unsigned char *)&zero, 0, run.length);
        else
            count_run(c, run.qparam, c->batch->data + run.offset, run.stride, run.length);
    }
    empty_counters(c);
}

/* ---- Work for several threads ------------------------------------------------------------------------------------ */

/* In elements. */
static const struct split_rule rule = {
    .min_total = 2 * MIN_ELEMENTS, .min_part = MIN_ELEMENTS, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS};

/* The loop to split for `threads`: the longest along which qparams lie if it is long enough, else the outermost that is
 * reduced; -1: there is none. */
static int loop_to_split(const struct loops *loops, size_t threads)
{
    int longest = -1, reduced = -1;
    for (int i = 0; i < loops->count; i++) {
        const struct loop *l = &loops->loop[i];
        if (l->qparam == 0)
            reduced = reduced < 0 ? i : reduced;
        else if (l->extent >= (int64_t)threads && (longest < 0 || l->extent > loops->loop[longest].extent))
            longest = i;
    }
    return longest < 0 ? reduced : longest;
}

struct count_parts {
    const struct loops *loops;
    int axis; /* the loop that is split */
    struct counting counting[SPLIT_MAX_PARTS];
};

static void count_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct count_parts *p = argument;
    struct loops loops = *p->loops;
    if (p->axis >= 0)
        qobs_loops_cut(&loops, p->axis, from, to);
    count_loops(&p->counting[part], &loops);
}

/* The first part counts into *total. Each other part has private counters. If the split loop is reduced, it also has
 * private counts and extrema, and a thread gets one part. */
static int count_tile(const struct counting *total, struct loops *loops, qobs_error *error)
{
    const struct runtime *runtime = total->batch->runtime;
    qobs_loops_normalise(loops, LOOPS_BY_INPUT);
    struct count_parts p = {.loops = loops, .axis = loop_to_split(loops, qobs_threads(runtime)), .counting = {*total}};
    const struct loop *split_loop = p.axis < 0 ? &qobs_single_loop : &loops->loop[p.axis];
    const bool private = split_loop->qparam == 0;
    const int64_t work = qobs_loops_elements(loops);
    const struct split split = qobs_split(runtime, &rule, split_loop->extent, work, private ? work : 0);
    const size_t qparams = (size_t)total->batch->plan->qparams, others = (size_t)split.parts - 1;
    const size_t counters = counters_size(total->bins), all = private ? qparams * total->bins : 0;
    const size_t each = all * sizeof(uint64_t) + counters + (private ? qparams * sizeof(struct extrema) : 0);
    unsigned char *memory = others > 0 ? qobs_allocate(runtime, others * each) : NULL, *own = memory;
    if (others > 0 && !memory)
        return out_of_memory(others * each, error);
    for (size_t i = 1; i <= others; i++, own += each) {
        struct counting *c = &p.counting[i];
        *c = *total;
        memset(own, 0, each);
        c->counters = (uint32_t *)(void *)(own + all * sizeof(uint64_t));
        if (!private)
            continue;
        c->counts = (uint64_t *)(void *)own;
        c->extrema = (struct extrema *)(void *)(own + all * sizeof(uint64_t) + counters);
        for (size_t q = 0; q < qparams; q++)
            c->extrema[q] = qobs_extrema_of_nothing();
    }
    qobs_split_run(runtime, &split, count_part, &p);
    for (size_t i = 1; private && i <= others; i++) {
        for (size_t k = 0; k < all; k++)
            total->counts[k] += p.counting[i].counts[k];
        for (size_t q = 0; q < qparams; q++)
            extrema_merge(&total->extrema[q], &p.counting[i].extrema[q]);
    }
    qobs_release(runtime, memory, others * each);
    return QOBS_OK;
}

int qobs_collect(const struct batch *batch, const struct binning *binning, uint64_t *counts, struct extrema *extrema,
                 qobs_error *error)
{
    const qobs_plan *plan = batch->plan;
    const bool by_runs = plan->order || plan->padded;
    const size_t qparams = (size_t)plan->qparams, bins = qparams > 0 ? binning->bins : 0, size = counters_size(bins);
    enum kernel_dtype dtype;
    int status = QOBS_OK;
    qobs_kernel_dtype_of(plan->dtype, &dtype);
    struct counting counting = {.batch = batch,
                                .rows = batch->kernels->histogram_rows[dtype],
                                .element = (int64_t)qobs_dtype_size(plan->dtype),
                                .binning = binning,
                                .bins = bins,
                                .counts = counts,
                                .extrema = extrema,
                                .counters = qobs_allocate(batch->runtime, size)};
    if (!counting.counters)
        return out_of_memory(size, error);
    memset(counting.counters, 0, size);
    memset(counts, 0, qparams * bins * sizeof *counts);
    for (size_t q = 0; q < qparams; q++)
        extrema[q] = qobs_extrema_of_nothing();
    if (by_runs)
        count_each_run(&counting);
    for (unsigned tails = 0, n = qobs_plan_tiles(plan); tails < n && !by_runs && status == QOBS_OK; tails++) {
        struct loops loops;
        if (qobs_loops_of_tile(plan, tails, batch->data, NULL, NULL, &loops))
            status = count_tile(&counting, &loops, error);
    }
    qobs_release(batch->runtime, counting.counters, size);
    return status;
}

/* ---- Extrema alone ----------------------------------------------------------------------------------------------- */

/* By the min/max kernels. *finite is false, and the extrema are invalid, if an element is NaN or infinite. */
static int scan_minmax(const struct batch *batch, struct extrema *extrema, bool *finite, qobs_error *error)
{
    const qobs_plan *plan = batch->plan;
    const size_t n = (size_t)plan->qparams, element = qobs_dtype_size(plan->dtype), size = 2 * n * element;
    unsigned char *min = qobs_allocate(batch->runtime, size), *max = min ? min + n * element : NULL;
    struct nonfinite_count nonfinite = {0};
    if (!min)
        return out_of_memory(size, error);
    const int status = qobs_reduce_minmax(batch->runtime, batch->kernels, plan, batch->data, NONFINITE_PROPAGATE, min,
                                          max, &nonfinite, error);
    *finite = nonfinite.nan == 0 && nonfinite.inf == 0;
    for (size_t q = 0; q < n && status == QOBS_OK; q++) {
        extrema[q] = (struct extrema){.min = (float)qobs_element(min + q * element, plan->dtype),
                                      .max = (float)qobs_element(max + q * element, plan->dtype)};
        *finite &= isfinite(extrema[q].min) && isfinite(extrema[q].max); /* F64 exceeds float */
    }
    qobs_release(batch->runtime, min, size);
    return status;
}

int qobs_scan_extrema(const struct batch *batch, bool magnitude, bool skip_zeros, struct extrema *extrema,
                      qobs_error *error)
{
    const size_t n = (size_t)batch->plan->qparams, size = n * (sizeof(uint64_t) + sizeof(struct binning));
    bool finite = false;
    if (!magnitude && !skip_zeros && batch->plan->value.elements > 0) {
        const int status = scan_minmax(batch, extrema, &finite, error);
        if (status != QOBS_OK || finite)
            return status;
    }
    uint64_t *counts = qobs_allocate(batch->runtime, size);
    if (!counts)
        return out_of_memory(size, error);
    struct binning *nothing = (struct binning *)(void *)(counts + n);
    for (size_t q = 0; q < n; q++)
        nothing[q] = qobs_binning_of_nothing(1, magnitude, skip_zeros);
    const int status = qobs_collect(batch, nothing, counts, extrema, error);
    qobs_release(batch->runtime, counts, size);
    return status;
}

int qobs_check_extrema(const struct batch *batch, enum nonfinite_mode mode, const struct extrema *extrema,
                       struct nonfinite_count *nonfinite, qobs_error *error)
{
    *nonfinite = (struct nonfinite_count){0};
    for (int64_t q = 0; q < batch->plan->qparams; q++) {
        nonfinite->nan += extrema[q].nonfinite.nan;
        nonfinite->inf += extrema[q].nonfinite.inf;
    }
    const bool infinities = mode == NONFINITE_REFUSE;
    if (mode == NONFINITE_IGNORE || (nonfinite->nan == 0 && !(infinities && nonfinite->inf > 0)))
        return QOBS_OK;
    return qobs_fail_nonfinite(batch->plan, batch->data, nonfinite, infinities, error);
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

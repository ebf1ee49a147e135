/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The histogram of one batch for every qparam of a plan: strides to kernels. */
#include <math.h>
#include <string.h>

#include "error.h"
#include "fpenv.h"
#include "statistic/histogram.h"
#include "statistic/nest.h"
#include "statistic/reduce.h"

/* Elements that may be counted before the counters, of 32 bits, are emptied. */
#define MOST_PENDING ((uint64_t)1 << 31)
/* Elements that do not lie next to each other are brought together here. */
#define GATHERED 2048
/* Elements between two looks at whether all lie inside. */
#define SLICE ((uint64_t)1 << 16)

struct job {
    const struct runtime *runtime;
    const struct qobs_kernels *kernels;
    const qobs_plan *plan;
    const unsigned char *data;
    const struct qobs_binning *binning;
    enum qobs_kernel_dtype dtype;
    qobs_histogram_rows_fn *rows;
    size_t element, bins;
    bool stops; /* counting, once an element lies outside */
};

/* Where one thread counts. */
struct counting {
    const struct job *job;
    uint64_t *counts;
    struct qobs_seen *seen;
    uint32_t *counters; /* of counters_size(bins), all 0 between qparams */
    uint64_t pending;   /* elements in them */
    bool stopped;
};

static void merge_seen(struct qobs_seen *to, const struct qobs_seen *from)
{
    to->min = from->min < to->min ? from->min : to->min;
    to->max = from->max > to->max ? from->max : to->max;
    to->nonfinite.nan += from->nonfinite.nan;
    to->nonfinite.inf += from->nonfinite.inf;
}

static size_t counters_size(size_t bins)
{
    return QOBS_COUNTER_COPIES * qobs_counter_stride(bins) * sizeof(uint32_t);
}

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
    struct qobs_seen *seen = &c->seen[qparam];
    c->job->rows(binning, x, stride, (size_t)runs, (size_t)length, c->counters, seen);
    c->pending += (uint64_t)(runs * length);
    c->stopped = c->job->stops && (seen->min < binning->lo || seen->max > binning->hi);
}

/* How many elements may be added at once, made at least 1. */
static int64_t make_room(struct counting *c, int64_t qparam)
{
    if (c->pending >= MOST_PENDING)
        empty_counters(c, qparam);
    const uint64_t room = MOST_PENDING - c->pending;
    return (int64_t)(c->job->stops && room > SLICE ? SLICE : room);
}

/* The extremes alone, with the kernels of minimum and maximum unless there is something they do not leave out. */
static void see_runs(struct counting *c, int64_t qparam, const unsigned char *x, int64_t stride, int64_t runs, int64_t length)
{
    const struct job *job = c->job;
    const struct qobs_binning *binning = &job->binning[qparam];
    unsigned char min[sizeof(double)], max[sizeof(double)];
    struct qobs_nonfinite nonfinite = {0};
    if (!binning->magnitude && !binning->skip_zeros) {
        qobs_put_element(min, job->plan->dtype, INFINITY);
        qobs_put_element(max, job->plan->dtype, -INFINITY);
        job->kernels->minmax_rows[job->dtype](x, stride, (size_t)runs, (size_t)length, min, max, 0, &nonfinite);
        const struct qobs_seen seen = {.min = (float)qobs_element(min, job->plan->dtype) + 0.0f,
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
        const int64_t whole = make_room(c, qparam) / length;
        n = whole < 1 ? 1 : whole < runs ? whole : runs;
        if (whole > 0) {
            add_runs(c, qparam, x, stride, n, length);
            continue;
        }
        for (int64_t done = 0, part; done < length; done += part) {
            const int64_t room = make_room(c, qparam);
            part = c->stopped || room > length - done ? length - done : room;
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
static void count_reduced(struct counting *c, int64_t qparam, const struct nest_dimension *d, int n, const unsigned char *x)
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

static void count_qparams(struct counting *c, const struct nest_dimension *kept, int n, const struct nest_dimension *reduced,
                          int m, const unsigned char *x, int64_t qparam)
{
    if (n == 0) {
        count_reduced(c, qparam, reduced, m, x);
        empty_counters(c, qparam);
        return;
    }
    for (int64_t i = 0; i < kept->extent; i++)
        count_qparams(c, kept + 1, n - 1, reduced, m, x + i * kept->in, qparam + i * kept->out);
}

static void count_nest(struct counting *c, const struct nest *nest)
{
    struct nest_dimension kept[MAX_AXES], reduced[MAX_AXES];
    int n = 0, m = 0;
    for (int i = 0; i < nest->dimensions; i++)
        if (nest->dimension[i].out != 0)
            kept[n++] = nest->dimension[i];
        else
            reduced[m++] = nest->dimension[i];
    count_qparams(c, kept, n, reduced, m, nest->base, nest->out);
}

/* ---- Work for several threads ------------------------------------------------------------------------------------------- */

enum { MOST_PIECES = 64, PIECES_PER_THREAD = 4, LEAST_ELEMENTS = 1 << 16 };

struct pieces {
    const struct nest *nest;
    int cut; /* the dimension that is cut */
    size_t count;
    struct counting counting[MOST_PIECES];
};

static void do_piece(void *argument, size_t index)
{
    struct pieces *p = argument;
    struct nest nest = *p->nest;
    struct nest_dimension *cut = &nest.dimension[p->cut];
    const int64_t count = (int64_t)p->count, extent = cut->extent;
    const int64_t from = extent / count * (int64_t)index + extent % count * (int64_t)index / count;
    const int64_t to = extent / count * ((int64_t)index + 1) + extent % count * ((int64_t)index + 1) / count;
    nest.base += from * cut->in;
    nest.out += from * cut->out;
    cut->extent = to - from;
    const fp_mode mode = fp_enter();
    count_nest(&p->counting[index], &nest);
    fp_leave(mode);
}

/* Which dimension to cut for `threads`: one along which qparams lie if it is long enough, else the outermost that is reduced. */
static int dimension_to_cut(const struct nest *nest, size_t threads)
{
    int best = -1;
    for (int i = 0; i < nest->dimensions; i++) {
        const struct nest_dimension *d = &nest->dimension[i];
        if (d->out != 0 && d->extent >= (int64_t)threads && (best < 0 || d->extent > nest->dimension[best].extent))
            best = i;
    }
    for (int i = 0; i < nest->dimensions && best < 0; i++)
        if (nest->dimension[i].out == 0)
            best = i;
    return best;
}

static int64_t elements_of(const struct nest *nest)
{
    int64_t elements = 1;
    for (int i = 0; i < nest->dimensions; i++)
        elements *= nest->dimension[i].extent;
    return elements;
}

static int out_of_memory(size_t size, qobs_error *error)
{
    return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "histogram: no memory for %zu bytes of counters", size);
}

/* Pieces of a reduced dimension count apart: the first for the caller, the others in memory of their own. */
static int do_nest(struct counting *whole, struct nest *nest, qobs_error *error)
{
    const struct job *job = whole->job;
    qobs_nest_normalise(nest);
    const size_t threads = qobs_threads(job->runtime), bins = job->bins, qparams = (size_t)job->plan->qparams;
    struct pieces p = {.nest = nest, .count = 1, .counting = {*whole}};
    p.cut = threads > 1 && elements_of(nest) >= 2 * LEAST_ELEMENTS ? dimension_to_cut(nest, threads) : -1;
    if (p.cut < 0) {
        count_nest(whole, nest);
        return QOBS_OK;
    }
    const bool apart = nest->dimension[p.cut].out == 0;
    const int64_t most = elements_of(nest) / LEAST_ELEMENTS, extent = nest->dimension[p.cut].extent;
    p.count = threads * (apart ? 1 : PIECES_PER_THREAD);
    p.count = p.count < MOST_PIECES ? p.count : MOST_PIECES;
    p.count = (int64_t)p.count < most ? p.count : (size_t)most;
    p.count = (int64_t)p.count < extent ? p.count : (size_t)extent;
    const size_t counters = counters_size(bins), counts = apart ? qparams * bins * sizeof(uint64_t) : 0;
    const size_t each = counts + counters + (apart ? qparams * sizeof(struct qobs_seen) : 0), size = (p.count - 1) * each;
    unsigned char *memory = qobs_allocate(job->runtime, size);
    if (!memory)
        return out_of_memory(size, error);
    memset(memory, 0, size);
    for (size_t i = 1; i < p.count; i++) {
        unsigned char *own = memory + (i - 1) * each;
        p.counting[i] = *whole;
        p.counting[i].counters = (uint32_t *)(void *)(own + counts);
        if (!apart)
            continue;
        p.counting[i].counts = (uint64_t *)(void *)own;
        p.counting[i].seen = (struct qobs_seen *)(void *)(own + counts + counters);
        for (size_t q = 0; q < qparams; q++)
            p.counting[i].seen[q] = qobs_seen_nothing();
    }
    qobs_parallel_for(job->runtime, do_piece, &p, p.count);
    for (size_t i = 0; i < p.count; i++)
        whole->stopped = whole->stopped || p.counting[i].stopped;
    for (size_t i = 1; apart && i < p.count; i++) {
        for (size_t k = 0; k < qparams * bins; k++)
            whole->counts[k] += p.counting[i].counts[k];
        for (size_t q = 0; q < qparams; q++)
            merge_seen(&whole->seen[q], &p.counting[i].seen[q]);
    }
    qobs_release(job->runtime, memory, size);
    return QOBS_OK;
}

/* Where g_idx orders the columns or zeros pad blocks: run by run. */
static void do_runs(struct counting *c)
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

static struct job job_of(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                         const unsigned char *data, const struct qobs_binning *binning, bool stops)
{
    enum qobs_kernel_dtype dtype;
    qobs_kernel_dtype_of(plan->dtype, &dtype);
    return (struct job){.runtime = runtime,
                        .kernels = kernels,
                        .plan = plan,
                        .data = data,
                        .binning = binning,
                        .dtype = dtype,
                        .rows = kernels->histogram_rows[dtype],
                        .element = qobs_dtype_size(plan->dtype),
                        .bins = plan->qparams > 0 ? binning->bins : 0,
                        .stops = stops};
}

int qobs_collect(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                 const unsigned char *data, const struct qobs_binning *binning, uint64_t *counts, struct qobs_seen *seen,
                 bool *stopped, qobs_error *error)
{
    const struct job job = job_of(runtime, kernels, plan, data, binning, stopped != NULL);
    const size_t size = counters_size(job.bins);
    struct counting counting = {.job = &job, .counts = counts, .seen = seen, .counters = qobs_allocate(runtime, size)};
    if (!counting.counters)
        return out_of_memory(size, error);
    memset(counting.counters, 0, size);
    memset(counts, 0, (size_t)plan->qparams * job.bins * sizeof *counts);
    for (int64_t q = 0; q < plan->qparams; q++)
        seen[q] = qobs_seen_nothing();
    int status = QOBS_OK;
    if (plan->order || plan->padded)
        do_runs(&counting);
    for (unsigned ends = 0, n = qobs_plan_rectangles(plan); ends < n && !plan->order && !plan->padded && status == QOBS_OK; ends++) {
        struct nest nest;
        if (qobs_nest_of_plan(plan, data, ends, &nest))
            status = do_nest(&counting, &nest, error);
    }
    qobs_release(runtime, counting.counters, size);
    if (stopped)
        *stopped = counting.stopped;
    return status;
}

/* ---- A run whose range grows while it is read ---------------------------------------------------------------------------- */

/* More than a core's own caches hold: looking at it then waits for memory and takes about half as long as counting. */
#define FAR ((int64_t)2 << 20)

static bool is_one_run(const struct job *job, struct nest *nest)
{
    const qobs_plan *plan = job->plan;
    if (plan->order || plan->padded || plan->qparams != 1 || qobs_plan_rectangles(plan) != 1 ||
        !qobs_nest_of_plan(plan, job->data, 0, nest))
        return false;
    qobs_nest_normalise(nest);
    const bool alone = qobs_threads(job->runtime) == 1 || elements_of(nest) < 2 * LEAST_ELEMENTS;
    return alone && nest->dimensions == 1 && nest->dimension->in == (int64_t)job->element && nest->dimension->out == 0;
}

/* What is counted before the range grows is void and counted again in the end; what comes after it is not. Where the range is expected
 * to grow, or has done so twice, three quarters are looked at first: what is out of range is then mostly known, and counting the rest
 * while it is fetched takes less time than doing so later. */
static int count_growing(struct counting *c, struct qobs_widening *w, const unsigned char *x, int64_t n, qobs_error *error)
{
    const struct job *job = c->job;
    const int64_t size = (int64_t)job->element, most = n * size >= FAR ? n / 4 * 3 : n;
    int64_t look = w->look ? most : 0, counted = 0; /* where looking ends, and from where on counts are good */
    bool widened = false;
    for (int64_t at = 0, part; at < n; at += part) {
        const bool looks = at < look;
        part = looks ? look - at : make_room(c, 0);
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
    struct qobs_seen again = qobs_seen_nothing();
    struct job rest = *job;
    struct counting last = {.job = &rest, .counts = c->counts, .seen = &again, .counters = c->counters, .pending = c->pending};
    rest.stops = false;
    count_runs(&last, 0, x, 0, 1, counted);
    empty_counters(&last, 0);
    return QOBS_OK;
}

int qobs_collect_widening(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                          const unsigned char *data, struct qobs_widening *widening, const struct qobs_binning *binning,
                          uint64_t *counts, struct qobs_seen *seen, bool *counted, qobs_error *error)
{
    const struct job job = job_of(runtime, kernels, plan, data, binning, true);
    struct nest nest;
    *counted = is_one_run(&job, &nest);
    if (!*counted)
        return QOBS_OK;
    const size_t size = counters_size(job.bins);
    struct counting counting = {.job = &job, .counts = counts, .seen = seen, .counters = qobs_allocate(runtime, size)};
    if (!counting.counters)
        return out_of_memory(size, error);
    memset(counting.counters, 0, size);
    memset(counts, 0, job.bins * sizeof *counts);
    *seen = qobs_seen_nothing();
    const int status = count_growing(&counting, widening, nest.base, nest.dimension->extent, error);
    qobs_release(runtime, counting.counters, size);
    return status;
}

/* ---- Extremes alone ------------------------------------------------------------------------------------------------------ */

/* With the kernels of minimum and maximum, unless there is something they do not leave out. */
static int see_extremes(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                        const unsigned char *data, struct qobs_seen *seen, bool *finite, qobs_error *error)
{
    const size_t n = (size_t)plan->qparams, element = qobs_dtype_size(plan->dtype), size = 2 * n * element;
    unsigned char *min = qobs_allocate(runtime, size), *max = min ? min + n * element : NULL;
    struct qobs_nonfinite nonfinite = {0};
    if (!min)
        return out_of_memory(size, error);
    const int status = qobs_reduce_minmax(runtime, kernels, plan, data, NONFINITE_PROPAGATE, min, max, &nonfinite, error);
    *finite = nonfinite.nan == 0 && nonfinite.inf == 0;
    for (size_t q = 0; q < n && status == QOBS_OK; q++) {
        seen[q] = (struct qobs_seen){.min = (float)qobs_element(min + q * element, plan->dtype),
                                     .max = (float)qobs_element(max + q * element, plan->dtype)};
        *finite &= isfinite(seen[q].min) && isfinite(seen[q].max); /* F64 may hold what float does not */
    }
    qobs_release(runtime, min, size);
    return status;
}

int qobs_see(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan, const unsigned char *data,
             bool magnitude, bool skip_zeros, struct qobs_seen *seen, qobs_error *error)
{
    const size_t n = (size_t)plan->qparams, size = n * (sizeof(uint64_t) + sizeof(struct qobs_binning));
    bool finite = false;
    if (!magnitude && !skip_zeros && plan->value.elements > 0) {
        const int status = see_extremes(runtime, kernels, plan, data, seen, &finite, error);
        if (status != QOBS_OK || finite)
            return status;
    }
    uint64_t *counts = qobs_allocate(runtime, size);
    if (!counts)
        return out_of_memory(size, error);
    struct qobs_binning *nothing = (struct qobs_binning *)(void *)(counts + n);
    for (size_t q = 0; q < n; q++)
        nothing[q] = qobs_binning_of_nothing(1, magnitude, skip_zeros);
    const int status = qobs_collect(runtime, kernels, plan, data, nothing, counts, seen, NULL, error);
    qobs_release(runtime, counts, size);
    return status;
}

int qobs_check_seen(const qobs_plan *plan, const unsigned char *data, enum nonfinite_mode mode, const struct qobs_seen *seen,
                    struct qobs_nonfinite *nonfinite, qobs_error *error)
{
    struct qobs_nonfinite counted = {0};
    for (int64_t q = 0; q < plan->qparams; q++) {
        counted.nan += seen[q].nonfinite.nan;
        counted.inf += seen[q].nonfinite.inf;
    }
    *nonfinite = counted;
    const bool infinities = mode == NONFINITE_REFUSE;
    if (mode == NONFINITE_IGNORE || (counted.nan == 0 && !(infinities && counted.inf > 0)))
        return QOBS_OK;
    return qobs_refuse(plan, data, &counted, infinities, error);
}

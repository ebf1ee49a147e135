/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The histogram of one batch for every qparam of a plan: who counts what, and in which memory. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "measure/counting.h"
#include "measure/histogram.h"
#include "plan/loops.h"
#include "measure/reduce.h"

/* ---- Work for several threads ------------------------------------------------------------------------------------------- */

enum { MOST_PIECES = 64, PIECES_PER_THREAD = 4, LEAST_ELEMENTS = 1 << 16 };

struct pieces {
    const struct loops *nest;
    int cut; /* the dimension that is cut */
    size_t count;
    struct counting counting[MOST_PIECES];
};

static void do_piece(void *argument, size_t index)
{
    struct pieces *p = argument;
    struct loops nest = *p->nest;
    const struct loop *cut = &nest.loop[p->cut];
    const int64_t count = (int64_t)p->count, extent = cut->extent;
    const int64_t from = extent / count * (int64_t)index + extent % count * (int64_t)index / count;
    const int64_t to = extent / count * ((int64_t)index + 1) + extent % count * ((int64_t)index + 1) / count;
    qobs_loops_cut(&nest, p->cut, from, to);
    const fp_mode mode = fp_enter();
    qobs_count_nest(&p->counting[index], &nest);
    fp_leave(mode);
}

/* Which dimension to cut for `threads`: one along which qparams lie if it is long enough, else the outermost that is reduced. */
static int dimension_to_cut(const struct loops *nest, size_t threads)
{
    int best = -1;
    for (int i = 0; i < nest->count; i++) {
        const struct loop *d = &nest->loop[i];
        if (d->qparam != 0 && d->extent >= (int64_t)threads && (best < 0 || d->extent > nest->loop[best].extent))
            best = i;
    }
    for (int i = 0; i < nest->count && best < 0; i++)
        if (nest->loop[i].qparam == 0)
            best = i;
    return best;
}

static int out_of_memory(size_t size, qobs_error *error)
{
    return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "histogram: no memory for %zu bytes of counters", size);
}

/* Pieces of a reduced dimension count apart: the first for the caller, the others in memory of their own. */
static int do_nest(struct counting *whole, struct loops *nest, qobs_error *error)
{
    const struct counting_job *job = whole->job;
    qobs_loops_normalise(nest, LOOPS_BY_INPUT);
    const size_t threads = qobs_threads(job->runtime), bins = job->bins, qparams = (size_t)job->plan->qparams;
    struct pieces p = {.nest = nest, .count = 1, .counting = {*whole}};
    p.cut = threads > 1 && qobs_loops_elements(nest) >= 2 * LEAST_ELEMENTS ? dimension_to_cut(nest, threads) : -1;
    if (p.cut < 0) {
        qobs_count_nest(whole, nest);
        return QOBS_OK;
    }
    const bool apart = nest->loop[p.cut].qparam == 0;
    const int64_t most = qobs_loops_elements(nest) / LEAST_ELEMENTS, extent = nest->loop[p.cut].extent;
    p.count = threads * (apart ? 1 : PIECES_PER_THREAD);
    p.count = p.count < MOST_PIECES ? p.count : MOST_PIECES;
    p.count = (int64_t)p.count < most ? p.count : (size_t)most;
    p.count = (int64_t)p.count < extent ? p.count : (size_t)extent;
    const size_t counters = counters_size(bins), counts = apart ? qparams * bins * sizeof(uint64_t) : 0;
    const size_t each = counts + counters + (apart ? qparams * sizeof(struct qobs_extrema) : 0), size = (p.count - 1) * each;
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
        p.counting[i].seen = (struct qobs_extrema *)(void *)(own + counts + counters);
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

static struct counting_job job_of(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                                  const unsigned char *data, const struct qobs_binning *binning, bool stops)
{
    enum qobs_kernel_dtype dtype;
    qobs_kernel_dtype_of(plan->dtype, &dtype);
    return (struct counting_job){.runtime = runtime,
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
                 const unsigned char *data, const struct qobs_binning *binning, uint64_t *counts, struct qobs_extrema *seen,
                 bool *stopped, qobs_error *error)
{
    const struct counting_job job = job_of(runtime, kernels, plan, data, binning, stopped != NULL);
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
        qobs_count_each_run(&counting);
    for (unsigned ends = 0, n = qobs_plan_tiles(plan); ends < n && !plan->order && !plan->padded && status == QOBS_OK; ends++) {
        struct loops nest;
        if (qobs_loops_of_tile(plan, ends, data, NULL, NULL, &nest))
            status = do_nest(&counting, &nest, error);
    }
    qobs_release(runtime, counting.counters, size);
    if (stopped)
        *stopped = counting.stopped;
    return status;
}

/* ---- A run whose range grows while it is read ---------------------------------------------------------------------------- */

static bool is_one_run(const struct counting_job *job, struct loops *nest)
{
    const qobs_plan *plan = job->plan;
    if (plan->order || plan->padded || plan->qparams != 1 || qobs_plan_tiles(plan) != 1 ||
        !qobs_loops_of_tile(plan, 0, job->data, NULL, NULL, nest))
        return false;
    qobs_loops_normalise(nest, LOOPS_BY_INPUT);
    const bool alone = qobs_threads(job->runtime) == 1 || qobs_loops_elements(nest) < 2 * LEAST_ELEMENTS;
    return alone && nest->count == 1 && nest->loop->in == (int64_t)job->element && nest->loop->qparam == 0;
}

int qobs_collect_widening(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                          const unsigned char *data, struct qobs_widening *widening, const struct qobs_binning *binning,
                          uint64_t *counts, struct qobs_extrema *seen, bool *counted, qobs_error *error)
{
    const struct counting_job job = job_of(runtime, kernels, plan, data, binning, true);
    struct loops nest;
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
    const int status = qobs_count_widening(&counting, widening, nest.in, nest.loop->extent, error);
    qobs_release(runtime, counting.counters, size);
    return status;
}

/* ---- Extremes alone ------------------------------------------------------------------------------------------------------ */

/* With the kernels of minimum and maximum, unless there is something they do not leave out. */
static int see_extremes(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                        const unsigned char *data, struct qobs_extrema *seen, bool *finite, qobs_error *error)
{
    const size_t n = (size_t)plan->qparams, element = qobs_dtype_size(plan->dtype), size = 2 * n * element;
    unsigned char *min = qobs_allocate(runtime, size), *max = min ? min + n * element : NULL;
    struct qobs_nonfinite nonfinite = {0};
    if (!min)
        return out_of_memory(size, error);
    const int status = qobs_reduce_minmax(runtime, kernels, plan, data, NONFINITE_PROPAGATE, min, max, &nonfinite, error);
    *finite = nonfinite.nan == 0 && nonfinite.inf == 0;
    for (size_t q = 0; q < n && status == QOBS_OK; q++) {
        seen[q] = (struct qobs_extrema){.min = (float)qobs_element(min + q * element, plan->dtype),
                                     .max = (float)qobs_element(max + q * element, plan->dtype)};
        *finite &= isfinite(seen[q].min) && isfinite(seen[q].max); /* F64 may hold what float does not */
    }
    qobs_release(runtime, min, size);
    return status;
}

int qobs_see(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan, const unsigned char *data,
             bool magnitude, bool skip_zeros, struct qobs_extrema *seen, qobs_error *error)
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

int qobs_check_seen(const qobs_plan *plan, const unsigned char *data, enum nonfinite_mode mode, const struct qobs_extrema *seen,
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
    return qobs_fail_nonfinite(plan, data, &counted, infinities, error);
}

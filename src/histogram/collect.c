/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Splits a batch over threads and gives each thread memory to count in. */
#include "histogram/collect.h"

#include "base/error.h"
#include "base/split.h"
#include "number/convert.h"
#include "measure/reduce.h"

/* ---- Work for several threads ------------------------------------------------------------------------------------ */

enum { MIN_ELEMENTS = 1 << 16 };

/* Work is counted in elements. Parts of an axis of qparams write to the same counts through private counters. Parts of
 * a reduced axis have private counts, too, so a thread gets one part. */
static const struct split_rule by_qparams = {
    .min_total = 2 * MIN_ELEMENTS, .min_part = MIN_ELEMENTS, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS};
static const struct split_rule by_reduced = {
    .min_total = 2 * MIN_ELEMENTS, .min_part = MIN_ELEMENTS, .parts_per_thread = 1, .max_parts = SPLIT_MAX_PARTS};

/* The dimension to split for `threads`: the longest along which qparams lie if it is long enough, else the outermost
 * that is reduced; -1: there is none. */
static int dimension_to_split(const struct loops *loops, size_t threads)
{
    int best = -1;
    for (int i = 0; i < loops->count; i++) {
        const struct loop *d = &loops->loop[i];
        if (d->qparam != 0 && d->extent >= (int64_t)threads && (best < 0 || d->extent > loops->loop[best].extent))
            best = i;
    }
    for (int i = 0; i < loops->count && best < 0; i++)
        if (loops->loop[i].qparam == 0)
            best = i;
    return best;
}

static int out_of_memory(size_t size, qobs_error *error)
{
    return qobs_no_memory(error, "histogram: no memory for %zu bytes of counters", size);
}

struct count_parts {
    const struct loops *loops;
    int axis; /* the dimension that is split */
    struct counting counting[SPLIT_MAX_PARTS];
};

static void count_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct count_parts *p = argument;
    struct loops loops = *p->loops;
    qobs_loops_cut(&loops, p->axis, from, to);
    qobs_count_loops(&p->counting[part], &loops);
}

/* The first part counts into *total. Each other part has private counters, and if the split axis is reduced also
 * private counts and extrema. */
static int count_parts(struct counting *total, const struct loops *loops, int axis, const struct split *split,
                       qobs_error *error)
{
    const struct counting_job *job = total->job;
    const size_t bins = job->bins, qparams = (size_t)job->batch.plan->qparams, parts = (size_t)split->parts;
    const bool private = loops->loop[axis].qparam == 0;
    const size_t counters = counters_size(bins), counts = private ? qparams * bins * sizeof(uint64_t) : 0;
    const size_t each = counts + counters + (private ? qparams * sizeof(struct extrema) : 0), size = (parts - 1) * each;
    struct count_parts p = {.loops = loops, .axis = axis, .counting = {*total}};
    unsigned char *memory = qobs_allocate(job->batch.runtime, size);
    if (!memory)
        return out_of_memory(size, error);
    memset(memory, 0, size);
    for (size_t i = 1; i < parts; i++) {
        unsigned char *own = memory + (i - 1) * each;
        struct counting *c = &p.counting[i];
        *c = *total;
        c->counters = (uint32_t *)(void *)(own + counts);
        if (!private)
            continue;
        c->counts = (uint64_t *)(void *)own;
        c->extrema = (struct extrema *)(void *)(own + counts + counters);
        for (size_t q = 0; q < qparams; q++)
            c->extrema[q] = qobs_extrema_of_nothing();
    }
    qobs_split_run(job->batch.runtime, split, count_part, &p);
    for (size_t i = 0; i < parts; i++)
        total->stopped = total->stopped || p.counting[i].stopped;
    for (size_t i = 1; private && i < parts; i++) {
        for (size_t k = 0; k < qparams * bins; k++)
            total->counts[k] += p.counting[i].counts[k];
        for (size_t q = 0; q < qparams; q++)
            extrema_merge(&total->extrema[q], &p.counting[i].extrema[q]);
    }
    qobs_release(job->batch.runtime, memory, size);
    return QOBS_OK;
}

static int count_tile(struct counting *total, struct loops *loops, qobs_error *error)
{
    const struct runtime *runtime = total->job->batch.runtime;
    struct split split = {.parts = 1};
    qobs_loops_normalise(loops, LOOPS_BY_INPUT);
    const int axis = dimension_to_split(loops, qobs_threads(runtime));
    if (axis >= 0) {
        const struct loop *d = &loops->loop[axis];
        split =
            qobs_split(runtime, d->qparam == 0 ? &by_reduced : &by_qparams, d->extent, qobs_loops_elements(loops), 0);
    }
    if (split.parts > 1)
        return count_parts(total, loops, axis, &split, error);
    qobs_count_loops(total, loops);
    return QOBS_OK;
}

static struct counting_job job_of(const struct batch *batch, const struct binning *binning, bool stops)
{
    enum kernel_dtype dtype;
    qobs_kernel_dtype_of(batch->plan->dtype, &dtype);
    return (struct counting_job){.batch = *batch,
                                 .binning = binning,
                                 .dtype = dtype,
                                 .rows = batch->kernels->histogram_rows[dtype],
                                 .element = qobs_dtype_size(batch->plan->dtype),
                                 .bins = batch->plan->qparams > 0 ? binning->bins : 0,
                                 .stops = stops};
}

/* Memory for one thread's counters, and all results empty. */
static int start(struct counting *c, const struct counting_job *job, uint64_t *counts, struct extrema *extrema,
                 qobs_error *error)
{
    const size_t size = counters_size(job->bins), qparams = (size_t)job->batch.plan->qparams;
    *c = (struct counting){
        .job = job, .counts = counts, .extrema = extrema, .counters = qobs_allocate(job->batch.runtime, size)};
    if (!c->counters)
        return out_of_memory(size, error);
    memset(c->counters, 0, size);
    memset(counts, 0, qparams * job->bins * sizeof *counts);
    for (size_t q = 0; q < qparams; q++)
        extrema[q] = qobs_extrema_of_nothing();
    return QOBS_OK;
}

int qobs_collect(const struct batch *batch, const struct binning *binning, uint64_t *counts, struct extrema *extrema,
                 bool *stopped, qobs_error *error)
{
    const struct counting_job job = job_of(batch, binning, stopped != NULL);
    const qobs_plan *plan = batch->plan;
    const bool by_runs = plan->order || plan->padded;
    struct counting counting;
    int status = start(&counting, &job, counts, extrema, error);
    if (status != QOBS_OK)
        return status;
    if (by_runs)
        qobs_count_each_run(&counting);
    for (unsigned tails = 0, n = qobs_plan_tiles(plan); tails < n && !by_runs && status == QOBS_OK; tails++) {
        struct loops loops;
        if (qobs_loops_of_tile(plan, tails, batch->data, NULL, NULL, &loops))
            status = count_tile(&counting, &loops, error);
    }
    qobs_release(batch->runtime, counting.counters, counters_size(job.bins));
    if (stopped)
        *stopped = counting.stopped;
    return status;
}

/* ---- A run whose range grows while it is read -------------------------------------------------------------------- */

static bool is_one_run(const struct counting_job *job, struct loops *loops)
{
    const qobs_plan *plan = job->batch.plan;
    if (plan->order || plan->padded || plan->qparams != 1 || qobs_plan_tiles(plan) != 1 ||
        !qobs_loops_of_tile(plan, 0, job->batch.data, NULL, NULL, loops))
        return false;
    qobs_loops_normalise(loops, LOOPS_BY_INPUT);
    const bool split = qobs_threads(job->batch.runtime) > 1 && qobs_loops_elements(loops) >= by_reduced.min_total;
    return !split && loops->count == 1 && loops->loop->in == (int64_t)job->element && loops->loop->qparam == 0;
}

int qobs_collect_growing(const struct batch *batch, struct growing_range *range, const struct binning *binning,
                         uint64_t *counts, struct extrema *extrema, bool *counted, qobs_error *error)
{
    const struct counting_job job = job_of(batch, binning, true);
    struct counting counting;
    struct loops loops;
    *counted = is_one_run(&job, &loops);
    if (!*counted)
        return QOBS_OK;
    RETURN_IF_FAILED(start(&counting, &job, counts, extrema, error));
    const int status = qobs_count_growing(&counting, range, loops.in, loops.loop->extent, error);
    qobs_release(batch->runtime, counting.counters, counters_size(job.bins));
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
    const int status = qobs_collect(batch, nothing, counts, extrema, NULL, error);
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

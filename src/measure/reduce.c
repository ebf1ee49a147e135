/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Splits a batch for threads, reduces the parts with kernels, and merges them. Kernels skip NaN and count NaN and
 * infinities; a batch that has any is reduced again element by element if they matter. */
#include "measure/reduce.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/split.h"
#include "number/convert.h"
#include "measure/accumulators.h"
#include "plan/row_list.h"

struct reduce_arguments {
    const struct runtime *runtime;
    const struct kernel_table *kernels;
    const qobs_plan *plan;
    const unsigned char *data;
    enum kernel_dtype dtype;
    size_t element;
    bool absmax; /* the result is (-m, m) of the largest magnitude m */
    unsigned char *min, *max;
    struct nonfinite_count *nonfinite;
};

/* ---- Work for several threads ---------------------------------------------------------------------------------- */

static const struct split_rule rule = {
    .min_total = 1 << 18, .min_part = 1 << 17, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS}; /* bytes */

struct reduction_parts {
    const struct reduce_arguments *job;
    const struct loops *loops;
    bool private;             /* the split loop is reduced: each part has private outputs */
    unsigned char *workspace; /* of each part: private outputs, then the scratch of the loops */
    size_t outputs, scratch;  /* their bytes */
    struct nonfinite_count nonfinite[SPLIT_MAX_PARTS];
};

static void reduce_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct reduction_parts *p = argument;
    const struct reduce_arguments *job = p->job;
    struct loops loops = *p->loops;
    qobs_loops_cut(&loops, 0, from, to);
    unsigned char *min = job->min, *max = job->max;
    unsigned char *const workspace = p->workspace ? p->workspace + (size_t)part * (p->outputs + p->scratch) : NULL;
    if (p->private) {
        min = workspace;
        max = min + p->outputs / 2;
        qobs_fill_identities(job->dtype, job->element, (size_t)job->plan->qparams, job->absmax ? NULL : min, max);
    }
    qobs_minmax_loops(&loops, job->kernels, job->dtype, job->element, p->scratch > 0 ? workspace + p->outputs : NULL,
                      job->absmax ? NULL : min, max, &p->nonfinite[part]);
}

static int reduce_parts(const struct reduce_arguments *job, const struct loops *loops, const struct split *split,
                        size_t scratch, qobs_error *error)
{
    struct reduction_parts p = {.job = job, .loops = loops, .private = loops->loop[0].qparam == 0, .scratch = scratch};
    const size_t n = (size_t)job->plan->qparams, half = n * job->element;
    p.outputs = p.private ? 2 * half : 0;
    const size_t size = (size_t)split->parts * (p.outputs + p.scratch);
    p.workspace = size > 0 ? qobs_allocate(job->runtime, size) : NULL;
    if (size > 0 && !p.workspace)
        return qobs_no_memory(error, "observe: no memory for %zu bytes", size);
    qobs_split_run(job->runtime, split, reduce_part, &p);
    for (int64_t i = 0; i < split->parts; i++) {
        job->nonfinite->nan += p.nonfinite[i].nan;
        job->nonfinite->inf += p.nonfinite[i].inf;
        if (!p.private)
            continue;
        const unsigned char *const min = p.workspace + (size_t)i * (p.outputs + p.scratch), *const max = min + half;
        if (job->absmax)
            qobs_update_absmax(job->plan->dtype, n, job->min, job->max, max, max, false);
        else
            qobs_update_running(job->plan->dtype, n, 1, job->min, job->max, min, max);
    }
    qobs_release(job->runtime, p.workspace, size);
    return QOBS_OK;
}

/* Splits the outermost loop, so that every part is a contiguous part of memory. */
static int reduce_tile(const struct reduce_arguments *job, struct loops *loops, qobs_error *error)
{
    struct split split = {.parts = 1};
    qobs_loops_normalise(loops, LOOPS_BY_INPUT);
    if (loops->count > 0 && qobs_threads(job->runtime) > 1) {
        const int64_t element = (int64_t)job->element;
        split = qobs_split(job->runtime, &rule, loops->loop[0].extent, qobs_loops_elements(loops) * element,
                           loops->loop[0].qparam == 0 ? job->plan->qparams * element : 0);
    }
    const size_t size = qobs_minmax_scratch(loops, job->element, job->absmax);
    if (split.parts > 1)
        return reduce_parts(job, loops, &split, size, error);
    const bool wanted = size > 0 && job->runtime->allocator; /* that of qobs_grid_search has none */
    void *scratch = wanted ? qobs_allocate(job->runtime, size) : NULL;
    if (wanted && !scratch)
        return qobs_no_memory(error, "observe: no memory for %zu bytes", size);
    qobs_minmax_loops(loops, job->kernels, job->dtype, job->element, scratch, job->absmax ? NULL : job->min, job->max,
                      job->nonfinite);
    qobs_release(job->runtime, scratch, size);
    return QOBS_OK;
}

/* ---- g_idx ------------------------------------------------------------------------------------------------------- */

/* The kernel spreads the columns of a row over groups. */

/* Rows with gaps between their elements are copied, this many at a time: a multiple of every kernel's lanes. */
enum { COPIED_ROWS = 64 };

struct indexed {
    const struct reduce_arguments *job;
    struct row_list rows;
    bool gaps;                /* between the elements of a row */
    uint32_t *group;          /* of each column */
    unsigned char *workspace; /* of each part: the kernel's scratch, then copied rows if there are gaps */
    size_t scratch, copied;   /* bytes */
    struct nonfinite_count nonfinite[SPLIT_MAX_PARTS];
};

/* n rows from `row` on, `stride` bytes apart. */
static void reduce_some_rows(const struct indexed *d, int64_t row, int64_t n, int64_t stride, unsigned char *workspace,
                             struct nonfinite_count *nonfinite)
{
    const int64_t columns = d->rows.columns, groups = d->rows.groups, step = d->gaps ? COPIED_ROWS : n,
                  element = (int64_t)d->rows.element;
    for (int64_t first = 0; first < n; first += step) {
        const int64_t some = n - first < step ? n - first : step;
        const struct loop_entry at = qobs_loops_at(&d->rows.loops, row + first);
        const size_t out = (size_t)(at.qparam * element);
        for (int64_t i = 0; d->gaps && i < some; i++)
            qobs_copy_elements(element, columns, at.in + i * stride, d->rows.column_in,
                               workspace + d->scratch + i * columns * element, element);
        d->job->kernels->minmax_indexed[d->job->dtype](d->gaps ? workspace + d->scratch : at.in,
                                                       d->gaps ? (ptrdiff_t)(columns * element) : (ptrdiff_t)stride,
                                                       (size_t)some, (size_t)columns, d->group, (size_t)groups,
                                                       d->job->min + out, d->job->max + out, workspace, nonfinite);
    }
}

static void reduce_rows(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct indexed *d = argument;
    for (int64_t row = from, n, stride; row < to; row += n) {
        n = qobs_rows_together(&d->rows, row, to, &stride);
        reduce_some_rows(d, row, n, stride, d->workspace + (size_t)part * (d->scratch + d->copied),
                         &d->nonfinite[part]);
    }
}

static int reduce_ordered(const struct reduce_arguments *job, qobs_error *error)
{
    struct indexed d = {.job = job};
    qobs_rows_of_plan(job->plan, job->data, NULL, NULL, &d.rows);
    d.gaps = d.rows.column_in != (int64_t)d.rows.element;
    const int64_t bytes = d.rows.count * d.rows.columns * (int64_t)d.rows.element, most = d.rows.count / COPIED_ROWS;
    const struct split_rule rows = {
        .min_total = 1 << 18, .parts_per_thread = 1, .max_parts = most < SPLIT_MAX_PARTS ? most : SPLIT_MAX_PARTS};
    const struct split split = qobs_split(job->runtime, &rows, d.rows.count, bytes, 0);
    d.scratch = QOBS_INDEXED_SCRATCH((size_t)d.rows.groups);
    d.copied = d.gaps ? COPIED_ROWS * (size_t)d.rows.columns * d.rows.element : 0;
    const size_t index = (size_t)d.rows.columns * sizeof *d.group,
                 size = index + (size_t)split.parts * (d.scratch + d.copied);
    d.group = qobs_allocate(job->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(d.group, "g_idx", size, error));
    d.workspace = (unsigned char *)d.group + index;
    qobs_g_idx_groups(job->plan, d.group);
    qobs_split_run(job->runtime, &split, reduce_rows, &d);
    for (int64_t i = 0; i < split.parts; i++) {
        job->nonfinite->nan += d.nonfinite[i].nan;
        job->nonfinite->inf += d.nonfinite[i].inf;
    }
    qobs_release(job->runtime, d.group, size);
    return QOBS_OK;
}

/* ---- Padding ----------------------------------------------------------------------------------------------------- */

/* The zeros that pad blocks at an edge count as elements. */
static void add_padding(const struct reduce_arguments *job)
{
    const qobs_plan *plan = job->plan;
    static const unsigned char zero[8];
    struct nonfinite_count none = {0};
    for (int axis = 0; axis < plan->axes; axis++) {
        const struct axis *inner = &plan->axis[axis];
        if (inner->outer < 0 || inner->unpadded % inner->extent == 0)
            continue;
        const int64_t last = plan->axis[inner->outer].extent - 1;
        int64_t each = 1; /* qparams of one index of the outer axis */
        for (int i = inner->outer + 1; i < plan->axes; i++)
            each *= plan->axis[i].role == AXIS_QPARAM ? plan->axis[i].extent : 1;
        for (int64_t i = last * each; i < plan->qparams; i += (i + 1) % each ? 1 : last * each + 1)
            job->kernels->minmax_rows[job->dtype](zero, 0, 1, 1, job->min + (size_t)i * job->element,
                                                  job->max + (size_t)i * job->element, 0, &none);
    }
}

/* ---- Elements that are not finite ------------------------------------------------------------------------------ */

/* True if value is finite in the dtype it will be converted to. A value halfway between the largest float and 2^128
 * rounds up. */
static bool finite_in(const qobs_plan *plan, double value)
{
    return isfinite(value) && (!plan->as_f32 || fabs(value) < 0x1.ffffffp127);
}

/* Counts elements that only the conversion to f32 makes infinite; kernels do not see it. */
static uint64_t count_beyond_f32(const struct reduce_arguments *job)
{
    const qobs_plan *plan = job->plan;
    const int64_t runs = qobs_plan_run_count(plan);
    bool any = false;
    uint64_t beyond = 0;
    for (int64_t i = 0; i < plan->qparams && !any; i++) {
        const double lo = qobs_element(job->min + (size_t)i * job->element, plan->dtype);
        const double hi = qobs_element(job->max + (size_t)i * job->element, plan->dtype);
        any = !finite_in(plan, lo) || !finite_in(plan, hi);
    }
    for (int64_t i = 0; i < runs && any; i++) {
        qobs_run run;
        qobs_plan_run(plan, i, &run, NULL);
        for (int64_t j = 0; j < run.length && run.offset != QOBS_PADDING; j++) {
            const double value = qobs_element(job->data + run.offset + j * run.stride, plan->dtype);
            beyond += isfinite(value) && !finite_in(plan, value);
        }
    }
    return beyond;
}

/* Writes the indices "i, j" of the first element in the order of indices that is NaN or, if `infinities`, not finite.
 */
static void find_first(const qobs_plan *plan, const unsigned char *data, bool infinities, char *text, size_t size,
                       const char **kind)
{
    const struct view *v = &plan->value;
    struct loops loops;
    double value = 0;
    int64_t first = 0, left = v->elements;
    qobs_loops_of_view(v, v->ndim, &loops);
    loops.in = data;
    for (; first < v->elements; first++) {
        value = qobs_element(qobs_loops_at(&loops, first).in, v->dtype);
        if (isnan(value) || (infinities && !finite_in(plan, value)))
            break;
    }
    *kind = isnan(value) ? "NaN" : isfinite(value) ? "beyond F32" : value > 0 ? "infinity" : "-infinity";
    size_t used = 0;
    for (int d = 0; d < v->ndim && used < size; d++) {
        left /= v->shape[d];
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "", (long long)(first / left));
        first %= left;
    }
}

int qobs_fail_nonfinite(const qobs_plan *plan, const unsigned char *data, const struct nonfinite_count *counted,
                        bool infinities, qobs_error *error)
{
    char where[QOBS_MAX_NDIM * 22] = "";
    const char *kind = "";
    find_first(plan, data, infinities, where, sizeof where, &kind);
    return qobs_fail(error, QOBS_ERROR_NONFINITE,
                     "value: %llu NaN and %llu infinite of %lld elements, the first%s is %s at [%s] (nonfinite=%s)",
                     (unsigned long long)counted->nan, (unsigned long long)counted->inf,
                     (long long)plan->value.elements, infinities ? "" : " NaN", kind, where,
                     infinities ? "refuse" : "refuse_nan");
}

/* Reduces again, element by element, so that NaN spreads or infinities are left out. */
static void rescan(const struct reduce_arguments *job, enum nonfinite_mode mode)
{
    const qobs_plan *plan = job->plan;
    const int64_t runs = qobs_plan_run_count(plan);
    if (mode == NONFINITE_IGNORE) {
        qobs_fill_identities(job->dtype, job->element, (size_t)plan->qparams, job->min, job->max);
    }
    for (int64_t i = 0; i < runs; i++) {
        qobs_run run;
        qobs_plan_run(plan, i, &run, NULL);
        unsigned char *min = job->min + (size_t)run.qparam * job->element;
        unsigned char *max = job->max + (size_t)run.qparam * job->element;
        double lo = qobs_element(min, plan->dtype), hi = qobs_element(max, plan->dtype);
        for (int64_t j = 0; j < run.length; j++) {
            const double value =
                run.offset == QOBS_PADDING ? 0 : qobs_element(job->data + run.offset + j * run.stride, plan->dtype);
            if (mode == NONFINITE_PROPAGATE && isnan(value))
                lo = hi = value;
            else if (mode == NONFINITE_IGNORE && finite_in(plan, value)) {
                lo = value < lo ? value : lo;
                hi = value > hi ? value : hi;
            }
        }
        qobs_put_element(min, plan->dtype, lo + 0.0);
        qobs_put_element(max, plan->dtype, hi + 0.0);
    }
}

/* The range of a qparam without elements is [0, 0]. */
static void zero_empty(const struct reduce_arguments *job)
{
    for (int64_t i = 0; i < job->plan->qparams; i++) {
        unsigned char *min = job->min + (size_t)i * job->element, *max = job->max + (size_t)i * job->element;
        if (qobs_element(min, job->plan->dtype) > qobs_element(max, job->plan->dtype)) {
            qobs_put_element(min, job->plan->dtype, 0);
            qobs_put_element(max, job->plan->dtype, 0);
        }
    }
}

/* Sets (-m, m) for the magnitude m of (min, max), or of max alone. */
static void make_symmetric(const struct reduce_arguments *job, bool from_max)
{
    qobs_update_absmax(job->plan->dtype, (size_t)job->plan->qparams, job->min, job->max, from_max ? job->max : job->min,
                       job->max, true);
}

static int reduce(struct reduce_arguments *job, enum nonfinite_mode mode, struct nonfinite_count *nonfinite,
                  qobs_error *error)
{
    const qobs_plan *plan = job->plan;
    struct nonfinite_count counted = {0};
    job->element = qobs_dtype_size(plan->dtype);
    job->nonfinite = &counted;
    qobs_kernel_dtype_of(plan->dtype, &job->dtype);
    qobs_fill_identities(job->dtype, job->element, (size_t)plan->qparams, job->absmax ? NULL : job->min, job->max);
    if (plan->order)
        RETURN_IF_FAILED(reduce_ordered(job, error));
    for (unsigned tails = 0, n = qobs_plan_tiles(plan); tails < n && !plan->order; tails++) {
        struct loops loops;
        if (qobs_loops_of_tile(plan, tails, job->data, NULL, NULL, &loops))
            RETURN_IF_FAILED(reduce_tile(job, &loops, error));
    }
    if (job->absmax)
        make_symmetric(job, true);
    else if (plan->padded)
        add_padding(job);
    if (plan->as_f32 && plan->dtype == QOBS_F64)
        counted.inf += count_beyond_f32(job);
    *nonfinite = counted;
    if (counted.nan == 0 && counted.inf == 0)
        return QOBS_OK;
    if (mode == NONFINITE_REFUSE)
        return qobs_fail_nonfinite(plan, job->data, &counted, true, error);
    if (mode == NONFINITE_PROPAGATE ? counted.nan > 0 : counted.inf > 0)
        rescan(job, mode);
    if (mode == NONFINITE_IGNORE)
        zero_empty(job);
    if (mode == NONFINITE_IGNORE && job->absmax)
        make_symmetric(job, false);
    return QOBS_OK;
}

int qobs_reduce_minmax(const struct runtime *runtime, const struct kernel_table *kernels, const qobs_plan *plan,
                       const unsigned char *data, enum nonfinite_mode mode, void *min, void *max,
                       struct nonfinite_count *nonfinite, qobs_error *error)
{
    struct reduce_arguments job = {
        .runtime = runtime, .kernels = kernels, .plan = plan, .data = data, .min = min, .max = max};
    return reduce(&job, mode, nonfinite, error);
}

int qobs_reduce_absmax(const struct runtime *runtime, const struct kernel_table *kernels, const qobs_plan *plan,
                       const unsigned char *data, enum nonfinite_mode mode, void *min, void *max,
                       struct nonfinite_count *nonfinite, qobs_error *error)
{
    struct reduce_arguments job = {
        .runtime = runtime, .kernels = kernels, .plan = plan, .data = data, .absmax = true, .min = min, .max = max};
    return reduce(&job, mode, nonfinite, error);
}

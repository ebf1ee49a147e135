/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "formula/fake_quantize.h"

#include <string.h>

#include "base/error.h"
#include "formula/qparam_view.h"
#include "plan/split.h"

struct job {
    const struct fake_quantize *f;
    struct qparam_source qparams;
    struct qobs_quantizer quantizer;
    qobs_fake_quantize_rows_fn *rows;
    qobs_fake_quantize_columns_fn *columns;
    int64_t element; /* bytes */
};

/* ---- Loops ------------------------------------------------------------------------------------------------------------ */

struct dimension {
    int64_t extent;
    int64_t in, out; /* bytes */
    int64_t qparam;  /* 0: its elements share one */
};

struct nest {
    const unsigned char *x;
    unsigned char *out;
    int64_t qparam;
    int dimensions;
    struct dimension dimension[MAX_AXES]; /* outermost first */
};

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Sorts by the strides of the output, turns negative ones around and joins what is contiguous, as elements may be taken in
 * any order. */
static void normalise(struct nest *nest)
{
    int n = 0;
    for (int i = 0; i < nest->dimensions; i++) {
        struct dimension d = nest->dimension[i];
        if (d.extent == 1)
            continue;
        if (d.out < 0) {
            nest->x += (d.extent - 1) * d.in;
            nest->out += (d.extent - 1) * d.out;
            nest->qparam += (d.extent - 1) * d.qparam;
            d = (struct dimension){d.extent, -d.in, -d.out, -d.qparam};
        }
        int at = n++;
        for (; at > 0 && magnitude(d.out) > magnitude(nest->dimension[at - 1].out); at--)
            nest->dimension[at] = nest->dimension[at - 1];
        nest->dimension[at] = d;
    }
    int joined = 0;
    for (int i = 0; i < n; i++) {
        const struct dimension d = nest->dimension[i];
        struct dimension *outer = &nest->dimension[joined - 1];
        if (joined > 0 && outer->in == d.in * d.extent && outer->out == d.out * d.extent &&
            outer->qparam == d.qparam * d.extent)
            *outer = (struct dimension){outer->extent * d.extent, d.in, d.out, d.qparam};
        else
            nest->dimension[joined++] = d;
    }
    nest->dimensions = joined;
}

static void copy_elements(int64_t element, int64_t n, const unsigned char *from, int64_t from_stride, unsigned char *to,
                          int64_t to_stride)
{
    switch (element) {
    case 2:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_stride, from + i * from_stride, 2);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_stride, from + i * from_stride, 4);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_stride, from + i * from_stride, 8);
        break;
    }
}

/* `rows` rows of at most STRIP elements which share qparams column by column. */
static void strip_of_columns(const struct job *job, const struct strip *strip, const unsigned char *x, int64_t in,
                             unsigned char *out, int64_t out_step, int64_t columns, const struct dimension *rows)
{
    const struct qobs_qparams qparams = {&strip->scale, &strip->zero_point_add, &strip->zero_point_sub};
    if (in == job->element && out_step == job->element) {
        job->columns(&job->quantizer, x, rows->in, out, rows->out, (size_t)rows->extent, (size_t)columns, &qparams);
        return;
    }
    unsigned char buffer[STRIP * sizeof(double)];
    for (int64_t i = 0; i < rows->extent; i++) {
        copy_elements(job->element, columns, x + i * rows->in, in, buffer, job->element);
        job->columns(&job->quantizer, buffer, 0, buffer, 0, 1, (size_t)columns, &qparams);
        copy_elements(job->element, columns, buffer, job->element, out + i * rows->out, out_step);
    }
}

/* Where nothing is said about it, one. */
static const struct dimension one = {1, 0, 0, 0};

static void by_columns(const struct job *job, const struct dimension *inner, const struct dimension *rows,
                       const unsigned char *x, unsigned char *out, int64_t qparam)
{
    struct strip strip;
    const struct qparam_arrays to = {&strip.scale, &strip.zero_point_add, &strip.zero_point_sub};
    if (!job->f->zero_point)
        qobs_no_zero_points(&job->qparams, inner->extent < STRIP ? inner->extent : STRIP, &strip);
    for (int64_t first = 0; first < inner->extent; first += STRIP) {
        const int64_t n = inner->extent - first < STRIP ? inner->extent - first : STRIP;
        qobs_read_qparams(&job->qparams, qparam + first * inner->qparam, inner->qparam, n, &to);
        strip_of_columns(job, &strip, x + first * inner->in, inner->in, out + first * inner->out, inner->out, n, rows);
    }
}

static void by_rows(const struct job *job, const struct dimension *inner, const struct dimension *runs,
                    const unsigned char *x, unsigned char *out, int64_t qparam)
{
    struct strip strip;
    const struct qparam_arrays to = {&strip.scale, &strip.zero_point_add, &strip.zero_point_sub};
    const bool zero_points = job->f->zero_point != NULL;
    const struct qobs_qparams qparams = {&strip.scale, zero_points ? &strip.zero_point_add : NULL,
                                         zero_points ? &strip.zero_point_sub : NULL};
    const int64_t most = runs->qparam ? STRIP : runs->extent;
    for (int64_t first = 0; first < runs->extent; first += most) {
        const int64_t n = runs->extent - first < most ? runs->extent - first : most;
        qobs_read_qparams(&job->qparams, qparam + first * runs->qparam, runs->qparam, runs->qparam ? n : 1, &to);
        job->rows(&job->quantizer, x + first * runs->in, runs->in, out + first * runs->out, runs->out, (size_t)n,
                  (size_t)inner->extent, &qparams, runs->qparam != 0);
    }
}

struct loop {
    struct dimension inner, second;
    bool by_columns;
};

static void walk(const struct job *job, const struct loop *loop, const struct dimension *d, int dimensions,
                 const unsigned char *x, unsigned char *out, int64_t qparam)
{
    if (dimensions == 0) {
        (loop->by_columns ? by_columns : by_rows)(job, &loop->inner, &loop->second, x, out, qparam);
        return;
    }
    for (int64_t i = 0; i < d->extent; i++)
        walk(job, loop, d + 1, dimensions - 1, x + i * d->in, out + i * d->out, qparam + i * d->qparam);
}

/* The innermost dimension is what kernels run along. Contiguous elements that share a qparam are runs; all else are columns,
 * walked down a dimension that shares qparams, if there is one. */
static void do_nest(const struct job *job, const struct nest *nest)
{
    struct dimension rest[MAX_AXES];
    int n = nest->dimensions;
    memcpy(rest, nest->dimension, sizeof rest);
    for (int i = 0; i < n; i++)
        if (rest[i].extent == 0)
            return;
    struct loop loop = {.inner = {1, job->element, job->element, 0}, .second = one};
    if (n > 0)
        loop.inner = rest[--n];
    loop.by_columns = loop.inner.qparam != 0 || loop.inner.in != job->element || loop.inner.out != job->element;
    for (int i = n - 1; i >= 0; i--)
        if (!loop.by_columns || rest[i].qparam == 0) {
            loop.second = rest[i];
            memmove(&rest[i], &rest[i + 1], (size_t)(n - 1 - i) * sizeof *rest);
            n--;
            break;
        }
    walk(job, &loop, rest, n, nest->x, nest->out, nest->qparam);
}

/* ---- Work for several threads ----------------------------------------------------------------------------------------- */

static const struct split_rule rule = {.min_part = 1 << 17, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS}; /* bytes */

struct parts {
    const struct job *job;
    const struct nest *nest;
    int axis; /* the dimension that is split */
};

static void do_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct parts *p = argument;
    struct nest nest = *p->nest;
    (void)part;
    if (nest.dimensions > 0) {
        struct dimension *d = &nest.dimension[p->axis];
        nest.x += from * d->in;
        nest.out += from * d->out;
        nest.qparam += from * d->qparam;
        d->extent = to - from;
    }
    do_nest(p->job, &nest);
}

/* Splits the outermost of the dimensions that give the most parts. */
static void do_parts(const struct job *job, struct nest *nest)
{
    normalise(nest);
    int64_t bytes = job->element;
    for (int i = 0; i < nest->dimensions; i++)
        bytes *= nest->dimension[i].extent;
    struct parts p = {.job = job, .nest = nest};
    struct split best = {.parts = 0};
    for (int i = 0; i < nest->dimensions; i++) {
        const struct split split = qobs_split(job->f->runtime, &rule, nest->dimension[i].extent, bytes, 0);
        if (split.parts > best.parts) {
            best = split;
            p.axis = i;
        }
    }
    best.parts = best.parts > 0 ? best.parts : 1;
    qobs_split_run(job->f->runtime, &best, do_part, &p);
}

/* ---- Plans ------------------------------------------------------------------------------------------------------------ */

static bool nest_of_plans(const qobs_plan *plan, const qobs_plan *out_plan, unsigned ends, struct nest *nest)
{
    struct tile part;
    if (!qobs_plan_tile(plan, ends, &part))
        return false;
    nest->dimensions = plan->axes;
    for (int i = 0; i < plan->axes; i++) {
        const struct dimension d = {part.extent[i], plan->axis[i].stride, out_plan->axis[i].stride, part.qparam[i]};
        nest->dimension[i] = d;
        nest->x += part.first[i] * d.in;
        nest->out += part.first[i] * d.out;
        nest->qparam += part.first[i] * d.qparam;
    }
    return true;
}

/* Columns in g_idx order: nothing is moved, each column is given its group's qparam. */
struct ordered {
    const struct job *job;
    const qobs_plan *plan, *out_plan;
    const unsigned char *x;
    unsigned char *out;
    int64_t rows, groups;
    double *of_row;     /* workspace of every part: the qparams of one row */
    uint32_t *group_of; /* for each column */
};

/* The qparams of n columns, out of those of a row. */
static void pick(const struct ordered *o, const struct qparam_arrays *row, const uint32_t *group_of, int64_t n,
                 struct strip *strip)
{
    void *const to[] = {&strip->scale, &strip->zero_point_add, &strip->zero_point_sub};
    const void *const from[] = {row->scale, row->zero_point_add, row->zero_point_sub};
    for (int k = 0; k < (o->job->f->zero_point ? 3 : 1); k++)
        if (o->job->qparams.x_dtype == QOBS_F64) {
            for (int64_t i = 0; i < n; i++)
                ((double *)to[k])[i] = ((const double *)from[k])[group_of[i]];
        } else {
            for (int64_t i = 0; i < n; i++)
                ((float *)to[k])[i] = ((const float *)from[k])[group_of[i]];
        }
}

static void do_ordered_row(const struct ordered *o, int64_t row, const struct qparam_arrays *of_row, struct strip *strip)
{
    const qobs_plan *plan = o->plan;
    const int last = plan->axes - 1, outer = plan->axis[last].outer;
    const int64_t in = plan->axis[last].stride, out_step = o->out_plan->axis[last].stride, columns = plan->axis[last].unpadded;
    const unsigned char *x = o->x;
    unsigned char *out = o->out;
    int64_t rest = row;
    for (int i = outer - 1; i >= 0; i--) {
        x += rest % plan->axis[i].extent * plan->axis[i].stride;
        out += rest % plan->axis[i].extent * o->out_plan->axis[i].stride;
        rest /= plan->axis[i].extent;
    }
    qobs_read_qparams(&o->job->qparams, row * o->groups, 1, o->groups, of_row);
    for (int64_t first = 0; first < columns; first += STRIP) {
        const int64_t n = columns - first < STRIP ? columns - first : STRIP;
        pick(o, of_row, o->group_of + first, n, strip);
        strip_of_columns(o->job, strip, x + first * in, in, out + first * out_step, out_step, n, &one);
    }
}

static void do_ordered_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    const struct ordered *o = argument;
    struct strip strip;
    double *workspace = o->of_row + 3 * (size_t)o->groups * (size_t)part;
    const struct qparam_arrays of_row = {workspace, workspace + o->groups, workspace + 2 * o->groups};
    if (!o->job->f->zero_point)
        qobs_no_zero_points(&o->job->qparams, STRIP, &strip);
    for (int64_t row = from; row < to; row++)
        do_ordered_row(o, row, &of_row, &strip);
}

static int do_ordered(const struct job *job, const qobs_plan *plan, const unsigned char *x, const qobs_plan *out_plan,
                      unsigned char *out, qobs_error *error)
{
    const struct axis *fine = &plan->axis[plan->axes - 1];
    const int64_t columns = fine->unpadded;
    struct ordered o = {.job = job, .plan = plan, .out_plan = out_plan, .x = x, .out = out};
    if (columns == 0 || plan->qparams == 0)
        return QOBS_OK;
    o.groups = plan->axis[fine->outer].extent;
    o.rows = plan->qparams / o.groups;
    const struct split split = qobs_split(job->f->runtime, &rule, o.rows, o.rows * columns * job->element, 0);
    if (columns > UINT32_MAX)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "g_idx: has %lld entries, allowed are %lld", (long long)columns,
                         (long long)UINT32_MAX);
    const size_t workspace = 3 * (size_t)o.groups * (size_t)split.parts * sizeof(double);
    const size_t size = workspace + (size_t)columns * sizeof(uint32_t);
    o.of_row = qobs_allocate(job->f->runtime, size);
    if (!o.of_row)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "g_idx: no memory for %zu bytes", size);
    o.group_of = (uint32_t *)((unsigned char *)o.of_row + workspace);
    for (int64_t g = 0; g < o.groups; g++)
        for (int64_t i = plan->start[g]; i < plan->start[g + 1]; i++)
            o.group_of[plan->order[i]] = (uint32_t)g;
    qobs_split_run(job->f->runtime, &split, do_ordered_part, &o);
    qobs_release(job->f->runtime, o.of_row, size);
    return QOBS_OK;
}

int qobs_fake_quantize_plan(const struct fake_quantize *f, const qobs_plan *plan, const void *x, const qobs_plan *out_plan,
                            void *out, qobs_error *error)
{
    struct job job = {.f = f, .quantizer = f->quantizer};
    enum qobs_kernel_dtype dtype;
    qobs_kernel_dtype_of(plan->dtype, &dtype);
    job.element = (int64_t)qobs_dtype_size(plan->dtype);
    job.quantizer.in_float = f->scale_dtype == QOBS_F32 || (job.element == 2 && f->global_scale);
    job.qparams = (struct qparam_source){.x_dtype = plan->dtype,
                                         .scale = f->scale,
                                         .scale_dtype = f->scale_dtype,
                                         .zero_point = f->zero_point,
                                         .zero_point_dtype = f->zero_point_dtype,
                                         .global_scale = f->global_scale,
                                         .in_float = job.quantizer.torch ? plan->dtype != QOBS_F64 : job.quantizer.in_float};
    job.rows = f->kernels->fake_quantize_rows[dtype];
    job.columns = f->kernels->fake_quantize_columns[dtype];
    if (plan->order)
        return do_ordered(&job, plan, x, out_plan, out, error);
    for (unsigned ends = 0, n = qobs_plan_tiles(plan); ends < n; ends++) {
        struct nest nest = {.x = x, .out = out};
        if (nest_of_plans(plan, out_plan, ends, &nest))
            do_parts(&job, &nest);
    }
    return QOBS_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Walks the output in memory order and calls the kernel for runs that share a qparam or for columns with a qparam each.
 * Elements that are not contiguous go through a buffer. */
#include "quantize/fake_quantize.h"

#include <string.h>

#include "base/fpenv.h"
#include "base/split.h"
#include "plan/row_list.h"

/* ---- Kernel calls ---------------------------------------------------------------------------------------------- */

static const struct quantizer *quantizer_of(const struct quantization *job)
{
    return job->bounded ? &job->work->bounded : &job->work->quantizer;
}

/* A column is a run of one element. */
static void product_columns(const struct quantization *job, const unsigned char *x, int64_t x_stride,
                            unsigned char *out, int64_t out_stride, int64_t rows, int64_t columns,
                            const struct qparam_pair *qparams)
{
    const float *const zero_point = job->qparams.zero_point ? qparams->zero_point_sub : NULL;
    for (int64_t i = 0; i < rows; i++)
        job->work->product_rows(quantizer_of(job), job->work->f->kind, x + i * x_stride, (ptrdiff_t)job->work->element,
                                out + i * out_stride, 1, (size_t)columns, 1, qparams->scale, zero_point, 1);
}

static void call_columns(const struct quantization *job, const unsigned char *x, int64_t x_stride, unsigned char *out,
                         int64_t out_stride, int64_t rows, int64_t columns, const struct qparam_pair *qparams)
{
    const struct quantize_work *w = job->work;
    if (w->product_rows)
        product_columns(job, x, x_stride, out, out_stride, rows, columns, qparams);
    else if (w->f->direction == TO_CODES)
        w->code_columns(quantizer_of(job), w->f->kind, x, x_stride, out, out_stride, (size_t)rows, (size_t)columns,
                        qparams, job->sum);
    else if (w->f->direction == FROM_CODES)
        w->number_columns(quantizer_of(job), w->f->kind, x, x_stride, out, out_stride, (size_t)rows, (size_t)columns,
                          qparams);
    else
        w->columns(quantizer_of(job), x, x_stride, out, out_stride, (size_t)rows, (size_t)columns, qparams);
}

/* Rows of at most PANEL elements with a qparam for each column. */
static void quantize_panel(const struct quantization *job, const struct qparam_panel *panel, const unsigned char *x,
                           int64_t in, unsigned char *out, int64_t out_step, int64_t columns, const struct loop *rows)
{
    const struct quantize_work *w = job->work;
    const struct qparam_pair qparams = {&panel->scale, &panel->zero_point_add, &panel->zero_point_sub};
    if (in == w->element && out_step == w->out_element) {
        call_columns(job, x, rows->in, out, rows->out, rows->extent, columns, &qparams);
        return;
    }
    unsigned char buffer[PANEL * sizeof(double)], results[PANEL * sizeof(double)];
    for (int64_t i = 0; i < rows->extent; i++) {
        qobs_copy_elements(w->element, columns, x + i * rows->in, in, buffer, w->element);
        call_columns(job, buffer, 0, results, 0, 1, columns, &qparams);
        qobs_copy_elements(w->out_element, columns, results, w->out_element, out + i * rows->out, out_step);
    }
}

static void quantize_columns(const struct quantization *job, const struct loop *inner, const struct loop *rows,
                             const unsigned char *x, unsigned char *out, int64_t qparam)
{
    struct qparam_panel panel;
    const struct qparam_arrays to = {&panel.scale, &panel.zero_point_add, &panel.zero_point_sub};
    if (!job->qparams.zero_point)
        qobs_no_zero_points(&job->qparams, inner->extent < PANEL ? inner->extent : PANEL, &panel);
    for (int64_t first = 0; first < inner->extent; first += PANEL) {
        const int64_t n = inner->extent - first < PANEL ? inner->extent - first : PANEL;
        qobs_read_qparams(&job->qparams, qparam + first * inner->qparam, inner->qparam, n, &to);
        quantize_panel(job, &panel, x + first * inner->in, inner->in, out + first * inner->out, inner->out, n, rows);
    }
}

/* Runs of codes, packed. If they are longer than QOBS_PAIR_CODES, n is 1. */
static void pack_runs(const struct quantization *job, const unsigned char *x, const struct loop *runs,
                      unsigned char *out, int64_t n, int64_t length, const struct qparam_pair *qparams)
{
    const struct quantize_work *w = job->work;
    for (int64_t j = 0; j < length; j += QOBS_PAIR_CODES) {
        const int64_t tile = length - j < QOBS_PAIR_CODES ? length - j : QOBS_PAIR_CODES;
        w->code_pairs(quantizer_of(job), w->f->kind, w->f->pack_offset, x + j * w->element, runs->in, out + j / 2,
                      runs->out, (size_t)n, (size_t)tile, qparams, runs->qparam != 0, job->sum);
    }
}

static int64_t most_runs(const struct quantization *job, const struct loop *runs, int64_t length)
{
    const int64_t most = runs->qparam ? PANEL : runs->extent;
    if (!job->work->pack || length * most <= QOBS_PAIR_CODES)
        return most;
    return length < QOBS_PAIR_CODES ? QOBS_PAIR_CODES / length : 1;
}

void qobs_quantize_runs(const struct quantization *job, const struct loop *inner, const struct loop *runs,
                        const unsigned char *x, unsigned char *out, int64_t qparam)
{
    const struct quantize_work *w = job->work;
    struct qparam_panel panel;
    const struct qparam_arrays to = {&panel.scale, &panel.zero_point_add, &panel.zero_point_sub};
    const bool zero_points = job->qparams.zero_point || w->f->positive_zero;
    const struct qparam_pair qparams = {&panel.scale, zero_points ? &panel.zero_point_add : NULL,
                                        zero_points ? &panel.zero_point_sub : NULL};
    const int64_t most = most_runs(job, runs, inner->extent);
    if (!job->qparams.zero_point && zero_points)
        qobs_no_zero_points(&job->qparams, runs->qparam && runs->extent > 1 ? PANEL : 1, &panel);
    for (int64_t first = 0; first < runs->extent; first += most) {
        const int64_t n = runs->extent - first < most ? runs->extent - first : most;
        qobs_read_qparams(&job->qparams, qparam + first * runs->qparam, runs->qparam, runs->qparam ? n : 1, &to);
        const unsigned char *from = x + first * runs->in;
        unsigned char *to_run = out + first * runs->out;
        if (w->pack)
            pack_runs(job, from, runs, to_run, n, inner->extent, &qparams);
        else if (w->product_rows)
            w->product_rows(quantizer_of(job), w->f->kind, from, runs->in, to_run, runs->out, (size_t)n,
                            (size_t)inner->extent, qparams.scale, qparams.zero_point_sub, runs->qparam != 0);
        else if (w->f->direction == TO_CODES)
            w->code_rows(quantizer_of(job), w->f->kind, from, runs->in, to_run, runs->out, (size_t)n,
                         (size_t)inner->extent, &qparams, runs->qparam != 0, job->sum);
        else if (w->f->direction == FROM_CODES)
            w->number_rows(quantizer_of(job), w->f->kind, from, runs->in, to_run, runs->out, (size_t)n,
                           (size_t)inner->extent, &qparams, runs->qparam != 0);
        else
            w->rows(quantizer_of(job), from, runs->in, to_run, runs->out, (size_t)n, (size_t)inner->extent, &qparams,
                    runs->qparam != 0);
    }
}

/* The loops of a kernel call. */
struct innermost {
    const struct quantization *job;
    struct loop inner, second;
};

static void visit_columns(void *argument, const struct loop_entry *at)
{
    const struct innermost *i = argument;
    quantize_columns(i->job, &i->inner, &i->second, at->in, at->out, at->qparam);
}

static void visit_runs(void *argument, const struct loop_entry *at)
{
    const struct innermost *i = argument;
    qobs_quantize_runs(i->job, &i->inner, &i->second, at->in, at->out, at->qparam);
}

/* Kernels run along the innermost loop. Contiguous elements that share a qparam are runs; all others are columns,
 * walked down a loop that shares qparams if there is one. */
void qobs_quantize_loops(const struct quantization *job, const struct loops *loops)
{
    struct loop outer[MAX_AXES];
    int n = loops->count;
    memcpy(outer, loops->loop, (size_t)n * sizeof *outer);
    struct innermost innermost = {
        .job = job, .inner = {1, job->work->element, job->work->out_element, 0}, .second = qobs_single_loop};
    if (n > 0)
        innermost.inner = outer[--n];
    const bool by_columns = innermost.inner.qparam != 0 || innermost.inner.in != job->work->element ||
                            innermost.inner.out != job->work->out_element;
    for (int i = n - 1; i >= 0; i--)
        if (!by_columns || outer[i].qparam == 0) {
            innermost.second = outer[i];
            memmove(&outer[i], &outer[i + 1], (size_t)(n - 1 - i) * sizeof *outer);
            n--;
            break;
        }
    qobs_loops_walk(outer, n, (struct loop_entry){loops->in, loops->out, loops->qparam},
                    by_columns ? visit_columns : visit_runs, &innermost);
}

/* ---- Work for several threads ---------------------------------------------------------------------------------- */

static const struct split_rule rule = {
    .min_part = 1 << 17, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS}; /* bytes */

/* Sums have the same order of additions for any number of threads. */
static struct split split_units(const struct quantization *job, int64_t units, int64_t bytes)
{
    if (!job->sum)
        return qobs_split(job->work->f->runtime, &rule, units, bytes, 0);
    int64_t parts = bytes / rule.min_part < rule.max_parts ? bytes / rule.min_part : rule.max_parts;
    parts = parts < units ? parts : units;
    return (struct split){.units = units, .parts = parts > 0 ? parts : 1};
}

/* A job of one part: its sums are its own. */
struct quantized_part {
    struct quantization job;
    double sum[2];
};

static void open_part(struct quantized_part *p, const struct quantization *job)
{
    *p = (struct quantized_part){.job = *job};
    p->job.sum = job->sum ? p->sum : NULL;
}

static void close_part(const struct quantized_part *p, double (*sums)[2], int64_t part)
{
    if (p->job.sum)
        memcpy(sums[part], p->sum, sizeof p->sum);
}

static void add_parts(const struct quantization *job, const struct split *split, double (*sums)[2])
{
    for (int64_t i = 0; job->sum && i < split->parts; i++)
        for (int k = 0; k < 2; k++)
            job->sum[k] += sums[i][k];
}

struct quantized_parts {
    const struct quantization *job;
    const struct loops *loops;
    int loop; /* the one that is split */
    double sums[SPLIT_MAX_PARTS][2];
};

static void quantize_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct quantized_parts *p = argument;
    struct loops loops = *p->loops;
    struct quantized_part own;
    if (loops.count > 0)
        qobs_loops_cut(&loops, p->loop, from, to);
    open_part(&own, p->job);
    qobs_quantize_loops(&own.job, &loops);
    close_part(&own, p->sums, part);
}

static void run_parts(const struct quantization *job, const struct loops *loops, const struct split *split, int loop)
{
    struct quantized_parts p = {.job = job, .loops = loops, .loop = loop};
    qobs_split_run(job->work->f->runtime, split, quantize_part, &p);
    add_parts(job, split, p.sums);
}

/* Splits the outermost of the loops that give the most parts, but not elements that are packed. */
void qobs_quantize_tile(const struct quantization *job, const struct loops *loops)
{
    const int64_t bytes = qobs_loops_elements(loops) * job->work->element;
    struct split best = {.units = loops->count > 0 ? loops->loop[0].extent : 0, .parts = 1};
    int loop = 0;
    for (int i = 0; i < loops->count - job->work->pack; i++) {
        const struct split split = split_units(job, loops->loop[i].extent, bytes);
        if (split.parts > best.parts) {
            best = split;
            loop = i;
        }
    }
    if (best.parts > 1 || job->sum) { /* a part has sums of its own */
        run_parts(job, loops, &best, loop);
        return;
    }
    FP_SCOPE;
    qobs_quantize_loops(job, loops);
}

/* ---- g_idx ----------------------------------------------------------------------------------------------------- */

/* No column is moved: each one is given the qparam of its group. */
struct ordered_quantization {
    const struct quantization *job;
    struct row_list rows;
    double *of_row;     /* workspace of every part: the qparams of one row */
    uint32_t *group_of; /* of each column */
    double sums[SPLIT_MAX_PARTS][2];
};

/* The qparams of n columns, out of those of a row. */
static void pick(const struct ordered_quantization *o, const struct qparam_arrays *row, const uint32_t *group_of,
                 int64_t n, struct qparam_panel *panel)
{
    void *const to[] = {&panel->scale, &panel->zero_point_add, &panel->zero_point_sub};
    const void *const from[] = {row->scale, row->zero_point_add, row->zero_point_sub};
    for (int k = 0; k < (o->job->qparams.zero_point ? 3 : 1); k++)
        if (o->job->qparams.x_dtype == QOBS_F64) {
            for (int64_t i = 0; i < n; i++)
                ((double *)to[k])[i] = ((const double *)from[k])[group_of[i]];
        } else {
            for (int64_t i = 0; i < n; i++)
                ((float *)to[k])[i] = ((const float *)from[k])[group_of[i]];
        }
}

static void quantize_row(const struct ordered_quantization *o, const struct quantization *job, int64_t row,
                         const struct qparam_arrays *of_row, struct qparam_panel *panel)
{
    const struct row_list *r = &o->rows;
    const struct loop_entry at = qobs_loops_at(&r->loops, row);
    qobs_read_qparams(&job->qparams, at.qparam, 1, r->groups, of_row);
    for (int64_t first = 0; first < r->columns; first += PANEL) {
        const int64_t n = r->columns - first < PANEL ? r->columns - first : PANEL;
        pick(o, of_row, o->group_of + first, n, panel);
        quantize_panel(job, panel, at.in + first * r->column_in, r->column_in, at.out + first * r->column_out,
                       r->column_out, n, &qobs_single_loop);
    }
}

static void quantize_rows(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct ordered_quantization *o = argument;
    const int64_t groups = o->rows.groups;
    struct quantized_part own;
    struct qparam_panel panel;
    double *workspace = o->of_row + 3 * groups * part;
    const struct qparam_arrays of_row = {workspace, workspace + groups, workspace + 2 * groups};
    if (!o->job->qparams.zero_point)
        qobs_no_zero_points(&o->job->qparams, PANEL, &panel);
    open_part(&own, o->job);
    for (int64_t row = from; row < to; row++)
        quantize_row(o, &own.job, row, &of_row, &panel);
    close_part(&own, o->sums, part);
}

static int quantize_ordered(const struct quantization *job, const qobs_plan *plan, const unsigned char *x,
                            const qobs_plan *out_plan, unsigned char *out, qobs_error *error)
{
    struct ordered_quantization o = {.job = job};
    qobs_rows_of_plan(plan, x, out_plan, out, &o.rows);
    const struct row_list *r = &o.rows;
    const struct split split = split_units(job, r->count, r->count * r->columns * job->work->element);
    const size_t workspace = 3 * (size_t)r->groups * (size_t)split.parts * sizeof(double);
    const size_t size = workspace + (size_t)r->columns * sizeof(uint32_t);
    o.of_row = qobs_allocate(job->work->f->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(o.of_row, "g_idx", size, error));
    o.group_of = (uint32_t *)((unsigned char *)o.of_row + workspace);
    qobs_g_idx_groups(plan, o.group_of);
    qobs_split_run(job->work->f->runtime, &split, quantize_rows, &o);
    add_parts(job, &split, o.sums);
    qobs_release(job->work->f->runtime, o.of_row, size);
    return QOBS_OK;
}

static int quantize_elements(const struct quantization *job, const qobs_plan *plan, const unsigned char *x,
                             const qobs_plan *out_plan, unsigned char *out, qobs_error *error)
{
    if (plan->order)
        return quantize_ordered(job, plan, x, out_plan, out, error);
    for (unsigned tails = 0, n = qobs_plan_tiles(plan); tails < n; tails++) {
        struct loops loops;
        if (qobs_loops_of_tile(plan, tails, x, out_plan, out, &loops)) {
            qobs_loops_normalise(&loops, LOOPS_BY_OUTPUT);
            qobs_quantize_tile(job, &loops);
        }
    }
    return QOBS_OK;
}

/* ---- Packed codes ---------------------------------------------------------------------------------------------- */

bool qobs_loops_by_pairs(struct loops *loops, const unsigned char *out, int64_t element)
{
    struct loops sorted = *loops;
    qobs_loops_normalise(&sorted, LOOPS_BY_OUTPUT);
    const ptrdiff_t codes_before = sorted.out - out;
    if (codes_before % 2 != 0 || sorted.count == 0)
        return false;
    const struct loop *inner = &sorted.loop[sorted.count - 1];
    if (inner->in != element || inner->out != 1 || inner->qparam != 0 || inner->extent % 2 != 0)
        return false;
    for (int i = 0; i < sorted.count - 1; i++) {
        if (sorted.loop[i].out % 2 != 0)
            return false;
        sorted.loop[i].out /= 2;
    }
    sorted.out += codes_before / 2 - codes_before;
    *loops = sorted;
    return true;
}

/* Quantizes the tiles of the plan to pairs. check: only tests that each of their runs has an even number of codes. */
static bool quantize_tiles_to_pairs(const struct quantization *job, const qobs_plan *plan, const unsigned char *x,
                                    const qobs_plan *out_plan, unsigned char *out, bool check)
{
    for (unsigned tails = 0, n = qobs_plan_tiles(plan); tails < n; tails++) {
        struct loops loops;
        if (!qobs_loops_of_tile(plan, tails, x, out_plan, out, &loops))
            continue;
        if (!qobs_loops_by_pairs(&loops, out, job->work->element))
            return false;
        if (!check)
            qobs_quantize_tile(job, &loops);
    }
    return true;
}

/* Packs run by run if every run is whole pairs, otherwise all codes at the end. */
static int quantize_to_pairs(struct quantization *job, struct quantize_work *work, const qobs_plan *plan,
                             const unsigned char *x, const qobs_plan *out_plan, unsigned char *out, qobs_error *error)
{
    const size_t count = (size_t)plan->value.elements;
    work->pack = !plan->order && quantize_tiles_to_pairs(job, plan, x, out_plan, out, true);
    if (work->pack) {
        quantize_tiles_to_pairs(job, plan, x, out_plan, out, false);
        return QOBS_OK;
    }
    unsigned char *codes = qobs_allocate(work->f->runtime, count);
    RETURN_IF_FAILED(qobs_require_memory(codes, "codes", count, error));
    const int status = quantize_elements(job, plan, x, out_plan, codes, error);
    if (status == QOBS_OK)
        work->f->kernels->pack_pairs(codes, count / 2, work->f->pack_offset, out);
    qobs_release(work->f->runtime, codes, count);
    return status;
}

int qobs_check_runtime_codes(const struct quantizer *quantizer, qobs_dtype dtype, bool with_sums, qobs_error *error)
{
    if (!quantizer->in_runtime)
        return QOBS_OK;
    if (dtype == QOBS_F64)
        return qobs_invalid(error, "dtype: is F64, the preset's codes are those of F32, BF16 and F16");
    return with_sums ? qobs_invalid(error, "squared_error, energy: are set, but the preset's codes have no such sums")
                     : QOBS_OK;
}

int qobs_check_runtime_zero_point(const struct quantizer *quantizer, enum code_kind kind, const void *zero_point,
                                  qobs_error *error)
{
    return quantizer->in_runtime && kind != QOBS_CODE_INTEGER && zero_point
               ? qobs_invalid(error, "zero_point: is set, but the preset's codes have none; NULL leaves it out")
               : QOBS_OK;
}

void qobs_quantization_open(struct quantization *job, struct quantize_work *work, const struct fake_quantize *f,
                            qobs_dtype x_dtype)
{
    enum kernel_dtype dtype;
    qobs_kernel_dtype_of(x_dtype, &dtype);
    const int64_t number = (int64_t)qobs_dtype_size(x_dtype);
    *work = (struct quantize_work){
        .f = f,
        .quantizer = f->quantizer,
        .rows = f->by_amax ? f->by_amax->rows[dtype] : f->kernels->fake_quantize_rows[dtype],
        .columns = f->by_amax ? f->by_amax->columns[dtype] : f->kernels->fake_quantize_columns[dtype],
        .code_rows = f->kernels->quantize_rows[dtype],
        .code_pairs = f->kernels->quantize_pairs[dtype],
        .code_columns = f->kernels->quantize_columns[dtype],
        .number_rows = f->kernels->dequantize_rows[dtype],
        .number_columns = f->kernels->dequantize_columns[dtype],
        .element = f->direction == FROM_CODES ? 1 : number,
        .out_element = f->direction == TO_CODES ? 1 : number,
    };
    if (f->direction == TO_CODES && f->quantizer.product)
        work->product_rows = f->kernels->product_rows[dtype];
    work->quantizer.in_float =
        f->quantizer.in_runtime || f->scale_dtype == QOBS_F32 || (number == 2 && f->global_scale);
    work->bounded = work->quantizer;
    work->bounded.bounded = true;
    *job = (struct quantization){
        .work = work,
        .sum = f->sum,
        .qparams = {.x_dtype = x_dtype,
                    .scale = f->scale,
                    .scale_dtype = f->scale_dtype,
                    .zero_point = f->zero_point,
                    .zero_point_dtype = f->zero_point_dtype,
                    .global_scale = f->global_scale,
                    .positive_zero = f->positive_zero,
                    .zero_scale = f->direction == TO_CODES ? f->quantizer.zero_scale : 0,
                    .in_float = work->quantizer.torch ? x_dtype != QOBS_F64 : work->quantizer.in_float}};
}

int qobs_fake_quantize_plan(const struct fake_quantize *f, const qobs_plan *plan, const void *x,
                            const qobs_plan *out_plan, void *out, qobs_error *error)
{
    struct quantization job;
    struct quantize_work work;
    qobs_quantization_open(&job, &work, f, plan->dtype);
    return f->packed ? quantize_to_pairs(&job, &work, plan, x, out_plan, out, error)
                     : quantize_elements(&job, plan, x, out_plan, out, error);
}

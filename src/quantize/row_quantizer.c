/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "quantize/row_quantizer.h"

#include <string.h>

#include "base/fpenv.h"
#include "base/split.h"
#include "plan/make_plan.h"
#include "measure/accumulators.h"
#include "quantize/q8_rows.h"

enum { CELL_BYTES = 1 << 14 }; /* of x; with its codes it stays in L1 until it has been read twice */

/* ---- Loops ------------------------------------------------------------------------------------------------------- */

static struct row_span span_of(const struct row_quantizer *q, const struct row_call *c)
{
    const int64_t out_stride = q->work.pack ? 2 * c->out_stride : c->out_stride; /* in codes */
    return (struct row_span){
        c->x, c->out, c->rows, q->geometry.columns, c->x_stride, out_stride, q->work.element, q->work.out_element, 0};
}

static struct quantization quantization_by(const struct row_quantizer *q, const void *scale, const void *zero_point,
                                           const float *global_scale, double *sum)
{
    struct quantization job = {.work = &q->work, .qparams = q->qparams, .sum = sum};
    job.qparams.scale = scale;
    job.qparams.zero_point = zero_point;
    job.qparams.global_scale = global_scale;
    return job;
}

/* The normalised loops of one tile. False: it is empty. */
static bool loops_of(const struct quantization *job, const struct row_geometry *g, const struct row_span *span,
                     unsigned tile, struct loops *loops)
{
    if (!qobs_row_loops(g, span, tile, loops))
        return false;
    if (job->work->pack)
        qobs_loops_by_pairs(loops, span->out, job->work->element);
    else
        qobs_loops_normalise(loops, LOOPS_BY_OUTPUT);
    return true;
}

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

/* A part of a matrix that is whole runs of whole units; the last run and the last unit may be short. */
struct cell {
    const unsigned char *x;
    int64_t stride;      /* bytes from row to row */
    int64_t units, unit; /* rows of a unit; if there are several units, each has so many */
    int64_t runs, run, columns;
    int64_t full, left; /* runs of a row that are not short, and columns after them */
};

struct range_panel {
    union {
        float single[PANEL];
        double wide[PANEL];
    } min, max;
};

static void measure_runs(const struct row_quantizer *q, const unsigned char *x, int64_t stride, int64_t n,
                         int64_t length, struct range_panel *to, int64_t first, int64_t step,
                         struct nonfinite_count *nonfinite)
{
    const struct kernel_table *k = q->f.kernels;
    unsigned char *const max = (unsigned char *)&to->max + first * q->work.element, *const min =
                                                                                        (unsigned char *)&to->min +
                                                                                        first * q->work.element;
    if (q->rule.symmetric)
        k->absmax_rows[q->kernel_dtype](x, (ptrdiff_t)stride, (size_t)n, (size_t)length, max, (ptrdiff_t)step,
                                        nonfinite);
    else
        k->minmax_rows[q->kernel_dtype](x, (ptrdiff_t)stride, (size_t)n, (size_t)length, min, max, (ptrdiff_t)step,
                                        nonfinite);
}

/* Rows of a cell from x on with ranges of their own, from `first` on. */
static void measure_rows(const struct row_quantizer *q, const struct cell *c, const unsigned char *x, int64_t rows,
                         struct range_panel *to, int64_t first, struct nonfinite_count *nonfinite)
{
    const int64_t element = q->work.element, full = c->full, left = c->left;
    if (full == 1)
        measure_runs(q, x, c->stride, rows, c->run, to, first, c->runs, nonfinite);
    else if (left == 0 && c->stride == c->columns * element)
        measure_runs(q, x, c->run * element, rows * full, c->run, to, first, 1, nonfinite);
    else
        for (int64_t i = 0; i < rows; i++)
            measure_runs(q, x + i * c->stride, c->run * element, full, c->run, to, first + i * c->runs, 1, nonfinite);
    if (left > 0)
        measure_runs(q, x + full * c->run * element, c->stride, rows, left, to, first + full, c->runs, nonfinite);
}

static void measure(const struct row_quantizer *q, const struct cell *c, struct range_panel *to,
                    struct nonfinite_count *nonfinite)
{
    qobs_fill_identities(q->kernel_dtype, (size_t)q->work.element, (size_t)(c->units * c->runs),
                         q->rule.symmetric ? NULL : &to->min, &to->max);
    if (c->unit == 1)
        measure_rows(q, c, c->x, c->units, to, 0, nonfinite);
    for (int64_t u = 0; c->unit > 1 && u < c->units; u++) {
        const unsigned char *x = c->x + u * c->unit * c->stride;
        if (c->runs == 1)
            measure_runs(q, x, c->stride, c->unit, c->columns, to, u, 0, nonfinite);
        for (int64_t i = 0; c->runs > 1 && i < c->unit; i++) /* in the order of memory */
            measure_rows(q, c, x + i * c->stride, 1, to, u * c->runs, nonfinite);
    }
}

/* ---- Elements that are not finite -------------------------------------------------------------------------------- */

static qobs_tensor matrix_of(const struct row_quantizer *q, const unsigned char *x, const int64_t *shape,
                             const int64_t *strides)
{
    return (qobs_tensor){sizeof(qobs_tensor), x, q->dtype, 2, shape, strides};
}

/* Without memory and threads. */
static const struct runtime alone;

/* Measures a cell again, as the setting has it. */
static int measure_nonfinite(const struct row_quantizer *q, const struct cell *c, struct range_panel *to)
{
    const int64_t shape[2] = {c->units * c->unit, c->columns}, strides[2] = {c->stride, q->work.element};
    const qobs_tensor matrix = matrix_of(q, c->x, shape, strides);
    struct nonfinite_count nonfinite;
    qobs_plan plan;
    int status = qobs_plan_make(&plan, &q->rule.granularity, &matrix, NULL, &alone, NULL);
    if (status == QOBS_OK)
        status = qobs_reduce_minmax(&alone, q->f.kernels, &plan, c->x, q->rule.nonfinite, &to->min, &to->max,
                                    &nonfinite, NULL);
    return status;
}

/* Fails with the counts and the first place in the complete matrix. */
static int fail_nonfinite(const struct row_quantizer *q, const struct row_call *c, qobs_error *error)
{
    const int64_t shape[2] = {c->rows, q->geometry.columns}, strides[2] = {c->x_stride, q->work.element};
    const qobs_tensor matrix = matrix_of(q, c->x, shape, strides);
    struct nonfinite_count nonfinite;
    double min, max;
    qobs_plan plan;
    const int status = qobs_plan_make(&plan, &qobs_whole_tensor, &matrix, NULL, &alone, error);
    return status == QOBS_OK
               ? qobs_reduce_minmax(&alone, q->f.kernels, &plan, c->x, NONFINITE_REFUSE, &min, &max, &nonfinite, error)
               : status;
}

/* ---- Scales of the matrix ---------------------------------------------------------------------------------------- */

struct rows_job {
    const struct row_quantizer *q;
    const struct row_call *call;
    unsigned char *out;             /* of the call; NULL: codes are made later, or not wanted */
    const struct quantization *job; /* with the qparams of the call */
    struct counted_part {
        struct nonfinite_count nonfinite;
        bool refused;
    } part[SPLIT_MAX_PARTS];
};

/* Writes qparams from `first` on for n ranges. real: receives real zero points, or NULL. */
static void find_qparams(const struct rows_job *j, struct range_panel *ranges, bool signed_ranges, int64_t first,
                         int64_t n, float *real)
{
    const struct row_quantizer *q = j->q;
    const struct row_call *c = j->call;
    const struct range_view view = {.dtype = q->dtype,
                                    .n = (size_t)n,
                                    .rank = q->rule.formula.params.rank,
                                    .min = signed_ranges ? &ranges->min : &ranges->max,
                                    .max = &ranges->max,
                                    .magnitudes = !signed_ranges,
                                    .global_scale = c->global_scale};
    unsigned char *const scale = c->scale, *const zero_point = c->zero_point;
    qobs_formula_find(&q->rule.formula, &view, scale + first * (int64_t)qobs_dtype_size(q->scale_dtype),
                      zero_point ? zero_point + first * (int64_t)qobs_dtype_size(q->zero_point_dtype) : NULL, real,
                      NULL);
}

/* True if no magnitude is larger than 2^14 times its scale, as bits of BF16, which are the ones that the kernels use it
 * for. It says too much of subnormal scales, by which they do not quantize so. */
static bool is_bounded(const struct rows_job *j, const struct range_panel *ranges, int64_t first, int64_t n)
{
    const struct row_quantizer *q = j->q;
    const uint16_t *max = (const uint16_t *)&ranges->max, *min = (const uint16_t *)&ranges->min;
    const unsigned char *scale = (const unsigned char *)j->call->scale + 2 * first;
    if (q->rule.quantizer.product)
        return true;
    bool above = q->dtype != QOBS_BF16 || q->scale_dtype != QOBS_BF16 || q->rule.kind != QOBS_CODE_INTEGER;
    for (int64_t i = 0; !above && i < n; i++) {
        int16_t bits;
        memcpy(&bits, scale + 2 * i, sizeof bits);
        const int limit = bits + (14 << 7), high = max[i] & 0x7fff, low = q->rule.symmetric ? 0 : min[i] & 0x7fff;
        above = bits < 0x80 || high > limit || low > limit;
    }
    return !above;
}

/* Quantizes a cell whose first qparam and first byte of out these are. */
static void quantize_cell(const struct quantization *job, const struct row_geometry *geometry, const struct cell *c,
                          unsigned char *out, int64_t stride, int64_t qparam)
{
    const int64_t element = job->work->element, width = job->work->pack ? c->run / 2 : c->run;
    const struct loop inner = {c->run, element, job->work->out_element, 0};
    if (c->left == 0 && c->runs == 1 && c->unit == 1) {
        const struct loop rows = {c->units, c->stride, stride, 1};
        qobs_quantize_runs(job, &inner, &rows, c->x, out, qparam);
        return;
    }
    const bool dense = c->stride == c->columns * element && stride == width * c->runs * job->work->out_element;
    if (c->left == 0 && c->unit == 1 && (dense || c->units == 1)) {
        const struct loop runs = {c->units * c->runs, c->run * element, width * job->work->out_element, 1};
        qobs_quantize_runs(job, &inner, &runs, c->x, out, qparam);
        return;
    }
    struct row_geometry g = *geometry;
    g.unit = c->unit;
    const struct row_span span = {c->x,
                                  out,
                                  c->units * c->unit,
                                  c->columns,
                                  c->stride,
                                  job->work->pack ? 2 * stride : stride,
                                  element,
                                  job->work->out_element,
                                  qparam};
    for (unsigned tile = 0; tile < ROW_TILES; tile++) {
        struct loops loops;
        if (loops_of(job, &g, &span, tile, &loops))
            qobs_quantize_loops(job, &loops);
    }
}

/* Only units of one row are joined. */
void qobs_row_quantizer_finish(struct row_quantizer *q)
{
    const struct row_geometry *g = &q->geometry;
    const int64_t by_size = CELL_BYTES / (g->columns * q->work.element), by_ranges = PANEL / g->per_unit;
    const int64_t most = by_size < by_ranges ? by_size : by_ranges;
    q->cell_units = g->unit == 1 && most > 1 ? most : 1;
}

/* Runs of a unit that fit a cell. Several rows without codes are read once, and need not stay in L1. */
static int64_t runs_of_cell(const struct row_quantizer *q, int64_t unit, bool codes)
{
    const struct row_geometry *g = &q->geometry;
    const int64_t by_size = unit > 1 && codes ? CELL_BYTES / q->work.element / unit / g->run : g->per_unit;
    const int64_t most = by_size < PANEL ? by_size : PANEL;
    return most < 1 ? 1 : most < g->per_unit ? most : g->per_unit;
}

/* The cell of n units from row `row` on with at most `runs` runs from the r-th on. */
static struct cell cell_at(const struct row_quantizer *q, const struct row_call *call, int64_t row, int64_t n,
                           int64_t unit, int64_t r, int64_t runs)
{
    const struct row_geometry *g = &q->geometry;
    const int64_t left = call->rows - row, first = r * g->run;
    struct cell c = {.x = call->x + row * call->x_stride + first * q->work.element,
                     .stride = call->x_stride,
                     .units = n,
                     .unit = left < unit ? left : unit,
                     .runs = g->per_unit - r < runs ? g->per_unit - r : runs,
                     .run = g->run};
    const bool last = r + c.runs == g->per_unit;
    c.left = last ? g->left : 0;
    c.full = c.runs - (c.left > 0);
    c.columns = c.full * g->run + c.left;
    return c;
}

/* Codes of rows that are whole runs, by the scales of a cell and real zero points, or NULL. */
static void multiply_found(const struct rows_job *j, const struct cell *c, unsigned char *out, int64_t qparam,
                           const float *real, bool bounded)
{
    const struct row_quantizer *q = j->q;
    const struct quantize_work *w = &q->work;
    w->product_rows(bounded ? &w->bounded : &w->quantizer, q->f.kind, c->x, (ptrdiff_t)c->stride, out,
                    (ptrdiff_t)j->call->out_stride, (size_t)(c->units * c->unit), (size_t)c->run,
                    (const float *)j->call->scale + qparam, real, c->unit == 1);
}

/* Quantizes a cell by its qparams, the first of which is `qparam`. */
static void quantize_found(const struct rows_job *j, const struct cell *c, unsigned char *out, int64_t qparam,
                           bool bounded)
{
    struct quantization job = *j->job;
    job.bounded = bounded;
    quantize_cell(&job, &j->q->geometry, c, out, j->call->out_stride, qparam);
}

/* Writes the blocks of a cell, whose ranges are known. */
static void write_blocks(const struct row_quantizer *q, const struct row_call *call, const struct cell *c,
                         struct range_panel *ranges, unsigned char *out)
{
    const struct q8_rows rows = {q->rule.quantizer.block, q->dtype, q->work.element,
                                 q->f.kernels->q8_blocks[q->kernel_dtype]};
    const struct q8_matrix m = {c->x, out, c->units, c->runs, c->stride, call->out_stride};
    qobs_q8_rows(&rows, &m, (const unsigned char *)&ranges->min, (unsigned char *)&ranges->max);
}

/* False: there is an element that the rule refuses. */
static bool quantize_one(const struct rows_job *j, const struct cell *c, unsigned char *out, int64_t qparam,
                         struct nonfinite_count *counted)
{
    const struct row_quantizer *q = j->q;
    struct nonfinite_count nonfinite = {0};
    struct range_panel ranges;
    bool again = false;
    measure(q, c, &ranges, &nonfinite);
    if (nonfinite.nan > 0 || nonfinite.inf > 0) {
        if (q->rule.nonfinite == NONFINITE_REFUSE || measure_nonfinite(q, c, &ranges) != QOBS_OK)
            return false;
        counted->nan += nonfinite.nan;
        counted->inf += nonfinite.inf;
        again = true;
    }
    if (q->rule.quantizer.block) {
        write_blocks(q, j->call, c, &ranges, out);
        return true;
    }
    const int64_t count = c->units * c->runs;
    float panel[PANEL], *real = q->rule.formula.ops->real_zero_points && !q->rule.symmetric ? panel : NULL;
    find_qparams(j, &ranges, !q->rule.symmetric || again, qparam, count, real);
    const bool bounded = !again && is_bounded(j, &ranges, qparam, count);
    if (QOBS_HAS(codes) && out && q->work.product_rows && !q->rule.has_global_scale)
        multiply_found(j, c, out, qparam, real, bounded);
    else if (QOBS_HAS(codes) && out)
        quantize_found(j, c, out, qparam, bounded);
    return true;
}

static bool quantize_units(const struct rows_job *j, int64_t from, int64_t to, struct nonfinite_count *counted)
{
    const struct row_quantizer *q = j->q;
    const struct row_geometry *g = &q->geometry;
    const struct row_call *call = j->call;
    const int64_t unit = qobs_geometry_unit(g, call->rows), runs = runs_of_cell(q, unit, j->out);
    for (int64_t u = from, n; u < to; u += n) {
        const int64_t row = u * unit;
        n = to - u < q->cell_units ? to - u : q->cell_units;
        for (int64_t r = 0; r < g->per_unit; r += runs) {
            const struct cell c = cell_at(q, call, row, n, unit, r, runs);
            unsigned char *const out =
                j->out ? j->out + row * call->out_stride + qobs_row_quantizer_bytes(q, r * g->run) : NULL;
            if (!quantize_one(j, &c, out, u * g->per_unit + r, counted))
                return false;
        }
    }
    return true;
}

static void quantize_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct rows_job *j = argument;
    struct counted_part *p = &j->part[part];
    p->nonfinite = (struct nonfinite_count){0};
    p->refused = !quantize_units(j, from, to, &p->nonfinite);
}

static const struct split_rule rule = {
    .min_total = 1 << 18, .min_part = 1 << 17, .parts_per_thread = 4, .max_parts = SPLIT_MAX_PARTS}; /* bytes */

/* ---- The range of all rows --------------------------------------------------------------------------------------- */

struct rows_range {
    const struct row_quantizer *q;
    const struct row_call *call;
    struct range_of_part {
        double min, max;
        struct nonfinite_count nonfinite;
    } part[SPLIT_MAX_PARTS];
};

static void measure_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct rows_range *r = argument;
    const struct row_call *c = r->call;
    const int64_t columns = r->q->geometry.columns;
    const struct cell cell = {c->x + from * c->x_stride, c->x_stride, 1, to - from, 1, columns, columns, 1, 0};
    struct range_of_part *p = &r->part[part];
    struct range_panel ranges;
    p->nonfinite = (struct nonfinite_count){0};
    measure(r->q, &cell, &ranges, &p->nonfinite);
    memcpy(&p->max, &ranges.max, sizeof p->max);
    memcpy(&p->min, r->q->rule.symmetric ? &ranges.max : &ranges.min, sizeof p->min);
}

/* The one range, measured by several threads. */
static bool measure_all(const struct rows_job *j, const struct split *split, struct nonfinite_count *counted)
{
    const struct row_quantizer *q = j->q;
    struct rows_range r = {.q = q, .call = j->call};
    struct range_panel ranges;
    struct nonfinite_count nonfinite = {0};
    qobs_split_run(&q->runtime, split, measure_part, &r);
    memcpy(&ranges.min, &r.part[0].min, sizeof(double));
    memcpy(&ranges.max, &r.part[0].max, sizeof(double));
    const fp_mode mode = fp_enter();
    for (int64_t i = 0; i < split->parts; i++) {
        qobs_update_running(q->dtype, 1, 1, &ranges.min, &ranges.max, &r.part[i].min, &r.part[i].max);
        nonfinite.nan += r.part[i].nonfinite.nan;
        nonfinite.inf += r.part[i].nonfinite.inf;
    }
    bool found = true;
    if (nonfinite.nan > 0 || nonfinite.inf > 0)
        found = quantize_units(j, 0, 1, counted);
    else
        find_qparams(j, &ranges, !q->rule.symmetric, 0, 1, NULL);
    fp_leave(mode);
    return found;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static bool find_all(struct rows_job *j, struct nonfinite_count *counted)
{
    const struct row_quantizer *q = j->q;
    const struct row_geometry *g = &q->geometry;
    const int64_t rows = j->call->rows, units = qobs_geometry_units(g, rows),
                  bytes = rows * g->columns * q->work.element;
    const bool one = units == 1 && g->per_unit == 1;
    const struct split split = qobs_split(&q->runtime, &rule, one ? rows : units, bytes, 0);
    bool refused = false;
    if (split.parts > 1 && one)
        return measure_all(j, &split, counted);
    if (split.parts == 1) {
        const fp_mode mode = fp_enter();
        refused = !quantize_units(j, 0, units, counted);
        fp_leave(mode);
        return !refused;
    }
    qobs_split_run(&q->runtime, &split, quantize_part, j);
    for (int64_t i = 0; i < split.parts; i++) {
        refused |= j->part[i].refused;
        counted->nan += j->part[i].nonfinite.nan;
        counted->inf += j->part[i].nonfinite.inf;
    }
    return !refused;
}

/* Little work needs no tiles: sums and threads do. */
void qobs_quantize_rows_by(const struct row_quantizer *q, const struct row_call *c)
{
    const struct quantization job = quantization_by(q, c->scale, c->zero_point, c->global_scale, c->sum);
    const struct row_geometry *g = &q->geometry;
    if (!c->sum && !q->runtime.executor && g->unit <= 1) {
        const struct cell all =
            cell_at(q, c, 0, g->unit == 1 ? c->rows : 1, g->unit == 1 ? 1 : c->rows, 0, g->per_unit);
        const fp_mode mode = fp_enter();
        quantize_cell(&job, g, &all, c->out, c->out_stride, 0);
        fp_leave(mode);
        return;
    }
    const struct row_span span = span_of(q, c);
    for (unsigned tile = 0; tile < ROW_TILES; tile++) {
        struct loops loops;
        if (loops_of(&job, g, &span, tile, &loops))
            qobs_quantize_tile(&job, &loops);
    }
}

/* Sums of errors have the order of those by given scales; one range of all rows is known after the last. */
int qobs_quantize_rows_of(const struct row_quantizer *q, const struct row_call *c, struct nonfinite_count *nonfinite,
                          qobs_error *error)
{
    const bool apart = QOBS_HAS(codes) && c->out && (c->sum || (q->geometry.unit == 0 && q->runtime.executor));
    const struct quantization job =
        quantization_by(q, c->scale, q->rule.symmetric ? NULL : c->zero_point, c->global_scale, NULL);
    struct rows_job j;
    j.q = q;
    j.call = c;
    j.out = apart ? NULL : c->out;
    j.job = &job;
    *nonfinite = (struct nonfinite_count){0};
    if (!find_all(&j, nonfinite))
        return fail_nonfinite(q, c, error);
    if (apart) {
        struct row_call call = *c;
        call.zero_point = job.qparams.zero_point ? c->zero_point : NULL;
        qobs_quantize_rows_by(q, &call);
    }
    return QOBS_OK;
}

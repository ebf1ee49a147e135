/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Chooses between the rows, columns and row panels kernels by the innermost loops, and between direct calls and panels
 * with bounds by their sizes. The limits were measured on Zen 4. Minimum and maximum depend on no order of elements. */
#include "measure/reduce.h"

#include <math.h>

#include "measure/accumulators.h"
#include "number/number.h"

struct minmax_call {
    const struct kernel_table *kernels;
    enum kernel_dtype dtype;
    size_t element;
    unsigned char *min, *max; /* min NULL: magnitudes */
    struct nonfinite_count *nonfinite;
    bool by_columns;
    const struct loop *outer; /* the loops that are walked, but for `skipped` */
    int outers, skipped;
    const struct loop *inner;  /* along contiguous elements */
    const struct loop *second; /* from run to run, or from row to row of columns */
    loop_visit *reduce;        /* reduces the loops that are not walked */
    /* Contiguous runs, row after row of them. `row` goes from row to row with the same outputs, `block` to the next
     * rows, with other outputs. A panel is as many rows as are reduced to bounds in `scratch` at a time; the bounds are
     * then merged. */
    const struct loop *row, *block;
    int64_t panel;
    unsigned char *scratch;
};

/* The kernels: minimum and maximum, or the largest magnitude alone. */
static void rows(const struct minmax_call *c, const unsigned char *x, int64_t stride, int64_t n, int64_t length,
                 unsigned char *min, unsigned char *max, int64_t out_stride, struct nonfinite_count *nonfinite)
{
    if (c->min)
        c->kernels->minmax_rows[c->dtype](x, (ptrdiff_t)stride, (size_t)n, (size_t)length, min, max,
                                          (ptrdiff_t)out_stride, nonfinite);
    else
        c->kernels->absmax_rows[c->dtype](x, (ptrdiff_t)stride, (size_t)n, (size_t)length, max, (ptrdiff_t)out_stride,
                                          nonfinite);
}

static void columns(const struct minmax_call *c, const unsigned char *x, int64_t stride, int64_t n, int64_t width,
                    unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite)
{
    if (c->min)
        c->kernels->minmax_columns[c->dtype](x, (ptrdiff_t)stride, (size_t)n, (size_t)width, min, max, nonfinite);
    else
        c->kernels->absmax_columns[c->dtype](x, (ptrdiff_t)stride, (size_t)n, (size_t)width, max, nonfinite);
}

static unsigned char *min_at(const struct minmax_call *c, int64_t out)
{
    return c->min ? c->min + out * (int64_t)c->element : NULL;
}
static unsigned char *max_at(const struct minmax_call *c, int64_t out) { return c->max + out * (int64_t)c->element; }

void qobs_fill_identities(enum kernel_dtype dtype, size_t element, size_t n, void *min, void *max)
{
    static const union {
        float f32[2];
        uint16_t h16[2];
        double f64[2];
    } identities[QOBS_KERNEL_DTYPES] = {[QOBS_KERNEL_F32] = {.f32 = {INFINITY, -INFINITY}},
                                        [QOBS_KERNEL_BF16] = {.h16 = {0x7f80, 0xff80}},
                                        [QOBS_KERNEL_F16] = {.h16 = {0x7c00, 0xfc00}},
                                        [QOBS_KERNEL_F64] = {.f64 = {INFINITY, -INFINITY}}};
    const unsigned char *identity = (const unsigned char *)&identities[dtype];
    const size_t size = n * element;
    if (!min) { /* magnitudes */
        memset(max, 0, size);
        return;
    }
    unsigned char *const lo = min, *const hi = max;
    memcpy(lo, identity, n > 0 ? element : 0);
    memcpy(hi, identity + element, n > 0 ? element : 0);
    for (size_t done = element; done < size; done *= 2) {
        memcpy(lo + done, lo, done < size - done ? done : size - done);
        memcpy(hi + done, hi, done < size - done ? done : size - done);
    }
}

static void fill_identities(const struct minmax_call *c, unsigned char *min, unsigned char *max, int64_t n)
{
    qobs_fill_identities(c->dtype, c->element, (size_t)n, c->min ? min : NULL, max);
}

/* ---- Columns --------------------------------------------------------------------------------------------------- */

enum { COLUMNS = 256 }; /* of a panel whose outputs are scattered */

/* Columns whose outputs are not adjacent: a panel of them is reduced to adjacent outputs first. */
static void reduce_scattered_columns(const struct minmax_call *c, const unsigned char *x, int64_t out)
{
    static const qobs_dtype dtypes[QOBS_KERNEL_DTYPES] = {[QOBS_KERNEL_F32] = QOBS_F32,
                                                          [QOBS_KERNEL_BF16] = QOBS_BF16,
                                                          [QOBS_KERNEL_F16] = QOBS_F16,
                                                          [QOBS_KERNEL_F64] = QOBS_F64};
    unsigned char min[COLUMNS * 8], max[COLUMNS * 8];
    const int64_t element = (int64_t)c->element, step = c->inner->qparam;
    for (int64_t first = 0; first < c->inner->extent; first += COLUMNS, out += COLUMNS * step) {
        const int64_t n = c->inner->extent - first < COLUMNS ? c->inner->extent - first : COLUMNS;
        struct nonfinite_count counted = {0}; /* with the columns */
        fill_identities(c, min, max, n);
        columns(c, x + first * element, c->second->in, c->second->extent, n, min, max, c->nonfinite);
        if (c->min)
            qobs_update_running(dtypes[c->dtype], (size_t)n, (ptrdiff_t)step, min_at(c, out), max_at(c, out), min, max);
        else
            rows(c, max, element, n, 1, NULL, max_at(c, out), step, &counted);
    }
}

static void reduce_columns_or_rows(void *argument, const struct loop_entry *at)
{
    const struct minmax_call *c = argument;
    const unsigned char *x = at->in;
    int64_t out = at->qparam;
    if (c->by_columns && c->inner->extent > 1 && c->inner->qparam != 1)
        reduce_scattered_columns(c, x, out);
    else if (c->by_columns)
        columns(c, x, c->second->in, c->second->extent, c->inner->extent, min_at(c, out), max_at(c, out), c->nonfinite);
    else
        rows(c, x, c->second->in, c->second->extent, c->inner->extent, min_at(c, out), max_at(c, out),
             c->second->qparam, c->nonfinite);
}

/* ---- Rows of runs ---------------------------------------------------------------------------------------------- */

enum {
    MAX_BOUNDS = 8192,        /* of a panel */
    MIN_COLUMNS = 64,         /* for the columns kernel to be fast */
    MIN_PANEL_ROWS = 8,       /* for panels to be faster than the rows kernel */
    MIN_PANEL_RUN = 32,       /* elements */
    MIN_ROW_PANEL_RUN = 256   /* bytes; shorter runs are faster in panels */
};

/* Merges the bounds of n rows into those at min and max. The maxima of minima and the minima of maxima are not wanted.
 */
static void merge_bounds(const struct minmax_call *c, const unsigned char *lo, const unsigned char *hi, int64_t n,
                         int64_t width, unsigned char *min, unsigned char *max)
{
    struct nonfinite_count counted = {0}; /* with the runs */
    unsigned char unwanted[MAX_BOUNDS / MIN_PANEL_ROWS * 8];
    fill_identities(c, unwanted, unwanted, width);
    if (c->min)
        columns(c, lo, width * (int64_t)c->element, n, width, min, unwanted, &counted);
    columns(c, hi, width * (int64_t)c->element, n, width, unwanted, max, &counted);
}

/* One kernel call for the runs of a panel, and a few more to merge rows that share outputs; each run is a column then.
 * If there are few columns, several rows form a wider row first. */
static void reduce_panels(void *argument, const struct loop_entry *at)
{
    const struct minmax_call *c = argument;
    const int64_t across = c->second->extent, height = c->row->extent * c->block->extent, element = (int64_t)c->element;
    for (int64_t first = 0, n; first < height; first += n) {
        n = height - first < c->panel ? height - first : c->panel;
        unsigned char *lo = c->scratch, *hi = lo + c->panel * across * element;
        fill_identities(c, lo, hi, n * across);
        rows(c, at->in + first * c->row->in, c->second->in, n * across, c->inner->extent, lo, hi, 1, c->nonfinite);
        for (int64_t r = first, end; r < first + n; r = end) {
            const int64_t block = r / c->row->extent, out = at->qparam + block * c->block->qparam;
            end = (block + 1) * c->row->extent < first + n ? (block + 1) * c->row->extent : first + n;
            int64_t together = 1;
            while (together * across < MIN_COLUMNS && (end - r) % (2 * together) == 0)
                together *= 2;
            const int64_t wide = together * across, size = wide * element;
            if (together > 1)
                merge_bounds(c, lo + size, hi + size, (end - r) / together - 1, wide, lo, hi);
            merge_bounds(c, lo, hi, together > 1 ? together : end - r, across, min_at(c, out), max_at(c, out));
            lo += (end - r) * across * element;
            hi += (end - r) * across * element;
        }
    }
}

/* One kernel call for all blocks, or one for each if their outputs are not adjacent. */
static void reduce_row_panels(void *argument, const struct loop_entry *at)
{
    const struct minmax_call *c = argument;
    const unsigned char *x = at->in;
    int64_t out = at->qparam;
    const int64_t runs = c->second->extent, each = c->block->qparam == runs ? c->block->extent : 1;
    for (int64_t i = 0; i < c->block->extent; i += each, x += c->block->in, out += c->block->qparam)
        c->kernels->minmax_row_panels[c->dtype](x, (ptrdiff_t)c->row->in, (size_t)each, (size_t)c->row->extent,
                                                (size_t)runs, (size_t)c->inner->extent, min_at(c, out), max_at(c, out),
                                                c->nonfinite);
}

/* Takes several rows of contiguous runs that share outputs as one call, because a row alone is little work for a
 * kernel. Returns how many of the n outer loops are left. */
static int choose_rows(struct minmax_call *c, bool magnitudes, bool panels, int n)
{
    if (n == 0)
        return n;
    const struct loop *run = c->second, *row = &c->outer[n - 1];
    if (row->qparam != 0 || run->qparam != 1 || run->in != c->inner->extent * (int64_t)c->element ||
        row->in != run->extent * run->in)
        return n;
    const bool blocks = n > 1 && c->outer[n - 2].in == row->extent * row->in;
    c->row = row;
    c->block = blocks ? &c->outer[n - 2] : &qobs_single_loop;
    const int64_t height = c->row->extent * c->block->extent, most = MAX_BOUNDS / run->extent;
    /* There is no kernel of row panels for magnitudes. */
    if (!magnitudes && run->in >= MIN_ROW_PANEL_RUN) {
        c->reduce = reduce_row_panels;
    } else if (panels && c->inner->extent >= MIN_PANEL_RUN && most >= MIN_PANEL_ROWS) {
        c->reduce = reduce_panels;
        c->panel = height < most ? height : most;
    } else {
        return n;
    }
    return n - 1 - blocks;
}

/* Chooses the loops of a call, innermost first. */
static void choose(const struct loops *loops, bool magnitudes, bool panels, struct minmax_call *c)
{
    int n = loops->count;
    c->outer = loops->loop;
    c->skipped = -1;
    c->inner = c->second = &qobs_single_loop;
    c->panel = 0;
    c->reduce = reduce_columns_or_rows;
    if (n > 0 && c->outer[n - 1].in == (int64_t)c->element)
        c->inner = &c->outer[--n];
    /* Contiguous elements with a qparam each are columns, walked down a reduced loop. Elements that are not contiguous
     * are a single column. */
    c->by_columns = c->inner->qparam != 0 || c->inner->extent == 1;
    if (c->by_columns) {
        for (int i = n; i-- > 0 && c->skipped < 0;)
            if (c->outer[i].qparam == 0)
                c->skipped = i;
        c->second = c->skipped < 0 ? &qobs_single_loop : &c->outer[c->skipped];
    } else if (n > 0) {
        c->second = &c->outer[--n];
        n = choose_rows(c, magnitudes, panels, n);
    }
    c->outers = n;
}

size_t qobs_minmax_scratch(const struct loops *loops, size_t element, bool magnitudes)
{
    struct minmax_call c = {.element = element};
    if (loops->count < 3) /* no panels; small tensors need not choose twice */
        return 0;
    choose(loops, magnitudes, true, &c);
    return 2 * (size_t)(c.panel * c.second->extent) * element;
}

void qobs_minmax_loops(const struct loops *loops, const struct kernel_table *kernels, enum kernel_dtype dtype,
                       size_t element, void *scratch, unsigned char *min, unsigned char *max,
                       struct nonfinite_count *nonfinite)
{
    struct minmax_call c = {.kernels = kernels,
                            .dtype = dtype,
                            .element = element,
                            .scratch = scratch,
                            .min = min,
                            .max = max,
                            .nonfinite = nonfinite};
    choose(loops, !min, scratch != NULL, &c);
    struct loop outer[MAX_AXES];
    int n = 0;
    for (int i = 0; i < c.outers; i++)
        if (i != c.skipped)
            outer[n++] = c.outer[i];
    qobs_loops_walk(outer, n, (struct loop_entry){loops->in, NULL, loops->qparam}, c.reduce, &c);
}

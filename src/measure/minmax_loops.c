/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Chooses between the rows, columns and row panels kernels by the innermost loops, and between direct calls and panels
 * with bounds by their sizes. The limits were measured on Zen 4. Minimum and maximum depend on no order of elements. */
#include "measure/reduce.h"

#include <math.h>
#include <string.h>

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

static const union identity {
    float f32[2];
    uint16_t h16[2];
    double f64[2];
} identities[QOBS_KERNEL_DTYPES] = {
    [QOBS_KERNEL_F32] = {.f32 = {INFINITY, -INFINITY}},
    [QOBS_KERNEL_BF16] = {.h16 = {0x7f80, 0xff80}},
    [QOBS_KERNEL_F16] = {.h16 = {0x7c00, 0xfc00}},
    [QOBS_KERNEL_F64] = {.f64 = {INFINITY, -INFINITY}},
};

void qobs_fill_identities(enum kernel_dtype dtype, size_t element, size_t n, void *min, void *max)
{
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

/* Merges n adjacent outputs into outputs that are inner->qparam apart. A pair is merged as two runs of one element,
 * each into both min and max: a minimum is never above the maximum that follows. Only an identity is, which remains if
 * all elements were NaN. */
static void scatter_outputs(const struct minmax_call *c, const unsigned char *min, const unsigned char *max, int64_t n,
                            int64_t out, bool identities_possible)
{
    struct nonfinite_count counted = {0}; /* by the kernel before */
    const int64_t element = (int64_t)c->element, step = c->inner->qparam * element;
    unsigned char *to_min = min_at(c, out), *to_max = max_at(c, out);
    if (!c->min || !identities_possible) {
        if (c->min)
            rows(c, min, element, n, 1, to_min, to_max, c->inner->qparam, &counted);
        rows(c, max, element, n, 1, to_min, to_max, c->inner->qparam, &counted);
        return;
    }
    const unsigned char *identity = (const unsigned char *)&identities[c->dtype];
    for (int64_t j = 0; j < n; j++) {
        unsigned char spare[8];
        memcpy(spare, identity + c->element, c->element);
        rows(c, min + j * element, 0, 1, 1, to_min + j * step, spare, 0, &counted);
        memcpy(spare, identity, c->element);
        rows(c, max + j * element, 0, 1, 1, spare, to_max + j * step, 0, &counted);
    }
}

/* Columns whose outputs are not adjacent: a panel of them is reduced to adjacent outputs first. */
static void reduce_scattered_columns(const struct minmax_call *c, const unsigned char *x, int64_t out)
{
    unsigned char min[COLUMNS * 8], max[COLUMNS * 8];
    for (int64_t first = 0; first < c->inner->extent; first += COLUMNS) {
        const int64_t n = c->inner->extent - first < COLUMNS ? c->inner->extent - first : COLUMNS;
        fill_identities(c, min, max, n);
        const uint64_t nan_before = c->nonfinite->nan;
        columns(c, x + first * (int64_t)c->element, c->second->in, c->second->extent, n, min, max, c->nonfinite);
        scatter_outputs(c, min, max, n, out + first * c->inner->qparam, c->nonfinite->nan != nan_before);
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
    MIN_BAND_RUN = 256,       /* bytes; shorter runs are faster in panels */
    MAX_BAND_BYTES = 32 << 20 /* exceeds L3: panels read memory 1 to 10 % faster */
};

/* Merges all bounds into both min and max: no minimum is above the maximum that follows. */
static void merge_both(const struct minmax_call *c, const unsigned char *lo, const unsigned char *hi, int64_t n,
                       int64_t width, unsigned char *min, unsigned char *max)
{
    struct nonfinite_count counted = {0}; /* with the runs */
    const int64_t stride = width * (int64_t)c->element;
    if (c->min)
        columns(c, lo, stride, n, width, min, max, &counted);
    columns(c, hi, stride, n, width, min, max, &counted);
}

/* Merges the bounds of n rows of runs into their outputs; each run is a column. If there are few columns, several rows
 * form a wider row first. */
static void merge_bounds(const struct minmax_call *c, const unsigned char *lo, const unsigned char *hi, int64_t n,
                         unsigned char *min, unsigned char *max)
{
    unsigned char wide_lo[2 * MIN_COLUMNS * 8], wide_hi[2 * MIN_COLUMNS * 8];
    int64_t wide = c->second->extent;
    while (wide < MIN_COLUMNS && n % 2 == 0) {
        wide *= 2;
        n /= 2;
    }
    if (wide > c->second->extent) {
        fill_identities(c, wide_lo, wide_hi, wide);
        merge_both(c, lo, hi, n, wide, wide_lo, wide_hi);
        n = wide / c->second->extent;
        lo = wide_lo;
        hi = wide_hi;
    }
    merge_both(c, lo, hi, n, c->second->extent, min, max);
}

/* One kernel call for the runs of a panel, and a few more to merge rows that share outputs. */
static void reduce_panels(void *argument, const struct loop_entry *at)
{
    const struct minmax_call *c = argument;
    const unsigned char *x = at->in;
    int64_t out = at->qparam;
    const int64_t across = c->second->extent, height = c->row->extent * c->block->extent, element = (int64_t)c->element;
    unsigned char *const lo = c->scratch, *const hi = lo + c->panel * across * element;
    for (int64_t first = 0, n; first < height; first += n) {
        n = height - first < c->panel ? height - first : c->panel;
        const struct nonfinite_count before = *c->nonfinite;
        fill_identities(c, lo, hi, n * across);
        rows(c, x + first * c->row->in, c->second->in, n * across, c->inner->extent, lo, hi, 1, c->nonfinite);
        const bool nan = c->nonfinite->nan != before.nan; /* the bounds of a run may be identities */
        if (nan)
            *c->nonfinite = before;
        for (int64_t r = first, end; r < first + n; r = end) {
            const int64_t block = r / c->row->extent, done = (r - first) * across * element;
            end = (block + 1) * c->row->extent < first + n ? (block + 1) * c->row->extent : first + n;
            unsigned char *min = min_at(c, out + block * c->block->qparam),
                          *max = max_at(c, out + block * c->block->qparam);
            if (!nan)
                merge_bounds(c, lo + done, hi + done, end - r, min, max);
            for (; nan && r < end; r++)
                rows(c, x + r * c->row->in, c->second->in, across, c->inner->extent, min, max, 1, c->nonfinite);
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

/* There is no such kernel for magnitudes. */
static bool suits_row_panels(const struct minmax_call *c, bool magnitudes)
{
    const int64_t run = c->inner->extent * (int64_t)c->element;
    return !magnitudes && run >= MIN_BAND_RUN &&
           run * c->second->extent * c->row->extent * c->block->extent < MAX_BAND_BYTES;
}

static bool suits_panels(const struct minmax_call *c)
{
    return c->inner->extent >= MIN_PANEL_RUN && MAX_BOUNDS / c->second->extent >= MIN_PANEL_ROWS;
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
    if (suits_row_panels(c, magnitudes)) {
        c->reduce = reduce_row_panels;
    } else if (panels && suits_panels(c)) {
        const int64_t height = c->row->extent * c->block->extent, most = MAX_BOUNDS / run->extent;
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

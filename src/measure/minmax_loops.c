/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "measure/minmax_loops.h"

#include <math.h>
#include <string.h>

#include "number/number.h"

bool qobs_nest_of_plan(const qobs_plan *plan, const unsigned char *data, unsigned ends, struct nest *nest)
{
    struct tile part;
    if (!qobs_plan_tile(plan, ends, &part))
        return false;
    nest->base = data;
    nest->out = 0;
    nest->dimensions = plan->axes;
    for (int i = 0; i < plan->axes; i++) {
        nest->dimension[i] = (struct nest_dimension){part.extent[i], plan->axis[i].stride, part.qparam[i]};
        nest->base += part.first[i] * plan->axis[i].stride;
        nest->out += part.first[i] * part.qparam[i];
    }
    return true;
}

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Should a be further out than b? Memory is to be walked in order; repeated reading (stride 0) belongs outside. */
static bool outside(const struct nest_dimension *a, const struct nest_dimension *b)
{
    if (a->in == 0 || b->in == 0)
        return a->in == 0 && b->in != 0;
    return magnitude(a->in) > magnitude(b->in);
}

void qobs_nest_normalise(struct nest *nest)
{
    int n = 0;
    for (int i = 0; i < nest->dimensions; i++) {
        struct nest_dimension d = nest->dimension[i];
        if (d.extent == 1)
            continue;
        if (d.in < 0) {
            nest->base += (d.extent - 1) * d.in;
            nest->out += (d.extent - 1) * d.out;
            d.in = -d.in;
            d.out = -d.out;
        }
        int at = n++;
        for (; at > 0 && outside(&d, &nest->dimension[at - 1]); at--)
            nest->dimension[at] = nest->dimension[at - 1];
        nest->dimension[at] = d;
    }
    int joined = 0;
    for (int i = 0; i < n; i++) {
        const struct nest_dimension d = nest->dimension[i];
        struct nest_dimension *outer = joined > 0 ? &nest->dimension[joined - 1] : NULL;
        if (outer && outer->in == d.in * d.extent && outer->out == d.out * d.extent)
            *outer = (struct nest_dimension){outer->extent * d.extent, d.in, d.out};
        else
            nest->dimension[joined++] = d;
    }
    nest->dimensions = joined;
}

/* What stands for a dimension that is not there. */
static const struct nest_dimension one = {1, 0, 0};

struct call {
    const struct qobs_kernels *kernels;
    enum qobs_kernel_dtype dtype;
    size_t element;
    unsigned char *min, *max; /* min NULL: of magnitudes */
    struct qobs_nonfinite *nonfinite;
    bool by_columns;
    const struct nest_dimension *outer; /* dimensions that are walked, but for `skipped` */
    int outers, skipped;
    const struct nest_dimension *inner;  /* along contiguous elements */
    const struct nest_dimension *second; /* from run to run, or from row to row */
    void (*reduce)(const struct call *c, const unsigned char *x, int64_t out); /* what is left of the nest */
    /* Runs that come one after the other in memory, row after row of them: from row to row with the same outputs, and to where others
     * begin. By slabs, so many rows at a time are reduced to bounds in `scratch`, which are then merged. */
    const struct nest_dimension *row, *band;
    int64_t slab;
    unsigned char *scratch;
};

/* The kernels: minimum and maximum, or the largest magnitude alone. */
static void rows(const struct call *c, const unsigned char *x, int64_t stride, int64_t n, int64_t length, unsigned char *min,
                 unsigned char *max, int64_t out_stride, struct qobs_nonfinite *nonfinite)
{
    if (c->min)
        c->kernels->minmax_rows[c->dtype](x, (ptrdiff_t)stride, (size_t)n, (size_t)length, min, max, (ptrdiff_t)out_stride, nonfinite);
    else
        c->kernels->absmax_rows[c->dtype](x, (ptrdiff_t)stride, (size_t)n, (size_t)length, max, (ptrdiff_t)out_stride, nonfinite);
}

static void columns(const struct call *c, const unsigned char *x, int64_t stride, int64_t n, int64_t width, unsigned char *min,
                    unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    if (c->min)
        c->kernels->minmax_columns[c->dtype](x, (ptrdiff_t)stride, (size_t)n, (size_t)width, min, max, nonfinite);
    else
        c->kernels->absmax_columns[c->dtype](x, (ptrdiff_t)stride, (size_t)n, (size_t)width, max, nonfinite);
}

enum { STRIP = 256 };

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

static void fill_identities(const struct call *c, unsigned char *min, unsigned char *max, int64_t n)
{
    const unsigned char *identity = (const unsigned char *)&identities[c->dtype];
    const size_t size = (size_t)n * c->element;
    if (!c->min) { /* of magnitudes */
        memset(max, 0, size);
        return;
    }
    memcpy(min, identity, c->element);
    memcpy(max, identity + c->element, c->element);
    for (size_t done = c->element; done < size; done *= 2) {
        memcpy(min + done, min, done < size - done ? done : size - done);
        memcpy(max + done, max, done < size - done ? done : size - done);
    }
}

/* Merges n outputs into every out-th of the caller's. An output is merged as a run of one element. A run goes to both min and
 * max; that is right for a minimum too, as it is never above the maximum that follows - unless it is an identity, which it can
 * only be where there was NaN. */
static void merge_strip(const struct call *c, const unsigned char *min, const unsigned char *max, int64_t n, int64_t out,
                        bool identities_possible)
{
    struct qobs_nonfinite counted = {0}; /* by the kernel before */
    const int64_t element = (int64_t)c->element;
    unsigned char *to_min = c->min ? c->min + out * element : NULL, *to_max = c->max + out * element;
    if (!c->min || !identities_possible) {
        if (c->min)
            rows(c, min, element, n, 1, to_min, to_max, c->inner->out, &counted);
        rows(c, max, element, n, 1, to_min, to_max, c->inner->out, &counted);
        return;
    }
    const unsigned char *identity = (const unsigned char *)&identities[c->dtype];
    const ptrdiff_t step = (ptrdiff_t)c->inner->out * (ptrdiff_t)c->element;
    for (int64_t j = 0; j < n; j++) {
        unsigned char spare[8];
        memcpy(spare, identity + c->element, c->element);
        rows(c, min + j * element, 0, 1, 1, to_min + j * step, spare, 0, &counted);
        memcpy(spare, identity, c->element);
        rows(c, max + j * element, 0, 1, 1, spare, to_max + j * step, 0, &counted);
    }
}

/* Columns whose outputs do not lie next to each other: through a strip that does. */
static void scattered_columns(const struct call *c, const unsigned char *x, int64_t out)
{
    unsigned char min[STRIP * 8], max[STRIP * 8];
    for (int64_t first = 0; first < c->inner->extent; first += STRIP) {
        const int64_t n = c->inner->extent - first < STRIP ? c->inner->extent - first : STRIP;
        fill_identities(c, min, max, n);
        const uint64_t nan_before = c->nonfinite->nan;
        columns(c, x + first * (int64_t)c->element, c->second->in, c->second->extent, n, min, max, c->nonfinite);
        merge_strip(c, min, max, n, out + first * c->inner->out, c->nonfinite->nan != nan_before);
    }
}

static void call_kernel(const struct call *c, const unsigned char *x, int64_t out)
{
    if (c->by_columns && c->inner->extent > 1 && c->inner->out != 1) {
        scattered_columns(c, x, out);
        return;
    }
    unsigned char *min = c->min ? c->min + out * (int64_t)c->element : NULL, *max = c->max + out * (int64_t)c->element;
    if (c->by_columns)
        columns(c, x, c->second->in, c->second->extent, c->inner->extent, min, max, c->nonfinite);
    else
        rows(c, x, c->second->in, c->second->extent, c->inner->extent, min, max, c->second->out, c->nonfinite);
}

/* ---- Rows of runs ------------------------------------------------------------------------------------------------------- */

/* Bounds in a slab; columns that a kernel should have; rows and elements of a run from which on this is worth it; bytes of a run in a band, and
 * from which on bands come from memory. */
enum { MOST_BOUNDS = 8192, NARROW = 64, LEAST_ROWS = 8, SHORTEST = 32, SHORTEST_IN_BAND = 256, FAR = 32 << 20 };

/* All bounds go to both min and max: no minimum is above the maximum that follows. */
static void merge_both(const struct call *c, const unsigned char *lo, const unsigned char *hi, int64_t n, int64_t width,
                       unsigned char *min, unsigned char *max)
{
    struct qobs_nonfinite counted = {0}; /* with the runs */
    const int64_t stride = width * (int64_t)c->element;
    if (c->min)
        columns(c, lo, stride, n, width, min, max, &counted);
    columns(c, hi, stride, n, width, min, max, &counted);
}

/* Merges the bounds of n rows of runs, columns now, into the outputs. Of few columns several rows count as one at first. */
static void merge_bounds(const struct call *c, const unsigned char *lo, const unsigned char *hi, int64_t n, unsigned char *min,
                         unsigned char *max)
{
    unsigned char wide_lo[2 * NARROW * 8], wide_hi[2 * NARROW * 8];
    int64_t wide = c->second->extent;
    while (wide < NARROW && n % 2 == 0) {
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

/* A call for some rows' runs, and few more for what they share. */
static void call_by_slabs(const struct call *c, const unsigned char *x, int64_t out)
{
    const int64_t across = c->second->extent, height = c->row->extent * c->band->extent, element = (int64_t)c->element;
    unsigned char *const lo = c->scratch, *const hi = lo + c->slab * across * element;
    for (int64_t first = 0, n; first < height; first += n) {
        n = height - first < c->slab ? height - first : c->slab;
        const struct qobs_nonfinite before = *c->nonfinite;
        fill_identities(c, lo, hi, n * across);
        rows(c, x + first * c->row->in, c->second->in, n * across, c->inner->extent, lo, hi, 1, c->nonfinite);
        const bool nan = c->nonfinite->nan != before.nan; /* the bounds of a run may be identities */
        if (nan)
            *c->nonfinite = before;
        for (int64_t r = first, end; r < first + n; r = end) {
            const int64_t band = r / c->row->extent, done = (r - first) * across * element;
            end = (band + 1) * c->row->extent < first + n ? (band + 1) * c->row->extent : first + n;
            unsigned char *min = c->min ? c->min + (out + band * c->band->out) * element : NULL;
            unsigned char *max = c->max + (out + band * c->band->out) * element;
            if (!nan)
                merge_bounds(c, lo + done, hi + done, end - r, min, max);
            for (; nan && r < end; r++)
                rows(c, x + r * c->row->in, c->second->in, across, c->inner->extent, min, max, 1, c->nonfinite);
        }
    }
}

/* One call for all bands, or, where their outputs do not follow each other, for each of them. */
static void call_by_bands(const struct call *c, const unsigned char *x, int64_t out)
{
    const int64_t element = (int64_t)c->element, runs = c->second->extent, each = c->band->out == runs ? c->band->extent : 1;
    for (int64_t band = 0; band < c->band->extent; band += each, x += c->band->in, out += c->band->out)
        c->kernels->minmax_row_panels[c->dtype](x, (ptrdiff_t)c->row->in, (size_t)each, (size_t)c->row->extent, (size_t)runs,
                                           (size_t)c->inner->extent, c->min + out * element, c->max + out * element, c->nonfinite);
}

/* Is one kernel for all of it the fastest way? Shorter runs are folded together, from memory slabs are 1 to 10 % faster, and of magnitudes
 * there is no such kernel. */
static bool is_for_bands(const struct call *c, bool magnitudes)
{
    const int64_t run = c->inner->extent * (int64_t)c->element;
    return !magnitudes && run >= SHORTEST_IN_BAND && run * c->second->extent * c->row->extent * c->band->extent < FAR;
}

static bool is_for_slabs(const struct call *c)
{
    return c->inner->extent >= SHORTEST && MOST_BOUNDS / c->second->extent >= LEAST_ROWS;
}

/* Are there several rows of runs without a gap, which share outputs? A row alone is little work for a kernel. */
static int choose_rows(struct call *c, bool magnitudes, bool slabs, int n)
{
    if (n == 0)
        return n;
    const struct nest_dimension *run = c->second, *row = &c->outer[n - 1];
    if (row->out != 0 || run->out != 1 || run->in != c->inner->extent * (int64_t)c->element || row->in != run->extent * run->in)
        return n;
    const bool banded = n > 1 && c->outer[n - 2].in == row->extent * row->in;
    c->row = row;
    c->band = banded ? &c->outer[n - 2] : &one;
    if (is_for_bands(c, magnitudes)) {
        c->reduce = call_by_bands;
    } else if (slabs && is_for_slabs(c)) {
        const int64_t height = c->row->extent * c->band->extent, most = MOST_BOUNDS / run->extent;
        c->reduce = call_by_slabs;
        c->slab = height < most ? height : most;
    } else {
        return n;
    }
    return n - 1 - banded;
}

static void walk(const struct call *c, int i, const unsigned char *x, int64_t out)
{
    i += i == c->skipped;
    if (i >= c->outers) {
        c->reduce(c, x, out);
        return;
    }
    const struct nest_dimension *d = &c->outer[i];
    for (int64_t j = 0; j < d->extent; j++)
        walk(c, i + 1, x + j * d->in, out + j * d->out);
}

/* Chooses the dimensions of a call, innermost first. */
static void choose(const struct nest *nest, bool magnitudes, bool slabs, struct call *c)
{
    int n = nest->dimensions;
    c->outer = nest->dimension;
    c->skipped = -1;
    c->inner = c->second = &one;
    c->slab = 0;
    c->reduce = call_kernel;
    if (n > 0 && c->outer[n - 1].in == (int64_t)c->element)
        c->inner = &c->outer[--n];
    /* Contiguous elements that are kept: columns, walked down a reduced dimension. So is, one column wide, whatever has no
     * contiguous elements at all. */
    c->by_columns = c->inner->out != 0 || c->inner->extent == 1;
    if (c->by_columns) {
        for (int i = n; i-- > 0 && c->skipped < 0;)
            if (c->outer[i].out == 0)
                c->skipped = i;
        c->second = c->skipped < 0 ? &one : &c->outer[c->skipped];
    } else if (n > 0) {
        c->second = &c->outer[--n];
        n = choose_rows(c, magnitudes, slabs, n);
    }
    c->outers = n;
}

size_t qobs_nest_scratch(const struct nest *nest, size_t element, bool magnitudes)
{
    struct call c = {.element = element};
    choose(nest, magnitudes, true, &c);
    return 2 * (size_t)(c.slab * c.second->extent) * element;
}

void qobs_nest_minmax(const struct nest *nest, const struct qobs_kernels *kernels, enum qobs_kernel_dtype dtype,
                      size_t element, void *scratch, unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    struct call c = {.kernels = kernels, .dtype = dtype, .element = element, .scratch = scratch, .min = min, .max = max,
                     .nonfinite = nonfinite};
    choose(nest, !min, scratch != NULL, &c);
    walk(&c, 0, nest->base, nest->out);
}

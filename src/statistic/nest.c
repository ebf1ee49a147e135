/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "statistic/nest.h"

#include <math.h>
#include <string.h>

#include "number.h"

bool qobs_nest_of_plan(const qobs_plan *plan, const unsigned char *data, unsigned ends, struct nest *nest)
{
    struct rectangle part;
    if (!qobs_plan_rectangle(plan, ends, &part))
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

struct call {
    const struct qobs_kernels *kernels;
    enum qobs_kernel_dtype dtype;
    size_t element;
    unsigned char *min, *max; /* min NULL: of magnitudes */
    struct qobs_nonfinite *nonfinite;
    bool by_columns;
    struct nest_dimension inner;  /* along contiguous elements */
    struct nest_dimension second; /* from run to run, or from row to row */
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

static void columns(const struct call *c, const unsigned char *x, int64_t n, unsigned char *min, unsigned char *max)
{
    const ptrdiff_t stride = (ptrdiff_t)c->second.in;
    if (c->min)
        c->kernels->minmax_columns[c->dtype](x, stride, (size_t)c->second.extent, (size_t)n, min, max, c->nonfinite);
    else
        c->kernels->absmax_columns[c->dtype](x, stride, (size_t)c->second.extent, (size_t)n, max, c->nonfinite);
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
            rows(c, min, element, n, 1, to_min, to_max, c->inner.out, &counted);
        rows(c, max, element, n, 1, to_min, to_max, c->inner.out, &counted);
        return;
    }
    const unsigned char *identity = (const unsigned char *)&identities[c->dtype];
    const ptrdiff_t step = (ptrdiff_t)c->inner.out * (ptrdiff_t)c->element;
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
    for (int64_t first = 0; first < c->inner.extent; first += STRIP) {
        const int64_t n = c->inner.extent - first < STRIP ? c->inner.extent - first : STRIP;
        const unsigned char *identity = (const unsigned char *)&identities[c->dtype];
        memset(max, 0, sizeof max); /* of magnitudes */
        for (int64_t j = 0; j < n && c->min; j++) {
            memcpy(min + (size_t)j * c->element, identity, c->element);
            memcpy(max + (size_t)j * c->element, identity + c->element, c->element);
        }
        const uint64_t nan_before = c->nonfinite->nan;
        columns(c, x + first * c->inner.in, n, min, max);
        merge_strip(c, min, max, n, out + first * c->inner.out, c->nonfinite->nan != nan_before);
    }
}

static void call_kernel(const struct call *c, const unsigned char *x, int64_t out)
{
    if (c->by_columns && c->inner.extent > 1 && c->inner.out != 1) {
        scattered_columns(c, x, out);
        return;
    }
    unsigned char *min = c->min ? c->min + out * (int64_t)c->element : NULL, *max = c->max + out * (int64_t)c->element;
    if (c->by_columns)
        columns(c, x, c->inner.extent, min, max);
    else
        rows(c, x, c->second.in, c->second.extent, c->inner.extent, min, max, c->second.out, c->nonfinite);
}

static void walk(const struct call *c, const struct nest_dimension *d, int dimensions, const unsigned char *x, int64_t out)
{
    if (dimensions == 0) {
        call_kernel(c, x, out);
        return;
    }
    for (int64_t i = 0; i < d->extent; i++)
        walk(c, d + 1, dimensions - 1, x + i * d->in, out + i * d->out);
}

void qobs_nest_minmax(const struct nest *nest, const struct qobs_kernels *kernels, enum qobs_kernel_dtype dtype,
                      size_t element, unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    struct nest_dimension rest[MAX_AXES];
    int n = nest->dimensions;
    struct call c = {.kernels = kernels,
                     .dtype = dtype,
                     .element = element,
                     .min = min,
                     .max = max,
                     .nonfinite = nonfinite,
                     .inner = {1, (int64_t)element, 0},
                     .second = {1, 0, 0}};
    for (int i = 0; i < n; i++) {
        rest[i] = nest->dimension[i];
        if (rest[i].extent == 0)
            return;
    }
    if (n > 0 && rest[n - 1].in == (int64_t)element)
        c.inner = rest[--n];
    /* Contiguous elements that are kept: columns, walked down a reduced dimension. So is, one column wide, whatever has no
     * contiguous elements at all. */
    c.by_columns = c.inner.out != 0 || c.inner.extent == 1;
    for (int i = n - 1; i >= 0; i--)
        if (!c.by_columns || rest[i].out == 0) {
            c.second = rest[i];
            n--;
            for (int j = i; j < n; j++)
                rest[j] = rest[j + 1];
            break;
        }
    walk(&c, rest, n, nest->base, nest->out);
}

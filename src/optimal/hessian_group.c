/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "optimal/hessian_search.h"

enum { E2M1_LEVELS = 8 };

static const float e2m1_level[E2M1_LEVELS] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static size_t most_events(const struct optimal_params *p, size_t n)
{
    return (n + 15) / 16 * 16 * (p->e2m1 ? E2M1_LEVELS - 1 : ((size_t)1 << p->num_bits) - 1);
}

void qobs_hessian_workspace_place(const struct optimal_params *p, size_t n, struct array_layout *l,
                                  struct hessian_workspace *w)
{
    const size_t events = most_events(p, n);
    w->sorted = qobs_layout_add(l, events * sizeof *w->sorted);
    w->buckets = qobs_layout_add(l, events * sizeof *w->buckets);
    w->end = qobs_layout_add(l, (OPTIMAL_MOST_SCALES + 2) * sizeof *w->end);
    w->b = qobs_layout_add(l, (events + 1) * sizeof *w->b);
    w->c = qobs_layout_add(l, (events + 1) * sizeof *w->c);
    w->u = qobs_layout_add(l, (n + 15) / 16 * 16 * sizeof *w->u);
}

/* ---- Fake-quantize ----------------------------------------------------------------------------------------------- */

/* Steps from 0 of a quantized element, in quanta and with its sign: q - zero_point. */
static float quantized(const struct optimal_params *p, float w, float scale, int zero_point)
{
    const float x = w / scale;
    if (p->e2m1)
        return grid_round_float(grid_float_make(1, 1), x < -6 ? -6 : x > 6 ? 6 : x);
    float v = x + (float)zero_point;
    v = v < (float)p->quant_min ? (float)p->quant_min : v;
    v = v > (float)p->quant_max ? (float)p->quant_max : v;
    return grid_round_integer_float(v) - (float)zero_point;
}

/* ---- Buckets ----------------------------------------------------------------------------------------------------- */

/* One sign and zero point of a group. */
struct sweep {
    const struct optimal_params *params;
    const struct scale_list *scales;
    const struct hessian_group *group;
    bool negative;
    int zero_point;
};

/* Near a candidate the roundings of fake-quantize decide, which differ from those of t by at most 64 units in its last
 * place; twice that is taken as near. */
#define NEAR 0x1p-16f

/* True if w has reached `level` at candidate k. */
static bool has_reached(const struct sweep *s, float w, size_t k, float level)
{
    const float scale = s->negative ? -s->scales->scale[k] : s->scales->scale[k];
    return fabsf(quantized(s->params, w, scale, s->zero_point)) >= level;
}

/* The largest candidate at which w has taken step j, or -1. */
static int32_t decide(const struct sweep *s, float w, float level, float inverse)
{
    const float *const scale = s->scales->scale, t = fabsf(w) * inverse;
    const ptrdiff_t last = (ptrdiff_t)s->scales->count - 1;
    ptrdiff_t k = scale[0] <= t ? (ptrdiff_t)qobs_scale_below(s->scales, (double)t) : -1;
    if (k < last && scale[k + 1] - t <= t * NEAR && has_reached(s, w, (size_t)(k + 1), level))
        k++;
    else if (k >= 0 && t - scale[k] <= t * NEAR && !has_reached(s, w, (size_t)k, level))
        k--;
    return (int32_t)k;
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

void qobs_hessian_levels(const struct optimal_params *p, float global_scale, struct hessian_levels *l)
{
    l->count = p->e2m1 ? E2M1_LEVELS - 1 : (1 << p->num_bits) - 1;
    for (int j = 0; j < l->count; j++) {
        const float from = p->e2m1 ? e2m1_level[j] : (float)j, to = p->e2m1 ? e2m1_level[j + 1] : (float)(j + 1);
        l->level[j] = to;
        l->length[j] = to - from;
        struct hessian_step *const step = &l->step[j];
        step->middle = (from + to) / 2;
        step->inverse = 1 / step->middle;
        step->scaled = step->inverse * (p->scales == OPTIMAL_E4M3 ? global_scale : 1);
    }
}

/* Buckets of candidates are counted from 1 on; bucket 0 is of steps that no candidate takes. */
static int32_t bucket_index(int32_t k) { return k >= 0 ? k + 1 : 0; }

/* Finds the bucket of every step of every element and counts them in w->end. Returns the number of steps that any
 * element takes. */
static int find_buckets(const struct kernel_table *kernels, const struct sweep *s, const struct hessian_levels *l,
                        const struct hessian_workspace *w)
{
    const struct optimal_params *p = s->params;
    const size_t n = s->group->n, padded = (n + 15) / 16 * 16;
    const float *const x = s->group->w;
    uint32_t *const count = w->end;
    const int32_t last = s->scales->lattice.last;
    const int up = p->e2m1 ? l->count : p->quant_max - s->zero_point; /* steps of elements whose q grows */
    const int down = p->e2m1 ? l->count : s->zero_point - p->quant_min;
    const int all = up > down ? up : down, both = up < down ? up : down;
    const bool negative_goes_on = (up > down) == s->negative; /* beyond the steps that both have */
    int32_t most = last;                                      /* bucket of a step, or undecided */
    int taken = 0;
    memset(count, 0, (size_t)(last + 2) * sizeof *count);
    for (; taken < all && most >= 0; taken++) {
        int32_t *const bucket = w->buckets + (size_t)taken * padded;
        most = kernels->hessian_buckets(&s->scales->lattice, &l->step[taken], ((taken + 1 + s->zero_point) & 1) == 0, x,
                                        padded, bucket);
        if (most < QOBS_HESSIAN_UNDECIDED && taken < both) {
            for (size_t i = 0; i < padded; i++)
                bucket[i] = bucket_index(bucket[i]);
            for (size_t i = 0; i < n; i++)
                count[bucket[i]]++;
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            int32_t k = bucket[i];
            if (k == QOBS_HESSIAN_UNDECIDED)
                k = decide(s, x[i], l->level[taken], l->step[taken].inverse);
            k = taken < both || (x[i] < 0) == negative_goes_on ? k : -1;
            bucket[i] = k = bucket_index(k);
            count[k]++;
        }
    }
    return taken;
}

/* Orders events from the largest candidate down, and those of a candidate by element and step. w->end becomes the end
 * of each bucket. Returns the number of events. */
static size_t sort_events(const struct sweep *s, const struct hessian_levels *l, int taken,
                          const struct hessian_workspace *w)
{
    const size_t n = s->group->n, padded = (n + 15) / 16 * 16;
    uint32_t *const end = w->end;
    uint32_t begin = 0;
    for (size_t k = s->scales->count + 1; k-- > 0;) {
        const uint32_t count = end[k];
        end[k] = begin;
        begin += count;
    }
    const size_t events = end[0];
    for (size_t i = 0; i < n; i++) {
        const uint32_t sign = bits_of_float(s->group->w[i]) & 0x80000000;
        for (int j = 0; j < taken; j++)
            w->sorted[end[w->buckets[(size_t)j * padded + i]]++] =
                (struct hessian_event){(uint32_t)i, float_of_bits(bits_of_float(l->length[j]) | sign)};
    }
    return events;
}

/* The first of the lowest errors. Above the first candidate without events all errors are equal. */
static void choose(const struct sweep *s, const struct hessian_workspace *w, struct hessian_choice *best)
{
    const double constant = s->group->constant;
    for (size_t k = 0; k < s->scales->count; k++) {
        const size_t at = w->end[k + 1];
        const double scale = (double)s->scales->scale[k];
        const double error = (constant - (2 * scale) * w->b[at]) + (scale * scale) * w->c[at];
        if (error < best->error || (error == best->error && k < best->index))
            *best = (struct hessian_choice){k, s->negative, s->zero_point, error};
        if (at == 0)
            break;
    }
}

struct hessian_choice qobs_hessian_group(const struct kernel_table *kernels, const struct optimal_params *p,
                                         const struct hessian_levels *levels, const struct scale_list *scales,
                                         const struct hessian_group *group, const struct hessian_workspace *w)
{
    struct hessian_choice best = {.error = INFINITY};
    for (int negative = 0; negative <= (p->signed_scale ? 1 : 0); negative++)
        for (int z = group->first; z <= group->last; z++) {
            const struct sweep s = {p, scales, group, negative == 1, z};
            const size_t events = sort_events(&s, levels, find_buckets(kernels, &s, levels, w), w);
            memset(w->u, 0, group->columns * sizeof *w->u);
            w->b[0] = w->c[0] = 0;
            kernels->hessian_steps(group->h, group->h_stride, group->columns, group->g, w->sorted, events, w->u, w->b,
                                   w->c);
            choose(&s, w, &best);
        }
    return best;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The candidates of a group, and the groups that are not searched. */

#include "optimal/optimal.h"

/* Below this scale of the range there is no search. */
#define OPTIMAL_MIN_SCALE 0x1p-120f

struct optimal_number qobs_optimal_number(const struct optimal_params *p)
{
    return (struct optimal_number){.e2m1 = p->e2m1, .quant_min = (float)p->quant_min, .quant_max = (float)p->quant_max};
}

/* ---- The range --------------------------------------------------------------------------------------------------- */

struct optimal_range qobs_optimal_range(const struct optimal_params *p, const struct optimal_group *g)
{
    float lo = 0, hi = 0;
    for (size_t i = 0; i < g->n; i++) {
        lo = g->w[i] < lo ? g->w[i] : lo;
        hi = g->w[i] > hi ? g->w[i] : hi;
    }
    return qobs_optimal_range_of(p, lo, hi);
}

struct optimal_range qobs_optimal_range_of(const struct optimal_params *p, float lo, float hi)
{
    const float amax = -lo > hi ? -lo : hi, steps = (float)((1 << p->num_bits) - 1);
    const float scale = p->e2m1 ? amax / 6 : p->symmetric ? amax / (steps / 2) : (hi - lo) / steps;
    return (struct optimal_range){lo, hi, scale};
}

int32_t qobs_optimal_zero_point(const struct optimal_params *p, const struct optimal_range *r)
{
    if (p->symmetric)
        return 0;
    const float z = rintf((float)p->quant_min - r->lo / r->scale);
    return z<(float)p->quant_min ? p->quant_min : z>(float) p->quant_max ? p->quant_max : (int32_t)z;
}

/* The scale that replaces 0, or a scale below those that are searched in the scale dtype. */
static float scale_without_search(const struct optimal_params *p, float scale, float global_scale)
{
    if (scale == 0 && p->scales == OPTIMAL_E4M3)
        return 0.125f / global_scale;
    if (scale == 0 && p->scales == OPTIMAL_E8M0)
        return 0x1p-127f;
    if (scale == 0)
        return p->eps;
    if (p->scales == OPTIMAL_F16 || p->f16_results) {
        const float rounded = float_of_f16(f16_of_float(scale));
        return rounded > 0 ? rounded : p->eps;
    }
    return p->scale_dtype == SCALE_BF16 ? float_of_bf16(bf16_of_float(scale)) : scale;
}

bool qobs_optimal_is_searched(const struct optimal_params *p, const struct optimal_range *r,
                              const struct optimal_group *g, struct optimal_choice *choice)
{
    const bool around_range = p->scales == OPTIMAL_BF16 || p->scales == OPTIMAL_F16;
    const bool zeros = r->lo == 0 && r->hi == 0;
    if (!zeros && !(around_range && r->scale < OPTIMAL_MIN_SCALE))
        return true;
    *choice = (struct optimal_choice){.scale = scale_without_search(p, r->scale, g->global_scale)};
    return false;
}

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

static size_t e4m3_scales(float global_scale, float *scale)
{
    size_t n = 0;
    for (uint32_t code = 1; code < 127; code++) {
        const uint32_t exponent = code >> 3, mantissa = code & 7;
        const float number =
            exponent == 0 ? (float)mantissa * 0x1p-9f : ldexpf((float)(8 + mantissa), (int)exponent - 10);
        scale[n++] = number / global_scale;
    }
    return n;
}

/* The numbers with the bits first to last, times 2^shift. */
static size_t float_scales(uint32_t first, uint32_t last, int shift, float *scale)
{
    for (uint32_t k = first; k <= last; k++)
        scale[k - first] = float_of_bits(k << shift);
    return first <= last ? last - first + 1 : 0;
}

/* Rounds scales to f16, without those that are equal, 0 or infinite then; returns how many are left. */
static size_t round_scales(size_t count, float *scale)
{
    size_t n = 0;
    for (size_t k = 0; k < count; k++) {
        const float s = float_of_f16(f16_of_float(scale[k]));
        if (s > 0 && isfinite(s) && (n == 0 || s > scale[n - 1]))
            scale[n++] = s;
    }
    return n;
}

struct scale_list qobs_optimal_scales(const struct optimal_params *p, float range_scale, float global_scale,
                                      float scale[OPTIMAL_MOST_SCALES])
{
    struct scale_list s = {.scale = scale, .times = 1};
    struct hessian_lattice *const l = &s.lattice;
    const uint32_t start = bits_of_float(range_scale * p->start) >> 16;
    const uint32_t stop = bits_of_float(range_scale * p->stop) >> 16;
    const bool narrow = p->scales == OPTIMAL_F16 || p->f16_results;
    switch (p->scales) {
    case OPTIMAL_E4M3: /* exponents have a bias of 7, codes begin with 1 */
        s.count = e4m3_scales(global_scale, scale);
        s.times = global_scale;
        l->shift = 20;
        l->first = ((127 - 7) << 3) + 1;
        l->regular = bits_of_float(0x1p-6f);
        break;
    case OPTIMAL_E8M0: /* those of f16 are normal or exact */
        l->shift = 23;
        l->first = p->f16_results ? 103 : 1;
        s.count = float_scales((uint32_t)l->first, p->f16_results ? 142 : 254, l->shift, scale);
        l->exact = true;
        break;
    default:
        l->shift = 16;
        s.count = float_scales(start < 0x80 ? 0x80 : start, stop > 0x7f7f ? 0x7f7f : stop, l->shift, scale);
        s.count = narrow ? round_scales(s.count, scale) : s.count;
        if (s.count == 0)
            scale[s.count++] = range_scale < 1 ? 0x1p-24f : 65504;
        l->exact = !narrow || scale[0] >= 0x1p-14f; /* else f16 subnormals, which are other numbers */
        l->first = (int32_t)(bits_of_float(scale[0]) >> 16);
        l->regular = l->exact ? 0 : UINT32_MAX;
    }
    l->last = (int32_t)s.count - 1;
    return s;
}

size_t qobs_scale_below(const struct scale_list *s, double t)
{
    const float on_lattice = (float)(t * (double)s->times);
    const int32_t last = (int32_t)s->count - 1, at = (int32_t)(bits_of_float(on_lattice) >> s->lattice.shift);
    int32_t k = at - s->lattice.first;
    k = k < 0 ? 0 : k > last ? last : k;
    while (k < last && (double)s->scale[k + 1] <= t)
        k++;
    while (k > 0 && (double)s->scale[k] > t)
        k--;
    return (size_t)k;
}

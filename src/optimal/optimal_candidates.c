/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The candidates of a group, and the groups that are not searched. */
#include <math.h>

#include "number/grid.h"
#include "optimal/optimal.h"

/* Below this scale of the range there is no search. */
#define OPTIMAL_MIN_SCALE 0x1p-120f

struct optimal_number qobs_optimal_number(const struct optimal_params *p)
{
    return (struct optimal_number){
        .e2m1 = p->e2m1, .quant_min = (float)p->quant_min, .quant_max = (float)p->quant_max};
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
    return z < (float)p->quant_min   ? p->quant_min
           : z > (float)p->quant_max ? p->quant_max
                                     : (int32_t)z;
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

static size_t e8m0_scales(bool f16, float *scale)
{
    size_t n = 0;
    for (uint32_t exponent = f16 ? 103 : 1; exponent < (f16 ? 143 : 255); exponent++)
        scale[n++] = float_of_bits(exponent << 23);
    return n;
}

static size_t f16_scales(uint32_t first, uint32_t last, float *scale)
{
    size_t n = 0;
    for (uint32_t k = first; k <= last; k++) {
        const float s = float_of_f16(f16_of_float(float_of_bits(k << 16)));
        if (s > 0 && isfinite(s) && (n == 0 || s > scale[n - 1]))
            scale[n++] = s;
    }
    return n;
}

size_t qobs_optimal_scales(const struct optimal_params *p, float range_scale, float global_scale,
                           float scale[OPTIMAL_MOST_SCALES])
{
    if (p->scales == OPTIMAL_E4M3)
        return e4m3_scales(global_scale, scale);
    if (p->scales == OPTIMAL_E8M0)
        return e8m0_scales(p->f16_results, scale);
    const uint32_t start = bits_of_float(range_scale * p->start) >> 16;
    const uint32_t stop = bits_of_float(range_scale * p->stop) >> 16;
    const uint32_t first = start < 0x80 ? 0x80 : start, last = stop > 0x7f7f ? 0x7f7f : stop;
    if (p->scales == OPTIMAL_F16 || p->f16_results)
        return f16_scales(first, last, scale);
    size_t n = 0;
    for (uint32_t k = first; k <= last; k++)
        scale[n++] = float_of_bits(k << 16);
    return n;
}

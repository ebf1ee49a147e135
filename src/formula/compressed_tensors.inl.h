/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of compressed_tensors.c. Scalars (the half range, the range) stay float next to a bf16 or f16 tensor. */

#include "formula/amax.inl.h"

/* The plain case, which weights go through by the million: kept free of what would keep it from being vectorised. */
static void NATIVE(symmetric)(const struct numbers *q, size_t n, const stored *min, const stored *max, stored *scale)
{
    const real half = (real)((q->quant_max - q->quant_min) / 2), eps = (real)q->eps, floor = q->floor ? (real)0x1p-23 : 0;
    for (size_t i = 0; i < n; i++) {
        const real s = round_native(NATIVE(amax)(load(min[i]), load(max[i])) / half);
        const real floored = s < floor ? floor : s;
        scale[i] = store(floored == 0 ? eps : floored);
    }
}

/* The exponent of an MX scale, biased by 127: of amax rounded to a power of two in its own bits. */
static inline real NATIVE(mx_exponent)(const struct numbers *q, real amax)
{
    if (amax != amax)
        return amax;
    const stored element = store(amax);
    stored_bits bits;
    memcpy(&bits, &element, sizeof bits);
    bits = (stored_bits)((bits + ((stored_bits)1 << (MANTISSA_BITS - 2))) >> MANTISSA_BITS << MANTISSA_BITS);
    stored power;
    memcpy(&power, &bits, sizeof power);
    const real p = load(power);
    const real log = p == 0 ? (real)-INFINITY : isfinite(p) ? (real)ilogb((double)p) : p;
    return round_native(round_native(127 + log) - (real)q->mx_offset);
}

/* What follows the division, in the dtype `scale` has by then: f32 under a global scale, else the ranges'. */
static inline double NATIVE(finish)(const struct numbers *q, real s)
{
    double t = (double)s;
    if (q->global_scale)
        t = sizeof(stored) == 8 ? t * (double)*q->global_scale : (double)((float)t * *q->global_scale);
    if (q->floor_e4m3) {
        t = (double)grid_round_e4m3((float)clamp(t, -448, 448));
        return t == 0 ? 0.125 : t;
    }
    if (q->scale_dtype != SCALE_NATIVE)
        t = round_scale(q->scale_dtype, t);
    if (q->mx) {
        t = isnan(t) ? (double)INFINITY : t == 255 ? (double)INFINITY : ldexp(1, (int)t - 127);
        t = (double)round_native((real)t);
    }
    return t == 0 ? q->eps : t;
}

static void NATIVE(any)(const struct numbers *q, size_t n, const stored *min, const stored *max, void *scale, void *zero_point)
{
    const real range = (real)(q->quant_max - q->quant_min), half = (real)((q->quant_max - q->quant_min) / 2);
    const real quant_min = (real)q->quant_min, floor = q->floor ? (real)0x1p-23 : 0;
    for (size_t i = 0; i < n; i++) {
        const real lo = load(min[i]), hi = load(max[i]);
        const real a = lo < 0 || lo != lo ? lo : 0, b = hi > 0 || hi != hi ? hi : 0;
        real s;
        if (q->mx)
            s = NATIVE(mx_exponent)(q, NATIVE(amax)(lo, hi));
        else if (q->symmetric)
            s = round_native(NATIVE(amax)(lo, hi) / half);
        else
            s = round_native(round_native(b - a) / range);
        s = s < floor ? floor : s;
        if (zero_point && q->symmetric) {
            put_zero_point(q, zero_point, i, 0);
        } else if (zero_point) {
            const real steps = round_native(a / s);
            const real z = q->wide_zero_point ? quant_min - steps : round_native(quant_min - steps);
            put_zero_point(q, zero_point, i, clamp((double)z, q->quant_min, q->quant_max));
        }
        const double t = NATIVE(finish)(q, s);
        if (scale && (q->global_scale || q->floor_e4m3))
            ((float *)scale)[i] = (float)t;
        else if (scale)
            ((stored *)scale)[i] = store((real)t);
    }
}

static void NATIVE(qparams)(const struct numbers *q, size_t n, const stored *min, const stored *max, void *scale,
                            void *zero_point)
{
    const bool plain = q->symmetric && !q->mx && q->scale_dtype == SCALE_NATIVE && !q->global_scale && !q->floor_e4m3;
    if (plain && scale)
        NATIVE(symmetric)(q, n, min, max, scale);
    if (!plain || zero_point)
        NATIVE(any)(q, n, min, max, plain ? NULL : scale, zero_point);
}

/* (1 / amax) * 2688: a Python number over a tensor is its reciprocal times the number. */
static float NATIVE(global_scale)(double amax, bool year_2025, double min_normal)
{
    const real limited = !year_2025 && amax < min_normal ? (real)min_normal : (real)amax;
    const float g = (float)round_native(round_native(1 / limited) * (real)2688);
    return !year_2025 && !isfinite(g) ? 1 : g;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of compressed_tensors.c. Scalars (the range, half of it) stay float beside a bf16 or f16 tensor. */

#include "formula/amax.inl.h"

/* amax / half in the dtype. The quotient of a magnitude is no NaN, and 16 bits are rounded in fewer operations. */
static inline stored NATIVE(quotient)(bool is_magnitude, real amax, real half)
{
    const real quotient = amax / half;
#if MANTISSA_BITS == 7
    const uint32_t bits = bits_of_float(quotient);
    if (is_magnitude)
        return (stored)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
    (void)is_magnitude;
    return store(quotient);
}

/* The common case, with millions of scales for the weights of a model. The loops of this file that have few conditions
 * become vectors. They compare bits and choose by masks: comparisons of floats and conditions around arithmetic may
 * trap, and compilers leave them where they are. Each is compiled for magnitudes, too. */
#define AMAX(i) (magnitudes ? load(max[i]) : NATIVE(amax)(load(min[i]), load(max[i])))
LOOP_INLINE void NATIVE(symmetric_loop)(bool magnitudes, const struct numbers *q, size_t n, const stored *min,
                                 const stored *max, stored *scale)
{
    const real half = (real)((q->params->quant_max - q->params->quant_min) / 2);
    const real eps = (real)q->eps, min_scale = (real)q->min_scale;
    if (min_scale > 0) {
        for (size_t i = 0; i < n; i++) {
            const real s = load(NATIVE(quotient)(magnitudes, AMAX(i), half));
            scale[i] = store(s < min_scale ? min_scale : s);
        }
        return;
    }
    const stored zero = store(0), replacement = store(eps);
    for (size_t i = 0; i < n; i++) {
        const stored s = NATIVE(quotient)(magnitudes, AMAX(i), half);
        scale[i] = s == zero ? replacement : s;
    }
}

/* The same under a global scale with scales in e4m3 (NVFP4): float from the product on. With magnitudes the global
 * scale is finite and not below 0, so that no product is NaN. */
LOOP_INLINE void NATIVE(global_loop)(bool magnitudes, const struct numbers *q, size_t n, const stored *min,
                                 const stored *max, float *scale)
{
    const real half = (real)((q->params->quant_max - q->params->quant_min) / 2);
    const float global_scale = *q->global_scale;
    const uint32_t eps = bits_of_float((float)q->eps);
    for (size_t i = 0; i < n; i++) {
        const float s = (float)load(NATIVE(quotient)(magnitudes, AMAX(i), half)) * global_scale;
        const uint32_t rounded = bits_of_float(grid_limit_e4m3(magnitudes, s));
        scale[i] = float_of_bits(rounded | (eps & -(uint32_t)(rounded == 0)));
    }
}

#if MANTISSA_BITS == 7 || MANTISSA_BITS == 23
/* MX scales of dtypes with an exponent of 8 bits: the exponent field of amax after rounding, less mx_offset. A field of
 * 255 gives infinity, and so does NaN; the smallest scale is 2^-127. */
LOOP_INLINE void NATIVE(power_loop)(bool magnitudes, const struct numbers *q, size_t n, const stored *min,
                                 const stored *max, stored *scale)
{
    const int32_t offset = (int32_t)q->params->compressed_tensors.mx_offset;
    const uint32_t half = (uint32_t)1 << (MANTISSA_BITS - q->params->compressed_tensors.mx_half_bits);
    for (size_t i = 0; i < n; i++) {
        const stored element = magnitudes ? max[i] : store(AMAX(i));
        stored_bits bits;
        memcpy(&bits, &element, sizeof bits);
        const int32_t rounded = (int32_t)(((uint32_t)bits + half) >> MANTISSA_BITS);
        const int32_t field = rounded > 255 ? 255 : rounded;
        const int32_t lowered = field - offset < 0 ? 0 : field - offset;
        const int32_t exponent = field == 255 ? 255 : lowered;
        bits = (stored_bits)(exponent == 0 ? (uint32_t)1 << (MANTISSA_BITS - 1) : (uint32_t)exponent << MANTISSA_BITS);
        memcpy(&scale[i], &bits, sizeof bits);
    }
}
#endif
#undef AMAX

/* The exponent of an MX scale, biased by 127. It is that of amax rounded to a power of two in its own bits, less
 * mx_offset. */
static inline real NATIVE(mx_exponent)(const struct numbers *q, real amax)
{
    if (amax != amax)
        return amax;
    const stored element = store(amax);
    stored_bits bits;
    memcpy(&bits, &element, sizeof bits);
    const int half_bits = q->params->compressed_tensors.mx_half_bits;
    const stored_bits half = (stored_bits)((stored_bits)1 << (MANTISSA_BITS - half_bits));
    bits = (stored_bits)((bits + half) >> MANTISSA_BITS << MANTISSA_BITS);
    stored power;
    memcpy(&power, &bits, sizeof power);
    const real p = load(power);
    const real log = p == 0 ? (real)-INFINITY : isfinite(p) ? (real)ilogb((double)p) : p;
    return round_native(round_native(127 + log) - (real)q->params->compressed_tensors.mx_offset);
}

/* The steps after the division. They are in f32 under a global scale of f32, else in the dtype of the ranges. */
static inline double NATIVE(finish)(const struct numbers *q, real s)
{
    double t = (double)s;
    if (q->global_scale && q->native_products)
        t = (double)round_native((real)t * (real)*q->global_scale);
    else if (q->global_scale)
        t = sizeof(stored) == 8 ? t * (double)*q->global_scale : (double)((float)t * *q->global_scale);
    if (q->e4m3_scales) {
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

static void NATIVE(any)(const struct numbers *q, size_t n, const stored *min, const stored *max, void *scale,
                        void *zero_point)
{
    const real range = (real)(q->params->quant_max - q->params->quant_min), half = range / 2;
    const real quant_min = (real)q->params->quant_min, min_scale = (real)q->min_scale;
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
        s = s < min_scale ? min_scale : s;
        if (zero_point) {
            const real steps = round_native(a / s);
            const real z = q->wide_zero_point ? quant_min - steps : round_native(quant_min - steps);
            put_zero_point(q, zero_point, i, clamp((double)z, q->params->quant_min, q->params->quant_max));
        }
        const double t = NATIVE(finish)(q, s);
        if (scale && !q->native_products && (q->global_scale || q->e4m3_scales))
            ((float *)scale)[i] = (float)t;
        else if (scale)
            ((stored *)scale)[i] = store((real)t);
    }
}

/* False: none of the loops above has these numbers. */
LOOP_INLINE bool NATIVE(fast)(bool magnitudes, const struct numbers *q, const struct range_view *r, void *scale)
{
    if (!q->symmetric || q->e4m3_scales)
        return false;
    if (!q->mx && q->scale_dtype == SCALE_NATIVE && !q->global_scale)
        NATIVE(symmetric_loop)(magnitudes, q, r->n, r->min, r->max, scale);
    else if (!q->mx && q->scale_dtype == SCALE_E4M3 && q->global_scale && !q->native_products && q->min_scale == 0 &&
             sizeof(stored) < 8)
        NATIVE(global_loop)(magnitudes, q, r->n, r->min, r->max, scale);
#if MANTISSA_BITS == 7 || MANTISSA_BITS == 23
    else if (q->mx && q->scale_dtype == SCALE_U8 && !q->global_scale && q->min_scale == 0)
        NATIVE(power_loop)(magnitudes, q, r->n, r->min, r->max, scale);
#endif
    else
        return false;
    return true;
}

/* zero_point is NULL if zero points are 0. */
static void NATIVE(qparams)(const struct numbers *q, const struct range_view *r, void *scale, void *zero_point)
{
    const bool done = scale && (q->magnitudes ? NATIVE(fast)(true, q, r, scale) : NATIVE(fast)(false, q, r, scale));
    if (!done)
        NATIVE(any)(q, r->n, r->min, r->max, scale, zero_point);
}

/* (1 / amax) * 2688. Upstream divides a Python number by a tensor, which torch computes as number times reciprocal. */
static float NATIVE(global_scale)(double amax, bool year_2025, double min_normal)
{
    const real limited = !year_2025 && amax < min_normal ? (real)min_normal : (real)amax;
    const float g = (float)round_native(round_native(1 / limited) * (real)2688);
    return !year_2025 && !isfinite(g) ? 1 : g;
}

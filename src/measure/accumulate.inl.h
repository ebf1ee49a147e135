/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of accumulators.c. */

#include "number/exponent.inl.h"

static void NATIVE(running)(size_t n, ptrdiff_t step, stored *min, stored *max, const stored *lo, const stored *hi)
{
    for (size_t i = 0; i < n; i++, min += step, max += step) {
        const real a = load(*min), b = load(lo[i]), c = load(*max), d = load(hi[i]);
        *min = a < b || a != a ? *min : lo[i];
        *max = c > d || c != c ? *max : hi[i];
    }
}

static void NATIVE(absmax)(size_t n, stored *min, stored *max, const stored *lo, const stored *hi, bool first)
{
    for (size_t i = 0; i < n; i++) {
        const real a = -load(lo[i]), b = load(hi[i]), before = first ? 0 : load(max[i]);
        const real batch = a > b || a != a ? a : b;
        const real amax = batch > before || batch != batch ? batch : before;
        min[i] = store(-amax);
        max[i] = store(amax);
    }
}

/* llm-compressor's lerp: state * (1 - c) + batch * c, 1 - c in double. */
static void NATIVE(lerp)(size_t n, stored *state, const stored *batch, double c)
{
    const real state_weight = (real)(1.0 - c), batch_weight = (real)c;
    for (size_t i = 0; i < n; i++) {
        const real old = round_native(load(state[i]) * state_weight),
                   added = round_native(load(batch[i]) * batch_weight);
        state[i] = store(old + added);
    }
}

/* torch.ao's moving average: state + c * (batch - state). */
static void NATIVE(moving_average)(size_t n, stored *state, const stored *batch, double c)
{
    const real rate = (real)c;
    for (size_t i = 0; i < n; i++) {
        const real s = load(state[i]), difference = round_native(load(batch[i]) - s);
        state[i] = store(s + round_native(rate * difference));
    }
}

/* True if x, in steps of a BFP scale, is outside [-128, 128). Quark multiplies in f32 by the reciprocal of a scale that
 * is not subnormal, rounds the product back to the tensor's dtype and divides it by the scale. */
static bool NATIVE(overflows)(real x, double scale, float s, float inverse)
{
    const float q = (float)x * inverse, clamped = q < -129 ? -129 : q > 128 ? 128 : q;
    const float rounded = (clamped + 0x1.8p23f) - 0x1.8p23f; /* to an integer, ties to even */
    if (scale >= 0x1p-24 && scale <= 0x1p8)                  /* exact on the way back in every dtype */
        return rounded >= 128 || rounded < -128;
    const double steps = (double)round_native((real)(rounded * s)) / scale;
    return steps >= 128 || steps < -128;
}

/* Rounding keeps order, so the extremes of a batch decide for all its elements. */
static void NATIVE(absmax_bfp)(qobs_dtype scale_dtype, size_t n, stored *min, stored *max, const stored *lo,
                               const stored *hi, bool first)
{
    for (size_t i = 0; i < n; i++) {
        const real a = load(lo[i]), b = load(hi[i]), before = first ? 0 : load(max[i]);
        const real batch = -a > b ? -a : b, amax = batch > before ? batch : before;
        const double power = NATIVE(power)((double)amax, false, BFP_EMAX);
        const double scale = qobs_round_to(scale_dtype, power == 0 ? 0x1p-23 : power);
        const float s = (float)scale < 0x1p-126f ? 0x1p-126f : (float)scale, inverse = 1 / s;
        const bool twice = NATIVE(overflows)(a, scale, s, inverse) || NATIVE(overflows)(b, scale, s, inverse);
        max[i] = store(twice ? 2 * amax : amax);
        min[i] = store(-load(max[i]));
    }
}

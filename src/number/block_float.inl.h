/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of qobs_update_absmax_bfp. */

#include "number/exponent.inl.h"

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

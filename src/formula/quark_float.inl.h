/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of quark_amax.c. Magnitudes and scales travel between the steps as doubles, which hold every dtype's numbers. */

/* max(|min(min, 0)|, |max(max, 0)|) of ranges first to first + n; NaN stays. */
static void NATIVE(magnitudes)(size_t first, size_t n, const stored *min, const stored *max, double *amax)
{
    for (size_t i = 0; i < n; i++) {
        const real lo = load(min[first + i]), hi = load(max[first + i]);
        const real a = lo < 0 || lo != lo ? -lo : 0, b = hi > 0 || hi != hi ? hi : 0;
        amax[i] = (double)(a > b || a != a ? a : b);
    }
}

/* amax, as this dtype has it, through the largest number; eps for 0. */
static void NATIVE(quotients)(size_t n, const double *amax, double quant_max, double *scale)
{
    for (size_t i = 0; i < n; i++) {
        const real s = round_native(round_native((real)amax[i]) / (real)quant_max);
        scale[i] = s == 0 ? 0x1p-23 : (double)s;
    }
}

/* The whole number below or above log2(amax). The logarithm is rounded to the dtype first and may then be whole already: in f32 and
 * f64 only next to a power of two, so that elsewhere the exponent tells. */
static inline double NATIVE(whole_log)(double amax, bool up)
{
    int exponent;
    if (MANTISSA_BITS >= 23 && exponent_tells(amax, &exponent))
        return (double)exponent + up;
    const real log = round_native((real)log2(amax));
    return up ? ceil((double)log) : floor((double)log);
}

/* 2 to that number less emax. */
static inline double NATIVE(power)(double amax, bool up, int emax)
{
    return (double)round_native((real)power_of_2(NATIVE(whole_log)(amax, up) - emax));
}

static void NATIVE(powers)(size_t n, const double *amax, bool up, int emax, double *scale)
{
    for (size_t i = 0; i < n; i++) {
        const double s = NATIVE(power)(amax[i], up, emax);
        scale[i] = s == 0 ? 0x1p-23 : s;
    }
}

static void NATIVE(round_all)(size_t n, double *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (double)round_native((real)x[i]);
}

static void NATIVE(put)(size_t first, size_t n, const double *from, stored *to)
{
    for (size_t i = 0; i < n; i++)
        to[first + i] = store((real)from[i]);
}

/* Does x, in steps of a BFP scale, leave [-128, 128)? Quark quantizes in f32 by the reciprocal of a scale that is not subnormal,
 * brings the product back to the tensor's dtype and divides it by the scale. */
static bool NATIVE(leaves)(real x, double scale, float s, float inverse)
{
    const float q = (float)x * inverse, clamped = q < -129 ? -129 : q > 128 ? 128 : q;
    const float rounded = (clamped + 0x1.8p23f) - 0x1.8p23f; /* to a whole number, ties to even */
    if (scale >= 0x1p-24 && scale <= 0x1p8) /* no dtype loses anything on the way back */
        return rounded >= 128 || rounded < -128;
    const double steps = (double)round_native((real)(rounded * s)) / scale;
    return steps >= 128 || steps < -128;
}

/* The largest magnitude so far, as qobs_update_absmax keeps it, twice that where an element of the batch does not fit its scale.
 * As rounding keeps order the batch's extremes tell for all elements. */
static void NATIVE(bfp)(qobs_dtype scale_dtype, size_t n, stored *min, stored *max, const stored *lo, const stored *hi, bool fresh)
{
    for (size_t i = 0; i < n; i++) {
        const real a = load(lo[i]), b = load(hi[i]), before = fresh ? 0 : load(max[i]);
        const real batch = -a > b ? -a : b, amax = batch > before ? batch : before;
        const double power = NATIVE(power)((double)amax, false, BFP_EMAX);
        const double scale = qobs_round_to(scale_dtype, power == 0 ? 0x1p-23 : power);
        const float s = (float)scale < 0x1p-126f ? 0x1p-126f : (float)scale, inverse = 1 / s;
        const bool twice = NATIVE(leaves)(a, scale, s, inverse) || NATIVE(leaves)(b, scale, s, inverse);
        max[i] = store(twice ? 2 * amax : amax);
        min[i] = store(-load(max[i]));
    }
}

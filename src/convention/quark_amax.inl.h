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
static void NATIVE(quotients)(size_t n, const double *amax, double greatest, double *scale)
{
    for (size_t i = 0; i < n; i++) {
        const real s = round_native(round_native((real)amax[i]) / (real)greatest);
        scale[i] = s == 0 ? 0x1p-23 : (double)s;
    }
}

/* 2 to the whole number below or above log2(amax), less emax. The logarithm is rounded first and may then be whole already, just
 * below and just above a power of two. */
static double NATIVE(power)(double amax, bool up, int emax)
{
    const real log = round_native((real)log2(amax));
    return (double)round_native((real)power_of_2((double)(up ? ceil((double)log) : floor((double)log)) - emax));
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
static bool NATIVE(leaves)(real x, double scale)
{
    const float s = (float)scale < 0x1p-126f ? 0x1p-126f : (float)scale;
    const float q = rintf((float)x * (1 / s));
    const float clamped = q < -129 ? -129 : q > 128 ? 128 : q;
    const double steps = (double)round_native((real)(clamped * s)) / scale;
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
        const double s = qobs_round_to(scale_dtype, power == 0 ? 0x1p-23 : power);
        max[i] = store(NATIVE(leaves)(a, s) || NATIVE(leaves)(b, s) ? 2 * amax : amax);
        min[i] = store(-load(max[i]));
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of quark.c. */

#include "formula/amax.inl.h"
#include "number/exponent.inl.h"

/* ---- Integers: scalars (the range, half of it) stay float beside a bf16 or f16 tensor ---------------------------- */

/* A 0-dimensional tensor without data. */
static inline bool NATIVE(no_data)(const struct integers *q, real lo, real hi)
{
    return q->scalars && is_no_data((double)lo, (double)hi);
}

/* The index of the first range whose minimum is above its maximum or NaN; n if there is none. */
static size_t NATIVE(first_invalid)(const struct integers *q, size_t n, const stored *min, const stored *max)
{
    for (size_t i = 0; i < n; i++)
        if (!(load(min[i]) <= load(max[i])) && !NATIVE(no_data)(q, load(min[i]), load(max[i])))
            return i;
    return n;
}

/* Ranges first to first + n: scales go to scale[0] to scale[n - 1], zero points to zero_point[first] and on unless it
 * is NULL. */
static void NATIVE(integers)(const struct integers *q, size_t first, size_t n, const stored *min, const stored *max,
                             double *scale, void *zero_point)
{
    const real eps = (real)0x1p-23;
    const real range = (real)(q->quant_max - q->quant_min), half = (real)((double)(q->quant_max - q->quant_min) / 2);
    for (size_t i = 0; i < n; i++) {
        const real lo = load(min[first + i]), hi = load(max[first + i]);
        const real a = lo < 0 ? lo : 0, b = hi > 0 ? hi : 0;
        real s;
        int32_t z = 0;
        real fraction = 0;
        if (NATIVE(no_data)(q, lo, hi)) {
            s = 1;
        } else if (q->mapping == MAPPING_SYMMETRIC) {
            s = round_native((-a > b ? -a : b) / half);
            s = s > eps ? s : eps;
        } else if (q->mapping == MAPPING_AFFINE) {
            s = round_native(round_native(b - a) / range);
            s = s > eps ? s : eps;
            const real steps = q->scalars ? a / s : round_native(a / s);
            z = affine_zero_point((double)steps, q->quant_min, q->quant_max);
        } else {
            s = round_native(round_native(hi - lo) / range);
            s = s > eps ? s : 1;
            fraction = -lo / s;
        }
        scale[i] = (double)s;
        if (zero_point && q->mapping == MAPPING_FLOAT)
            ((stored *)zero_point)[first + i] = store(fraction);
        else if (zero_point)
            ((int32_t *)zero_point)[first + i] = z;
    }
}

/* ---- Powers of two: the range [lo, hi] is numbers of the dtype --------------------------------------------------- */

/* x in the dtype of the second half of the formula. An operation in double followed by this is one operation in that
 * dtype. */
static inline double NATIVE(rounded)(const struct powers *q, double x)
{
    return q->tensor ? (double)(float)x : (double)round_native((real)x);
}

/* False if the scale is not above 0, which upstream asserts for the range of a tensor. There a range of width 0 has
 * scale 1; for the range of a channel it has the smallest scale there is. */
static bool NATIVE(power_of_2)(const struct powers *q, double lo, double hi, double *scale, int32_t *zero_point)
{
    real a = lo < 0 ? (real)lo : 0, b = hi > 0 ? (real)hi : 0;
    if (q->symmetric) {
        b = -a > b ? -a : b;
        a = -b;
    }
    const real width = round_native(b - a);
    const real s = q->tensor && width == 0 ? 1 : round_native(width / (real)(q->quant_max - q->quant_min));
    if (q->tensor && !(s > 0))
        return false;
    const int32_t z = int32_of_double((double)round_native((real)q->quant_min - round_native(a / s)));
    const double limited = (double)s < 0x1p-127 ? 0x1p-127 : (double)s > 0x1p127 ? 0x1p127 : (double)s;

    const double position = rint(-NATIVE(rounded)(q, log2(NATIVE(rounded)(q, limited))));
    const double power = NATIVE(rounded)(q, ldexp(1, (int)-position));
    const double product = NATIVE(rounded)(q, NATIVE(rounded)(q, subtract_int32(q->quant_min, z)) * power);
    const double steps = NATIVE(rounded)(q, (product < 0 ? product : 0) / power);
    *scale = power;
    *zero_point = int32_of_double(rint(NATIVE(rounded)(q, (double)q->quant_min - steps)));
    return true;
}

/* ---- Floats: between steps, magnitudes and scales are doubles, exact in every dtype ------------------------------ */

/* Magnitudes of ranges first to first + n. */
static void NATIVE(magnitudes)(size_t first, size_t n, const stored *min, const stored *max, double *amax)
{
    for (size_t i = 0; i < n; i++)
        amax[i] = (double)NATIVE(amax)(load(min[first + i]), load(max[first + i]));
}

/* amax / quant_max in this dtype; 2^-23 instead of 0. */
static void NATIVE(quotients)(size_t n, const double *amax, double quant_max, double *scale)
{
    for (size_t i = 0; i < n; i++) {
        const real s = round_native(round_native((real)amax[i]) / (real)quant_max);
        scale[i] = s == 0 ? 0x1p-23 : (double)s;
    }
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

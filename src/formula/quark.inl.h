/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of quark.c. */

#include "formula/amax.inl.h"
#include "number/exponent.inl.h"

/* ---- Integers: scalars (the range, half of it) stay float beside a bf16 or f16 tensor ---------------------------- */

/* The index of the first range whose minimum is above its maximum or NaN; n if there is none. A 0-dimensional tensor
 * may be without data. */
static size_t NATIVE(first_invalid)(const struct range_view *r)
{
    const stored *min = r->min, *max = r->max;
    for (size_t i = 0; i < r->n; i++)
        if (!(load(min[i]) <= load(max[i])) &&
            !(r->rank == RANK_SCALAR && is_no_data((double)load(min[i]), (double)load(max[i]))))
            return i;
    return r->n;
}

/* Ranges first to first + n: scales go to scale[0] to scale[n - 1], zero points to zero_point[first] and on unless it
 * is NULL. */
static void NATIVE(integers)(const struct formula_params *p, const struct range_view *r, size_t first, size_t n,
                             double *scale, void *zero_point)
{
    const stored *min = (const stored *)r->min + first, *max = (const stored *)r->max + first;
    const real eps = (real)0x1p-23, range = (real)(p->quant_max - p->quant_min),
               half = (real)((p->quant_max - p->quant_min) / 2);
    const bool scalars = r->rank == RANK_SCALAR;
    for (size_t i = 0; i < n; i++) {
        const real lo = load(min[i]), hi = load(max[i]);
        const real a = lo < 0 ? lo : 0, b = hi > 0 ? hi : 0;
        real s;
        int32_t z = 0;
        real fraction = 0;
        if (scalars && is_no_data((double)lo, (double)hi)) {
            s = 1;
        } else if (p->mapping == MAPPING_SYMMETRIC) {
            s = round_native((-a > b ? -a : b) / half);
            s = s > eps ? s : eps;
        } else if (p->mapping == MAPPING_AFFINE) {
            s = round_native(round_native(b - a) / range);
            s = s > eps ? s : eps;
            const real steps = scalars ? a / s : round_native(a / s);
            z = affine_zero_point((double)steps, (int64_t)p->quant_min, (int64_t)p->quant_max);
        } else {
            s = round_native(round_native(hi - lo) / range);
            s = s > eps ? s : 1;
            fraction = -lo / s;
        }
        scale[i] = (double)s;
        if (zero_point && p->mapping == MAPPING_FLOAT)
            ((stored *)zero_point)[first + i] = store(fraction);
        else if (zero_point)
            ((int32_t *)zero_point)[first + i] = z;
    }
}

/* ---- Floats: between steps, magnitudes and scales are doubles, exact in every dtype ------------------------------ */

/* Magnitudes of ranges first to first + n. */
static void NATIVE(magnitudes)(size_t first, size_t n, const stored *min, const stored *max, double *amax)
{
    for (size_t i = 0; i < n; i++)
        amax[i] = (double)NATIVE(amax)(load(min[first + i]), load(max[first + i]));
}

static void NATIVE(powers)(size_t n, const double *amax, bool up, int emax, double *scale)
{
    for (size_t i = 0; i < n; i++) {
        const double s = NATIVE(power)(amax[i], up, emax);
        scale[i] = s == 0 ? 0x1p-23 : s;
    }
}

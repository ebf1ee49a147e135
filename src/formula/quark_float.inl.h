/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of quark_float.c. Magnitudes and scales travel between the steps as doubles, which hold every dtype's numbers. */

#include "formula/amax.inl.h"
#include "number/exponent.inl.h"

/* Magnitudes of ranges first to first + n. */
static void NATIVE(magnitudes)(size_t first, size_t n, const stored *min, const stored *max, double *amax)
{
    for (size_t i = 0; i < n; i++)
        amax[i] = (double)NATIVE(amax)(load(min[first + i]), load(max[first + i]));
}

/* amax, as this dtype has it, through the largest number; eps for 0. */
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

static void NATIVE(put)(size_t first, size_t n, const double *from, stored *to)
{
    for (size_t i = 0; i < n; i++)
        to[first + i] = store((real)from[i]);
}

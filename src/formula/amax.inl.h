/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The magnitude of ranges in one dtype. */

/* max(|min(lo, 0)|, |max(hi, 0)|); NaN stays NaN, as in torch.min and torch.max. */
static inline real NATIVE(amax)(real lo, real hi)
{
    const real a = lo < 0 || lo != lo ? -lo : 0, b = hi > 0 || hi != hi ? hi : 0;
    return a > b || a != a ? a : b;
}

/* The largest of n ranges; NaN if there is one. */
static inline double NATIVE(largest)(size_t n, const stored *min, const stored *max)
{
    real amax = 0;
    for (size_t i = 0; i < n && amax == amax; i++) {
        const real m = NATIVE(amax)(load(min[i]), load(max[i]));
        amax = m > amax || m != m ? m : amax;
    }
    return (double)amax;
}

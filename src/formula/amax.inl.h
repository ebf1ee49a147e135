/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The magnitude of ranges in one dtype. */

/* max(|min(lo, 0)|, |max(hi, 0)|); NaN stays NaN, as in torch.min and torch.max. */
static inline real NATIVE(amax)(real lo, real hi)
{
#if MANTISSA_BITS == 52
    const real a = lo < 0 || lo != lo ? -lo : 0, b = hi > 0 || hi != hi ? hi : 0;
    return a > b || a != a ? a : b;
#else
    /* By bits: a comparison of floats may trap, which keeps compilers from making vectors. NaN is above infinity. */
    const uint32_t low = bits_of_float(lo), high = bits_of_float(hi), infinity = 0x7f800000;
    const uint32_t a = low & 0x7fffffff, b = high & 0x7fffffff;
    const uint32_t low_nan = -(uint32_t)(a > infinity), high_nan = -(uint32_t)(b > infinity);
    const uint32_t below = a & (-(low >> 31) | low_nan), above = b & (((high >> 31) - 1) | high_nan);
    const uint32_t sign = (~low & low_nan) | (high & high_nan & ~low_nan); /* of NaN: that of -lo or hi */
    return float_of_bits(((int32_t)below > (int32_t)above ? below : above) | (sign & 0x80000000));
#endif
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

/* n numbers from `first` on. */
static inline void NATIVE(widen)(const stored *x, size_t first, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)load(x[first + i]);
}

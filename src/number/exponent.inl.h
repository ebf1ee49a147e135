/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Logarithms and powers of two in one dtype; see number/exponent.h and number/native.h. */

/* The integer below or above log2(amax). The logarithm is rounded to the dtype first, which may make it an integer. In f32 and f64
 * that happens only next to a power of two; everywhere else the exponent of amax is enough. */
static inline double NATIVE(integer_log2)(double amax, bool up)
{
    int exponent;
    if (MANTISSA_BITS >= 23 && log2_has_fraction(amax, &exponent))
        return (double)exponent + up;
    const real log = round_native((real)log2(amax));
    return up ? ceil((double)log) : floor((double)log);
}

/* 2^(that integer - emax). */
static inline double NATIVE(power)(double amax, bool up, int emax)
{
    return (double)round_native((real)power_of_2(NATIVE(integer_log2)(amax, up) - emax));
}

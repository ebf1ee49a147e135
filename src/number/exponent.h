/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Powers of two and logarithms for scales that are powers of two; number/exponent.inl.h has the parts of one dtype. */
#pragma once

#include <math.h>
#include <stdbool.h>

#include "number/number.h"
#include "qobs/qobs.h"

/* 2^exponent, of integers, infinities and NaN. */
static inline double power_of_2(double exponent)
{
    if (exponent >= -1022 && exponent <= 1023)
        return double_of_bits((uint64_t)((int64_t)exponent + 1023) << 52);
    return exponent < -1074 ? 0 : exponent > 1023 ? INFINITY : isnan(exponent) ? exponent : ldexp(1, (int)exponent);
}

/* True if log2(amax), also rounded to float, is not an integer. Its integer part is then *exponent, the exponent of
 * amax. */
static inline bool log2_has_fraction(double amax, int *exponent)
{
    const uint64_t bits = bits_of_double(amax), biased = bits >> 52, first_digits = bits >> 36 & 0xffff;
    *exponent = (int)biased - 1023;
    return biased > 0 && biased < 2047 && first_digits != 0 && first_digits != 0xffff;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Powers of two and logarithms for scales that are powers of two; number/exponent.inl.h has the parts of one dtype. */
#pragma once

#include <math.h>
#include <stdbool.h>

#include "number/number.h"
#include "qobs/qobs.h"

/* ceil(log2(amax)) with the logarithm rounded to `dtype`. */
double qobs_ceil_log2(qobs_dtype dtype, double amax);

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

/* Block floating point as AMD Quark has it: 8-bit integers under one power of two for each block. */

enum { BFP_EMAX = 6 }; /* exponent of the largest element under a scale of 1 */

/* Accumulates the magnitudes of n blocks: max[i] becomes the larger of itself and of the batch lo[i] to hi[i], doubled
 * if an element of the batch does not fit the scale that follows; min[i] becomes -max[i]. Scales are rounded to
 * scale_dtype. `first`: max holds nothing yet. */
void qobs_update_absmax_bfp(qobs_dtype dtype, qobs_dtype scale_dtype, size_t n, void *min, void *max, const void *lo,
                            const void *hi, bool first);

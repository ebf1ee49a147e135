/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* a * b + c, rounded once, on every platform. */
#pragma once

#include "number/number.h"

/* clang tells of the instruction by other names than gcc. */
#if defined(__FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FUSED_INSTRUCTION
#endif

#ifdef FUSED_INSTRUCTION
static inline float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
/* Without an instruction fmaf is a slow call, and not every C library rounds it once: that of mingw-w64 does not. The
 * product is exact in double. The sum is rounded to odd: its last bit becomes 1 on the side of what is missing. The
 * rounding to float then does what a single one would. */
static inline float multiply_add(float a, float b, float c)
{
    const double product = (double)a * (double)b, addend = (double)c, sum = product + addend;
    const double part = sum - product, missing = (product - (sum - part)) + (addend - part);
    const uint64_t bits = bits_of_double(sum), even = (bits & 1) - 1;
    const uint64_t side = (uint64_t)(missing > 0) - (uint64_t)(missing < 0), sign = -(bits >> 63);
    return (float)double_of_bits(bits + (((side ^ sign) - sign) & even));
}
#endif

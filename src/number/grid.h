/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rounding to the numbers of a format without a branch, so that a compiler can vectorize a loop over it.
 *
 * A grid has 2^digits equal steps between two powers of two. Below min_normal, a power of two, the steps no longer
 * shrink. That describes floating-point formats with their subnormals, and with min_normal = 2^digits the integers,
 * whose step is 1.
 *
 * To round x, a power of two (the shifter) is added and subtracted again. It is so large that the sum keeps exactly the
 * wanted digits. The addition rounds to nearest, ties to even; the last bit of the sum is the last bit in the format.
 * The step follows from the exponent of x alone, so subnormal x need no special case, and flushing them to zero changes
 * nothing: half a step is a normal number in every format that is rounded in float. */
#pragma once

#include <math.h>

#include "number/number.h"

/* Before a loop whose iterations are independent even if the output is the input. */
#if defined(__clang__)
#define NO_DEPENDENCE _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_DEPENDENCE _Pragma("GCC ivdep")
#endif

/* Limits: min_normal >= 2^(digits - 126), digits <= 22. */
struct grid_float {
    float min_normal;
    uint32_t shifter; /* added to the exponent field of x, gives the exponent field of the shifter */
};

/* The same in double, for formats that do not fit float: 32-bit integers and the formats with an exponent of 8 bits. */
struct grid_double {
    double min_normal;
    uint64_t shifter;
};

static inline struct grid_float grid_float_make(int digits, double min_normal)
{
    return (struct grid_float){(float)min_normal, (uint32_t)(23 - digits) << 23};
}

static inline struct grid_double grid_double_make(int digits, double min_normal)
{
    return (struct grid_double){min_normal, (uint64_t)(52 - digits) << 52};
}

/* The shifter for |x| <= 2^(104 + digits). For NaN and infinity it is some other number: NaN plus anything stays NaN,
 * and infinity stays infinity. */
static inline float grid_shifter_float(struct grid_float g, float x)
{
    /* compared as integers: the maximum is then one instruction, as floats it is often two */
    const int32_t power = (int32_t)(bits_of_float(x) & 0x7f800000), min_normal = (int32_t)bits_of_float(g.min_normal);
    return float_of_bits((uint32_t)(power > min_normal ? power : min_normal) + g.shifter);
}

static inline double grid_shifter_double(struct grid_double g, double x)
{
    const int64_t power = (int64_t)(bits_of_double(x) & UINT64_C(0x7ff0000000000000));
    const int64_t min_normal = (int64_t)bits_of_double(g.min_normal);
    return double_of_bits((uint64_t)(power > min_normal ? power : min_normal) + g.shifter);
}

/* x rounded, with its sign, also if the result is zero. */
static inline float grid_round_float(struct grid_float g, float x)
{
    const uint32_t b = bits_of_float(x), sign = b & 0x80000000;
    const float shifter = grid_shifter_float(g, x);
    return float_of_bits(bits_of_float((float_of_bits(b ^ sign) + shifter) - shifter) | sign);
}

static inline double grid_round_double(struct grid_double g, double x)
{
    const uint64_t b = bits_of_double(x), sign = b & UINT64_C(0x8000000000000000);
    const double shifter = grid_shifter_double(g, x);
    return double_of_bits(bits_of_double((double_of_bits(b ^ sign) + shifter) - shifter) | sign);
}

/* The nearest integer, with the sign of x, for |x| <= 2^22 (double: 2^51). The functions above give the same if
 * min_normal is at least |x|. Many instruction sets have an instruction for it; without one, rint is a call. */
static inline float grid_round_integer_float(float x)
{
#if defined(__SSE4_1__) || defined(__aarch64__)
    return rintf(x);
#else
    const float rounded = (x + 0x1.8p23f) - 0x1.8p23f;
    return float_of_bits(bits_of_float(rounded) | (bits_of_float(x) & 0x80000000));
#endif
}

static inline double grid_round_integer_double(double x)
{
#if defined(__SSE4_1__) || defined(__aarch64__)
    return rint(x);
#else
    const double rounded = (x + 0x1.8p52) - 0x1.8p52;
    return double_of_bits(bits_of_double(rounded) | (bits_of_double(x) & UINT64_C(0x8000000000000000)));
#endif
}

/* The nearest e4m3 number for |x| <= 448: 3 digits, subnormals below 2^-6. */
static inline float grid_round_e4m3(float x) { return grid_round_float(grid_float_make(3, 0x1p-6), x); }

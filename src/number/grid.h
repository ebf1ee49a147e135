/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rounding to the numbers of a format, without a branch, so that a loop over it becomes vectors.
 *
 * The numbers between two powers of two are cut into 2^digits equal steps; below `floor`, itself a power of two, the steps
 * no longer shrink. That describes floating-point formats, subnormals included, and with floor = 2^digits also the integers,
 * whose step is 1 throughout. To round x, a power of two is added and taken away again that is so large that the addition
 * leaves exactly the wanted digits; the addition rounds to nearest and ties to even, and both numbers of a tie are even or
 * odd in the sum as they are in the format. The step is found in the exponent of x alone, so subnormal x need nothing
 * special, and flushing them to zero would change nothing: half a step is a normal number in every format that is rounded in
 * float. */
#ifndef QOBS_FORMAT_GRID_H
#define QOBS_FORMAT_GRID_H

#include <math.h>

#include "number/number.h"

/* Before a loop whose iterations are independent even where the output is the input. */
#if defined(__clang__)
#define NO_DEPENDENCE _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_DEPENDENCE _Pragma("GCC ivdep")
#endif

/* Limits: floor >= 2^(digits - 126), digits <= 22. */
struct grid_float {
    float floor;
    uint32_t shifter; /* what the exponent of x is raised by to be that of the power of two */
};

/* The same in double, for what does not fit float: 32-bit integers and the formats with an exponent of 8 bits. */
struct grid_double {
    double floor;
    uint64_t shifter;
};

static inline struct grid_float grid_float_make(int digits, double floor)
{
    return (struct grid_float){(float)floor, (uint32_t)(23 - digits) << 23};
}

static inline struct grid_double grid_double_make(int digits, double floor)
{
    return (struct grid_double){floor, (uint64_t)(52 - digits) << 52};
}

static inline double double_of_bits(uint64_t b)
{
    double d;
    memcpy(&d, &b, sizeof d);
    return d;
}

static inline uint64_t bits_of_double(double d)
{
    uint64_t b;
    memcpy(&b, &d, sizeof b);
    return b;
}

/* The power of two for |x| <= 2^(104 + digits). For NaN and infinity it is some other number: NaN plus anything stays NaN,
 * and infinity stays infinity. */
static inline float grid_shifter_float(struct grid_float g, float x)
{
    /* compared as integers: the larger of two is then one instruction, as floats it is often two */
    const int32_t power = (int32_t)(bits_of_float(x) & 0x7f800000), floor = (int32_t)bits_of_float(g.floor);
    return float_of_bits((uint32_t)(power > floor ? power : floor) + g.shifter);
}

static inline double grid_shifter_double(struct grid_double g, double x)
{
    const int64_t power = (int64_t)(bits_of_double(x) & UINT64_C(0x7ff0000000000000)),
                  floor = (int64_t)bits_of_double(g.floor);
    return double_of_bits((uint64_t)(power > floor ? power : floor) + g.shifter);
}

/* x rounded; its sign stays, that of zero too. */
static inline float grid_round_float(struct grid_float g, float x)
{
    const uint32_t b = bits_of_float(x), sign = b & 0x80000000;
    const float shifter = grid_shifter_float(g, x);
    return float_of_bits(bits_of_float((float_of_bits(b ^ sign) + shifter) - shifter) | sign);
}

/* The nearest integer for |x| <= 2^22, in double 2^51, with the sign of x: what the other functions give where floor is not below
 * |x|. Many instruction sets have an instruction for it; without one rint is a call. */
static inline float grid_round_whole_float(float x)
{
#if defined(__SSE4_1__) || defined(__aarch64__)
    return rintf(x);
#else
    const float whole = (x + 0x1.8p23f) - 0x1.8p23f;
    return float_of_bits(bits_of_float(whole) | (bits_of_float(x) & 0x80000000));
#endif
}

static inline double grid_round_whole_double(double x)
{
#if defined(__SSE4_1__) || defined(__aarch64__)
    return rint(x);
#else
    const double whole = (x + 0x1.8p52) - 0x1.8p52;
    return double_of_bits(bits_of_double(whole) | (bits_of_double(x) & UINT64_C(0x8000000000000000)));
#endif
}

static inline double grid_round_double(struct grid_double g, double x)
{
    const uint64_t b = bits_of_double(x), sign = b & UINT64_C(0x8000000000000000);
    const double shifter = grid_shifter_double(g, x);
    return double_of_bits(bits_of_double((double_of_bits(b ^ sign) + shifter) - shifter) | sign);
}

/* The nearest e4m3 number for |x| <= 448: 3 digits, subnormals below 2^-6. */
static inline float grid_round_e4m3(float x)
{
    return grid_round_float(grid_float_make(3, 0x1p-6), x);
}

#endif

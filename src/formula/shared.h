/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Steps that several formulas have. */
#pragma once

#include <math.h>
#include <stdbool.h>

#include "base/error.h"
#include "stages/formula.h"
#include "number/convert.h"
#include "number/grid.h"
#include "number/number.h"

/* True for the range of an observer without data: from infinity to -infinity. */
static inline bool is_no_data(double min, double max) { return min == (double)INFINITY && max == -(double)INFINITY; }

/* The qparams of an observer without data in torch and Quark: 1 and 0. */
static inline int put_no_data(void *scale, void *zero_point, qobs_error *error)
{
    if (scale)
        *(float *)scale = 1;
    if (zero_point)
        *(int64_t *)zero_point = 0;
    return qobs_succeed(error);
}

/* a - b in int32, which wraps. */
static inline int32_t subtract_int32(int64_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }

/* The zero point of a range whose minimum is `steps` scales, in int32 arithmetic, between the limits. */
static inline int32_t affine_zero_point(double steps, int64_t quant_min, int64_t quant_max)
{
    const int32_t z = subtract_int32(quant_min, int32_of_double(rint(steps)));
    return z < quant_min ? (int32_t)quant_min : z > quant_max ? (int32_t)quant_max : z;
}

/* The number that arithmetic in the dtype takes x for: float for the narrow ones. */
static inline double operand(qobs_dtype dtype, double x) { return dtype == QOBS_F64 ? x : (double)(float)x; }

/* The result of an operation on such numbers that gives x in double, which has more than twice the digits of F32. */
static inline double rounded(qobs_dtype dtype, double x)
{
    const float f = (float)x;
    switch (dtype) {
    case QOBS_F32:
        return (double)f;
    case QOBS_BF16:
        return (double)float_of_bf16(bf16_of_float(f));
    case QOBS_F16:
        return (double)float_of_f16(f16_of_float(f));
    default:
        return x;
    }
}

/* The nearest e4m3 number; numbers above 448 become 448, and NaN stays. is_number: x is no NaN, and not below 0. Bits
 * are compared, because comparisons of floats may trap, so that loops become vectors. */
static inline float grid_limit_e4m3(bool is_number, float x)
{
    const int32_t largest = 0x43e00000, infinity = 0x7f800000, bits = (int32_t)bits_of_float(x);
    const uint32_t above = -(uint32_t)(bits > largest) & (is_number ? ~0u : -(uint32_t)(bits <= infinity));
    const float limited = float_of_bits(((uint32_t)largest & above) | ((uint32_t)bits & ~above));
    const float shifter = grid_shifter_float(grid_float_make(3, 0x1p-6), limited);
    return is_number ? (limited + shifter) - shifter : grid_round_e4m3(limited);
}

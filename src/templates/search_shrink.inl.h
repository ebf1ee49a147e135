/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales and zero points of shrunk ranges, plain C for every instruction set; included by src/ISA/search.c with its
 * ENTRY. The numbers are those of formula/compressed_tensors.c, operation by operation, in the dtype of the range;
 * test_search_kernels compares them.
 *
 * Accumulators: none.
 * Overflow: a finite scale stays finite when it is multiplied by the caller's factor, and so does its inverse.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h); a finite range. */
#include <float.h>

#include "number/grid.h"
#include "number/multiply_add.h"
#include "kernels/kernel_search.h"
#include "number/round.h"
#include "templates/inline.h"

enum shrinking { SYMMETRIC, ASYMMETRIC, MX };

/* Ranges all of whose candidates are normal numbers. Their inverses need no division; if all ranges are such, scales
 * need none either. Results are the same in every case: candidates of a range do not depend on the others. */
enum normality { NONE_NORMAL, SOME_NORMAL, ALL_NORMAL };

/* A scale for elements times factor; finite if it was. */
DEEP_INLINE float times_factor(float s, float factor)
{
    const float scaled = s * factor, limited = scaled < FLT_MAX ? scaled : FLT_MAX;
    return s < INFINITY ? limited : s;
}

DEEP_INLINE float inverse_of(float s)
{
    const float reciprocal = 1 / s;
    return reciprocal < FLT_MAX ? reciprocal : FLT_MAX;
}

/* The inverse of a normal number from an estimate. Each Newton step squares the relative error, down to that of
 * float; the rounding of 1 / s does not matter. */
DEEP_INLINE float refined_inverse(int refinements, float s, float nearly)
{
    for (int i = 0; i < refinements; i++)
        nearly = nearly * (2 - s * nearly);
    return nearly;
}

/* a / b, rounded as a division rounds, for normal numbers far from float's limits: Markstein's correction of a
 * product with the inverse. It was verified for every a and all values of b: (2^bits - 1) / 2, 2^bits - 1, 6 and
 * 448. */
DEEP_INLINE float divide(float a, float b, float inverse_b)
{
    const float q = a * inverse_b;
    return multiply_add(multiply_add(-q, b, a), inverse_b, q);
}

/* The MX scale: amax rounded to a power of two in its own bits, divided by 2^offset. bf16 has the first bits of
 * float. */
DEEP_INLINE float mx_scale(float amax, int offset)
{
    const int32_t exponent = (int32_t)((bits_of_float(amax) + (UINT32_C(1) << 21)) >> 23), e = exponent - offset;
    const uint32_t power = e > 0 ? (uint32_t)e << 23 : 0x00400000; /* 2^-127 is subnormal */
    return float_of_bits(exponent == 255 ? 0x7f800000 : power);
}

#define NATIVE(name) NATIVE_(name, DTYPE)
#define NATIVE_(name, dtype) NATIVE__(name, dtype)
#define NATIVE__(name, dtype) name##_##dtype
#define round_dtype NATIVE(round)

#define DTYPE f32
#define MIN_NORMAL 0x1p-90f /* far enough above for what divide() leaves */
#define REFINEMENTS 1
#include "templates/search_shrink_native.inl.h"
#undef DTYPE
#undef REFINEMENTS
#define DTYPE bf16
#define REFINEMENTS 2
#include "templates/search_shrink_native.inl.h"
#undef DTYPE
#undef MIN_NORMAL
#define DTYPE f16
#define MIN_NORMAL 0x1p-13f
#include "templates/search_shrink_native.inl.h"
#undef DTYPE
#undef MIN_NORMAL
#undef REFINEMENTS

#undef round_dtype
#undef NATIVE__
#undef NATIVE_
#undef NATIVE

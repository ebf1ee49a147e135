/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales and zero points of shrunk ranges, plain C for every instruction set: src/<isa>/search.c includes this with its ENTRY. The
 * numbers are those of src/formula/compressed_tensors.c, operation by operation, in the dtype of the range; tests compare.
 *
 * Accumulators: none. Overflow: a finite scale stays finite when it is multiplied by the caller's factor, and so does its inverse.
 * Caller's duty: round to nearest, no flushing of subnormals (src/fpenv.h); a finite range. */
#include <float.h>

#include "number/grid.h"
#include "kernels/kernel_search.h"
#include "number/round.h"

enum shrinking { SYMMETRIC, ASYMMETRIC, MX };

/* Of which ranges all candidates are normal numbers. Their inverses come without divisions, and if all are, so do the scales, which are
 * the same either way: no range's candidates depend on the others. */
enum normality { NONE_NORMAL, SOME_NORMAL, ALL_NORMAL };

/* A scale for elements times factor; finite if it was. */
ALWAYS_INLINE float times_factor(float s, float factor)
{
    const float scaled = s * factor, limited = scaled < FLT_MAX ? scaled : FLT_MAX;
    return s < INFINITY ? limited : s;
}

ALWAYS_INLINE float inverse_of(float s)
{
    const float reciprocal = 1 / s;
    return reciprocal < FLT_MAX ? reciprocal : FLT_MAX;
}

/* The same of a normal number whose inverse is nearly known. Each step of Newton's squares its relative error, down to that of
 * float; what 1 / s would be rounded to does not matter. */
ALWAYS_INLINE float refined_inverse(int refinements, float s, float nearly)
{
    for (int i = 0; i < refinements; i++)
        nearly = nearly * (2 - s * nearly);
    return nearly;
}

/* a / b, rounded as a division rounds, for normal numbers far from float's limits: Markstein's correction of a product with the
 * inverse. That it holds for every a has been tried for all b there are: (2^bits - 1) / 2, 2^bits - 1, 6 and 448. */
ALWAYS_INLINE float divide(float a, float b, float inverse_b)
{
    const float q = a * inverse_b;
    return fmaf(fmaf(-q, b, a), inverse_b, q);
}

/* amax rounded to a power of two in its own bits, of which bf16 has float's first ones; an eighth of it is MX's scale, or less. */
ALWAYS_INLINE float mx_scale(float amax, int offset)
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
#define LEAST_NORMAL 0x1p-90f /* far enough above for what divide() leaves */
#define REFINEMENTS 1
#include "templates/search_shrink_native.inl.h"
#undef DTYPE
#undef REFINEMENTS
#define DTYPE bf16
#define REFINEMENTS 2
#include "templates/search_shrink_native.inl.h"
#undef DTYPE
#undef LEAST_NORMAL
#define DTYPE f16
#define LEAST_NORMAL 0x1p-13f
#include "templates/search_shrink_native.inl.h"
#undef DTYPE
#undef LEAST_NORMAL
#undef REFINEMENTS

#undef round_dtype
#undef NATIVE__
#undef NATIVE_
#undef NATIVE

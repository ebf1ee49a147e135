/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable Gram of columns; contract and limits in templates/gram.inl.h. */
#include "scalar/f32x16.h"

#ifndef FP_FAST_FMAF
/* a * b + c, rounded once. Without an instruction for it, fmaf is a slow call. The product is exact in double. The sum
 * is rounded to odd: its last bit becomes 1 on the side of what is missing. The rounding to float then does what a
 * single one would. */
typedef double fma_numbers __attribute__((vector_size(16)));
typedef int64_t fma_bits __attribute__((vector_size(16)));

static inline f32x16 multiply_add(f32x16 a, f32x16 b, f32x16 c)
{
    f32x16 r;
    for (int i = 0; i < 16; i += 2) {
        const fma_numbers x = {(double)a.f[i], (double)a.f[i + 1]}, y = {(double)b.f[i], (double)b.f[i + 1]};
        const fma_numbers addend = {(double)c.f[i], (double)c.f[i + 1]}, product = x * y, sum = product + addend;
        const fma_numbers part = sum - product, missing = (product - (sum - part)) + (addend - part);
        const fma_bits side = (missing < 0) - (missing > 0), sign = sum < 0, even = ((fma_bits)sum & 1) - 1;
        const fma_numbers odd = (fma_numbers)((fma_bits)sum + (((side ^ sign) - sign) & even));
        r.f[i] = (float)odd[0];
        r.f[i + 1] = (float)odd[1];
    }
    return r;
}
#define GRAM_MULTIPLY_ADD multiply_add
#endif

#include "scalar/tuning.h"

#define ENTRY_(name) name##_scalar
#define ENTRY(name) ENTRY_(name)
#include "templates/gram.inl.h"

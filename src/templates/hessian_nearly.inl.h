/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors e^T H e of 16 scales at once, a lane each; included by src/ISA/hessian.c after f32x16.h of that folder.
 *
 * Accumulators: floats. Results differ between instruction sets: a product and a sum are fused where that is fast.
 * Overflow: w / scale may be infinite and is limited before it is rounded.
 * In flight: four rows of the factor; the next four quotients do not depend on them.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). */
#include "kernels/kernel_gram.h"
#include "templates/inline.h"

/* a * b + c; an instruction set may have its own. */
#ifndef HESSIAN_MULTIPLY_ADD
#define HESSIAN_MULTIPLY_ADD f32x16_fma
#endif

/* Four elements from number `first` on: their errors to e, and the sum with the squares of their rows. */
ALWAYS_INLINE f32x16 nearly_rows(size_t first, const float *factor, const float *w, const float *signed_scale,
                                 f32x16 *e, f32x16 sum)
{
    const f32x16 scale = f32x16_load(signed_scale), six = f32x16_splat(6), one = f32x16_splat(1);
    const f32x16 digits = f32x16_splat(0x1p22f), zero = f32x16_splat(0);
    f32x16 y[4] = {zero, zero, zero, zero};
    for (size_t i = first; i < first + 4; i++) {
        const uint32_t bits = bits_of_float(w[i]);
        const f32x16 a = f32x16_splat(float_of_bits(bits & 0x7fffffff));
        const f32x16 limited = f32x16_min_bits(f32x16_div(a, scale), six);
        const f32x16 rounder = f32x16_mul(f32x16_max_bits(f32x16_power_of_2(limited), one), digits);
        const f32x16 q = f32x16_sub(f32x16_add(limited, rounder), rounder);
        e[i] = HESSIAN_MULTIPLY_ADD(q, f32x16_load(signed_scale + (bits >> 31) * 16), f32x16_splat(-w[i]));
    }
    for (size_t j = 0; j < first + 4; j++, factor += 4)
        for (size_t r = 0; r < 4; r++)
            y[r] = HESSIAN_MULTIPLY_ADD(f32x16_splat(factor[r]), e[j], y[r]);
    for (size_t r = 0; r < 4; r++)
        sum = HESSIAN_MULTIPLY_ADD(y[r], y[r], sum);
    return sum;
}

QOBS_HESSIAN_NEARLY(ENTRY(qobs_hessian_nearly))
{
    _Alignas(64) float signed_scale[2 * QOBS_HESSIAN_SCALES];
    f32x16 e[QOBS_HESSIAN_SIDE];
    const f32x16 most = f32x16_splat(bound);
    for (size_t k = 0; k < QOBS_HESSIAN_SCALES; k++) {
        signed_scale[k] = scale[k];
        signed_scale[QOBS_HESSIAN_SCALES + k] = -scale[k];
    }
    f32x16 s = nearly_rows(0, factor, w, signed_scale, e, f32x16_splat(0));
    if (f32x16_any_at_most(s, most))
        s = nearly_rows(4, factor + 16, w, signed_scale, e, s);
    if (f32x16_any_at_most(s, most))
        s = nearly_rows(8, factor + 16 + 32, w, signed_scale, e, s);
    if (f32x16_any_at_most(s, most))
        s = nearly_rows(12, factor + 16 + 32 + 48, w, signed_scale, e, s);
    f32x16_store(sum, s);
}

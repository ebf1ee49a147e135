/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The vocabulary of 16 floats in vectors of 128 bits of the compiler, which makes the vectors that the machine has, or
 * single operations. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "number/multiply_add.h"
#include "scalar/tuning.h"
#include "templates/inline.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

/* Nothing is passed in registers of vectors: all functions are static. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define VEC_BYTES 16
typedef int32_t vec __attribute__((vector_size(VEC_BYTES)));
typedef float f32v __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t f32v_mask __attribute__((vector_size(VEC_BYTES)));

DEEP_INLINE f32v_mask f32v_signs(f32v a) { return (f32v_mask)((vec)a < 0); }
DEEP_INLINE f32v f32v_choose(f32v_mask k, f32v a, f32v b) { return (f32v)(((f32v_mask)a & k) | ((f32v_mask)b & ~k)); }
DEEP_INLINE bool f32v_any(f32v_mask k) { return (k[0] | k[1] | k[2] | k[3]) != 0; }

DEEP_INLINE vec vec_max_s32(vec a, vec b) { return (vec)f32v_choose((f32v_mask)(a > b), (f32v)a, (f32v)b); }
DEEP_INLINE vec vec_min_s32(vec a, vec b) { return (vec)f32v_choose((f32v_mask)(a < b), (f32v)a, (f32v)b); }

DEEP_INLINE f32v f32v_splat(float a) { return (f32v){a, a, a, a}; }
DEEP_INLINE f32v f32v_max(f32v a, f32v b) { return f32v_choose((f32v_mask)(a > b), a, b); }
DEEP_INLINE f32v f32v_min(f32v a, f32v b) { return f32v_choose((f32v_mask)(a < b), a, b); }

#ifdef FUSED_INSTRUCTION
DEEP_INLINE f32v f32v_fma(f32v a, f32v b, f32v c)
{
    for (int i = 0; i < 4; i++)
        c[i] = multiply_add(a[i], b[i], c[i]);
    return c;
}
#else
/* multiply_add in vectors: gcc makes none of it. */
DEEP_INLINE f32v f32v_fma(f32v a, f32v b, f32v c)
{
    typedef double numbers __attribute__((vector_size(16)));
    typedef int64_t bits __attribute__((vector_size(16)));
    for (int i = 0; i < 4; i += 2) {
        const numbers x = {(double)a[i], (double)a[i + 1]}, y = {(double)b[i], (double)b[i + 1]};
        const numbers addend = {(double)c[i], (double)c[i + 1]}, product = x * y, sum = product + addend;
        const numbers part = sum - product, missing = (product - (sum - part)) + (addend - part);
        const bits side = (missing < 0) - (missing > 0), sign = sum < 0, even = ((bits)sum & 1) - 1;
        const numbers odd = (numbers)((bits)sum + (((side ^ sign) - sign) & even));
        c[i] = (float)odd[0];
        c[i + 1] = (float)odd[1];
    }
    return c;
}
#endif
DEEP_INLINE f32v f32v_fnma(f32v a, f32v b, f32v c) { return f32v_fma(-a, b, c); }

DEEP_INLINE f32v f32v_round_f16(f32v a)
{
    for (int i = 0; i < 4; i++)
        a[i] = float_of_f16(f16_of_float(a[i]));
    return a;
}

#ifdef QOBS_SLEEF
DEEP_INLINE f32v f32v_pow(f32v a, f32v b)
{
    for (int i = 0; i < 4; i++)
        a[i] = Sleef_cinz_powf1_u10purec(a[i], b[i]);
    return a;
}
#endif

struct f32x16_table {
    const float *low, *high;
};

DEEP_INLINE struct f32x16_table f32x16_table(const float low[8], const float high[8])
{
    return (struct f32x16_table){low, high};
}

DEEP_INLINE f32v f32v_look_up(struct f32x16_table t, f32v a)
{
    for (int i = 0; i < 4; i++)
        a[i] = t.low[bits_of_float(a[i]) >> 23 & 7] * t.high[bits_of_float(a[i]) >> 26 & 7];
    return a;
}

#include "templates/vectors.h"

/* Transposes 16 rows of 16 floats that start `row` floats apart. */
DEEP_INLINE void f32x16_transpose(const float *x, size_t row, float *out)
{
    for (size_t i = 0; i < 16; i++)
        for (size_t column = 0; column < 16; column++)
            out[column * 16 + i] = x[i * row + column];
}

/* ---- Elements and codes for templates/codes_lanes.inl.h ---------------------------------------------------------- */

/* Elements at any address, as bits of floats. */
DEEP_INLINE f32x16 load_halves(const void *p)
{
    u16x16 halves;
    memcpy(&halves, p, sizeof halves);
    const u32x16 bits = __builtin_convertvector(halves, u32x16);
    return f32x16_load(&bits);
}
DEEP_INLINE f32x16 f32x16_load_bf16(const void *p)
{
    const f32x16 a = load_halves(p);
    F32X16_EACH((f32v)(BITS_(a) << 16));
}

/* The same numbers as float_of_f16. */
DEEP_INLINE f32v f32v_of_f16(u32v halves)
{
    const u32v magnitude = (halves & 0x7fff) << 13, large = (u32v)(magnitude >= 0x0f800000);
    const f32v number = (f32v)magnitude * 0x1p112f;
    return (f32v)((u32v)number | (large & 0x38000000) | (halves & 0x8000) << 16);
}
DEEP_INLINE f32x16 f32x16_load_f16(const void *p)
{
    const f32x16 a = load_halves(p);
    F32X16_EACH(f32v_of_f16(BITS_(a)));
}

/* The low byte of each lane. */
DEEP_INLINE void f32x16_store_bytes(unsigned char *to, f32x16 a)
{
    u32x16 bits;
    memcpy(&bits, &a, sizeof bits);
    const u8x16 bytes = __builtin_convertvector(bits & 0xff, u8x16);
    memcpy(to, &bytes, sizeof bytes);
}

/* Plain C has no path to codes but lanes. */
#define BF16_CODE_PATHS(PATH)

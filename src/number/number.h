/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Types of elements, bits of floats and doubles, and bf16 and f16 as floats. Rounding is to nearest, ties to even; NaN
 * stays NaN. */
#pragma once

#include <stdint.h>
#include <string.h>

/* Elements in memory, at any address. */
typedef float __attribute__((aligned(1), may_alias)) element_f32;
typedef double __attribute__((aligned(1), may_alias)) element_f64;
typedef uint16_t __attribute__((aligned(1), may_alias)) element_bf16;
typedef uint16_t __attribute__((aligned(1), may_alias)) element_f16;

static inline float float_of_bits(uint32_t b)
{
    float f;
    memcpy(&f, &b, sizeof f);
    return f;
}

static inline uint32_t bits_of_float(float f)
{
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    return b;
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

static inline float float_of_bf16(uint16_t h) { return float_of_bits((uint32_t)h << 16); }

static inline uint16_t bf16_of_float(float f)
{
    const uint32_t b = bits_of_float(f);
    const uint32_t rounded = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
    /* NaN by its bits: a comparison of floats may trap, which keeps compilers from making vectors. */
    return (uint16_t)((b & 0x7fffffff) > 0x7f800000 ? (b >> 16) | 0x40 : rounded);
}

/* Multiplying by a power of two changes the exponent and is exact, also for subnormals. There is no branch, so that a
 * compiler can vectorize a loop: infinity and NaN are multiplied, too, and then get their exponent. */
static inline float float_of_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;
    const float number = float_of_bits(magnitude) * 0x1p112f;
    return float_of_bits(bits_of_float(number) | (magnitude >= 0x0f800000 ? 0x38000000 : 0) | sign);
}

static inline uint16_t f16_of_float(float f)
{
    const uint32_t b = bits_of_float(f), sign = (b >> 16) & 0x8000, magnitude = b & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: adding 0.5 leaves the f16 subnormal in the low bits, rounded */
        const uint32_t r = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000;
        return (uint16_t)(sign | r);
    }
    const uint32_t r = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
    return (uint16_t)(sign | r);
}

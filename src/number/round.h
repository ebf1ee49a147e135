/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rounding to a dtype without branches, for loops that the compiler is to vectorize.
 *
 * round_DTYPE() gives the nearest number of the dtype; a NaN must come from numbers of the dtype. store_quiet_DTYPE()
 * rounds and encodes; NaN becomes the quiet NaN without sign and payload. load_DTYPE() is in number/native.h. */
#pragma once

#include "number/native.h"

static inline float round_f32(float x) { return x; }
static inline float store_quiet_f32(float x) { return x != x ? NAN : x; }
static inline double round_f64(double x) { return x; }
static inline double store_quiet_f64(double x) { return x != x ? (double)NAN : x; }

static inline uint32_t bits_rounded_to_bf16(float x)
{
    const uint32_t b = bits_of_float(x);
    return b + 0x7fff + (b >> 16 & 1);
}

static inline float round_bf16(float x) { return float_of_bits(bits_rounded_to_bf16(x) & 0xffff0000); }
static inline uint16_t store_quiet_bf16(float x) { return (uint16_t)(x != x ? 0x7fc0 : bits_rounded_to_bf16(x) >> 16); }

/* Rounds as number/grid.h does, with 10 digits and min_normal 2^-14. Magnitudes from 2^17 on are rounded like those
 * just below, which keeps them above 65504. No comparison here makes a compiler branch. */
#define F16_SHIFTER (UINT32_C(13) << 23)
#define F16_MIN_NORMAL 0x38800000

static inline uint32_t shifter_f16(float x)
{
    const int32_t power = (int32_t)(bits_of_float(x) & 0x7f800000);
    const int32_t normal = power > F16_MIN_NORMAL ? power : F16_MIN_NORMAL;
    return (uint32_t)(normal < 0x48000000 ? normal : 0x48000000) + F16_SHIFTER;
}

static inline float round_f16(float x)
{
    const uint32_t b = bits_of_float(x), sign = b & 0x80000000;
    const float shifter = float_of_bits(shifter_f16(x)), r = (float_of_bits(b ^ sign) + shifter) - shifter;
    return float_of_bits(bits_of_float(r * 0x1p112f * 0x1p-112f) | sign); /* infinity from 2^16 on */
}

static inline uint16_t store_quiet_f16(float x)
{
    const uint32_t b = bits_of_float(x), sign = b & 0x80000000, shifter = shifter_f16(x);
    const uint32_t nan = (uint32_t)((int32_t)(0x7f800000 - (b ^ sign)) >> 31); /* all bits or none */
    const uint32_t steps = bits_of_float(float_of_bits(b ^ sign) + float_of_bits(shifter)) - shifter;
    const uint32_t code = ((shifter - F16_SHIFTER - F16_MIN_NORMAL) >> 13) + steps,
                   limited = code < 0x7c00 ? code : 0x7c00;
    return (uint16_t)((0x7e00 & nan) | ((limited | sign >> 16) & ~nan));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Numbers of a dtype for loops that are to become vectors: take() to float or double, put() back, nearest() number of the dtype. No
 * branches, which number.h has. nearest() takes NaN for granted that came from numbers of the dtype. */
#ifndef QOBS_NEAREST_H
#define QOBS_NEAREST_H

#include <math.h>

#include "number/number.h"


static inline float take_f32(float x) { return x; }
static inline float nearest_f32(float x) { return x; }
static inline float put_f32(float x) { return x != x ? NAN : x; }
static inline double take_f64(double x) { return x; }
static inline double nearest_f64(double x) { return x; }
static inline double put_f64(double x) { return x != x ? (double)NAN : x; }

static inline float take_bf16(uint16_t x) { return float_of_bf16(x); }

static inline uint32_t round_bf16(float x)
{
    const uint32_t b = bits_of_float(x);
    return b + 0x7fff + (b >> 16 & 1);
}

static inline float nearest_bf16(float x) { return float_of_bits(round_bf16(x) & 0xffff0000); }
static inline uint16_t put_bf16(float x) { return (uint16_t)(x != x ? 0x7fc0 : round_bf16(x) >> 16); }

static inline float take_f16(uint16_t x) { return float_of_f16(x); }

/* As in format/grid.h, with digits 10 and floor 2^-14. Numbers from 2^17 on are rounded like those before: what matters is
 * that they stay above 65504. Without a comparison that a compiler could take for a reason to branch. */
#define F16_SHIFTER (UINT32_C(13) << 23)
#define F16_FLOOR 0x38800000

static inline uint32_t shifter_f16(float x)
{
    const int32_t power = (int32_t)(bits_of_float(x) & 0x7f800000), quant_min = power > F16_FLOOR ? power : F16_FLOOR;
    return (uint32_t)(quant_min < 0x48000000 ? quant_min : 0x48000000) + F16_SHIFTER;
}

static inline float nearest_f16(float x)
{
    const uint32_t b = bits_of_float(x), sign = b & 0x80000000;
    const float shifter = float_of_bits(shifter_f16(x)), r = (float_of_bits(b ^ sign) + shifter) - shifter;
    return float_of_bits(bits_of_float(r * 0x1p112f * 0x1p-112f) | sign); /* infinity from 2^16 on */
}

static inline uint16_t put_f16(float x)
{
    const uint32_t b = bits_of_float(x), sign = b & 0x80000000, shifter = shifter_f16(x);
    const uint32_t nan = (uint32_t)((int32_t)(0x7f800000 - (b ^ sign)) >> 31); /* all bits or none */
    const uint32_t steps = bits_of_float(float_of_bits(b ^ sign) + float_of_bits(shifter)) - shifter;
    const uint32_t code = ((shifter - F16_SHIFTER - F16_FLOOR) >> 13) + steps, limited = code < 0x7c00 ? code : 0x7c00;
    return (uint16_t)((0x7e00 & nan) | ((limited | sign >> 16) & ~nan));
}

#endif

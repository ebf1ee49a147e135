/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales in blocks of GGUF types: 6-bit fields, small floats, and the scale of each run as a float. */
#pragma once

#include "number/gguf_type.h"
#include "number/number.h"

enum { GGUF_MOST_RUNS = 16, GGUF_MOST_ELEMENTS = 256, GGUF_MOST_BYTES = 210 }; /* of a block */

static inline uint16_t gguf_load16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline void gguf_store16(unsigned char *p, uint16_t v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

/* Q4_K and Q5_K: scale j and minimum j below 4 have the low 6 bits of bytes j and j + 4. Later ones have a half of byte
 * j + 4, and two more bits above those. */
static inline void gguf_store_scales_4(unsigned char *p, unsigned j, unsigned scale, unsigned minimum)
{
    if (j < 4) {
        p[j] = (unsigned char)scale;
        p[j + 4] = (unsigned char)minimum;
        return;
    }
    p[j + 4] = (unsigned char)((scale & 15) | (minimum & 15) << 4);
    p[j - 4] = (unsigned char)(p[j - 4] | (scale >> 4) << 6);
    p[j] = (unsigned char)(p[j] | (minimum >> 4) << 6);
}

static inline unsigned gguf_scale_4(const unsigned char *p, unsigned j)
{
    return j < 4 ? p[j] & 63 : (p[j + 4] & 15) | (unsigned)p[j - 4] >> 6 << 4;
}
static inline unsigned gguf_minimum_4(const unsigned char *p, unsigned j)
{
    return j < 4 ? p[j + 4] & 63 : (unsigned)p[j + 4] >> 4 | (unsigned)p[j] >> 6 << 4;
}

/* Q3_K: halves of 8 bytes have the low 4 bits, and 4 bytes the high ones. The bytes are 0 before. */
static inline void gguf_store_scale_3(unsigned char *p, unsigned j, unsigned scale)
{
    p[j % 8] = (unsigned char)(p[j % 8] | (scale & 15) << 4 * (j / 8));
    p[8 + j % 4] = (unsigned char)(p[8 + j % 4] | (scale >> 4) << 2 * (j / 4));
}

static inline int gguf_scale_3(const unsigned char *p, unsigned j)
{
    return (int)((p[j % 8] >> 4 * (j / 8) & 15) | (p[8 + j % 4] >> 2 * (j / 4) & 3) << 4) - 32;
}

/* IQ4_XS: a word has the high 2 bits, four bytes the low 4 bits. The bytes are 0 before. */
static inline void gguf_store_scale_xs(unsigned char *p, unsigned j, unsigned scale)
{
    p[2 + j / 2] = (unsigned char)(p[2 + j / 2] | (scale & 15) << 4 * (j % 2));
    p[j / 4] = (unsigned char)(p[j / 4] | (scale >> 4) << 2 * (j % 4));
}

static inline int gguf_scale_xs(const unsigned char *p, unsigned j)
{
    return (int)((p[2 + j / 2] >> 4 * (j % 2) & 15) | (p[j / 4] >> 2 * (j % 4) & 3) << 4) - 32;
}

/* Half of a power of 2: magnitudes of e2m1 are doubled. */
static inline float gguf_half_of_e8m0(uint8_t e)
{
    return float_of_bits(e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23);
}

/* Its inverse, for powers of 2 from 2^-126 on. */
static inline uint8_t gguf_e8m0_of_half(float half) { return (uint8_t)((bits_of_float(half) >> 23) + 1); }

/* The power of 2 below log2 of the magnitude, which is rounded to float, less 2: just below powers of 2 it is the next
 * one. */
static inline uint8_t gguf_e8m0_of_largest(float largest)
{
    if (!(largest > 0))
        return 0;
    const float normal = largest < 0x1p-126f ? largest * 0x1p24f : largest;
    const int exponent = (int)(bits_of_float(normal) >> 23) - (largest < 0x1p-126f ? 24 : 0) - 127;
    const double below = (double)(0x1000000 - (int)(bits_of_float(normal) & 0x7fffff) - 0x800000) * 0x1p-24;
    const double log2 = (double)(exponent + 1) - below * (1 + below / 2) * 1.4426950408889634;
    return (uint8_t)(exponent + (below < 0x1p-8 && (float)log2 == (float)(exponent + 1)) + 125);
}

/* Half of an unsigned e4m3. */
static inline float gguf_half_of_e4m3(uint8_t code)
{
    const float subnormal = (float)(code & 7) * 0x1p-10f;
    return code >> 3 ? float_of_bits((uint32_t)((code >> 3) + 119) << 23 | (uint32_t)(code & 7) << 20) : subnormal;
}

/* Its inverse. */
static inline uint8_t gguf_e4m3_of_half(float half)
{
    const uint32_t bits = bits_of_float(half);
    return (uint8_t)(half < 0x1p-7f ? (uint32_t)(half * 0x1p10f) : ((bits >> 23) - 119) << 3 | (bits >> 20 & 7));
}

/* The nearest one to a scale from 0 on; ties go up. In ggml all from 248 on are 448. */
static inline uint8_t gguf_e4m3_of(float scale)
{
    if (!(scale > 0))
        return 0;
    const uint32_t bits = bits_of_float(scale);
    const int code = (int)((bits >> 20) + (bits >> 19 & 1)) - (120 << 3);
    if (code >= 0x78)
        return 0x7e;
    if (bits >> 23 > 120)
        return (uint8_t)code;
    const int steps = (int)(scale * 512 + 0.5f);
    return (uint8_t)(steps > 7 ? 7 : steps);
}

/* The scale of each run of a block of several runs or without f16 scales, and what is subtracted. */
static inline void gguf_run_scales(const struct gguf_type *type, const unsigned char *block, float *scale,
                                   float *minimum)
{
    const unsigned char *const p = block + (type->scales_at < 0 ? 0 : type->scales_at);
    const float d = type->scale_at < 0 ? 1 : float_of_f16(gguf_load16(block + type->scale_at));
    const float m = type->minimum_at < 0 ? 0 : float_of_f16(gguf_load16(block + type->minimum_at));
    const unsigned runs = type->elements / type->run;
    for (unsigned j = 0; j < runs; j++) {
        minimum[j] = 0;
        switch ((enum gguf_scales)type->scales) {
        case GGUF_SCALES_NONE:
            scale[j] = d;
            minimum[j] = -m;
            break;
        case GGUF_SCALES_NIBBLES:
            scale[j] = d * (float)(p[j] & 15);
            minimum[j] = m * (float)(p[j] >> 4);
            break;
        case GGUF_SCALES_3:
            scale[j] = d * (float)gguf_scale_3(p, j);
            break;
        case GGUF_SCALES_4:
            scale[j] = d * (float)gguf_scale_4(p, j);
            minimum[j] = m * (float)gguf_minimum_4(p, j);
            break;
        case GGUF_SCALES_BYTES:
            scale[j] = d * (float)(int8_t)p[j];
            break;
        case GGUF_SCALES_XS:
            scale[j] = d * (float)gguf_scale_xs(p, j);
            break;
        case GGUF_SCALES_E8M0:
            scale[j] = gguf_half_of_e8m0(p[j]);
            break;
        case GGUF_SCALES_E4M3:
            scale[j] = gguf_half_of_e4m3(p[j]);
            break;
        }
    }
}

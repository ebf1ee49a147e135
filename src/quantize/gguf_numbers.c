/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "quantize/gguf_numbers.h"

#include "number/gguf_scales.h"

/* Bits of codes that lie side by side in bytes; see struct gguf_plane. Compilers make vectors of the inner loop. */
static void add_plane(const struct gguf_plane *plane, const unsigned char *restrict block, size_t n,
                      unsigned char *restrict codes)
{
    const size_t each = (size_t)(8 / plane->bits), apart = plane->apart;
    const unsigned mask = (1U << plane->bits) - 1, shift = plane->shift;
    const unsigned char *restrict from = block + plane->at;
    for (size_t g = 0; g < n; g += apart * each, from += apart)
        for (size_t k = 0; k < each; k++, codes += apart) {
            const unsigned down = (unsigned)k * plane->bits;
            for (size_t i = 0; i < apart; i++)
                codes[i] = (unsigned char)(codes[i] | (from[i] >> down & mask) << shift);
        }
}

/* The same plane from codes. */
static void put_plane(const struct gguf_plane *plane, const unsigned char *codes, size_t n, unsigned char *block)
{
    const size_t each = (size_t)(8 / plane->bits), apart = plane->apart;
    const unsigned mask = (1U << plane->bits) - 1;
    for (size_t b = 0; b < n / each; b++) {
        const size_t first = apart == 1 ? b * each : b / apart * apart * each + b % apart;
        unsigned byte = 0;
        for (size_t k = 0; k < each; k++)
            byte |= (codes[first + k * apart] >> plane->shift & mask) << k * plane->bits;
        block[plane->at + b] = (unsigned char)byte;
    }
}

/* A byte is a fraction of 256 whose first digits of base 3 are the codes; see store_trits(). */
static void trits(const unsigned char *block, unsigned char *codes)
{
    static const uint8_t part[3][3] = {{32, 5, 160}, {16, 5, 80}, {4, 4, 16}}; /* apart, digits, codes */
    for (size_t p = 0; p < 3; codes += part[p][2], p++)
        for (size_t i = 0; i < part[p][0]; i++) {
            unsigned fraction = *block++;
            for (size_t k = 0; k < part[p][1]; k++) {
                codes[i + k * part[p][0]] = (unsigned char)(fraction * 3 >> 8);
                fraction = fraction * 3 & 255;
            }
        }
}

void qobs_gguf_codes(const struct gguf_type *type, const unsigned char *block, unsigned char *codes)
{
    memset(codes, 0, type->elements);
    if (type->code == GGUF_CODE_TRITS)
        trits(block, codes);
    for (const struct gguf_plane *p = type->plane; p < type->plane + 2 && p->bits > 0; p++)
        add_plane(p, block, type->elements, codes);
}

void qobs_gguf_put_codes(const struct gguf_type *type, const unsigned char *codes, unsigned char *block)
{
    for (const struct gguf_plane *p = type->plane; p < type->plane + 2 && p->bits > 0; p++)
        put_plane(p, codes, type->elements, block);
}

float qobs_gguf_number(const struct gguf_type *type, unsigned char code)
{
    switch ((enum gguf_code)type->code) {
    case GGUF_CODE_SIGN:
        return (float)(2 * code - 1);
    case GGUF_CODE_CODEBOOK:
        return (float)qobs_iq4_numbers[code];
    case GGUF_CODE_E2M1:
        return (float)(code & 8 ? -qobs_e2m1_doubled[code & 7] : qobs_e2m1_doubled[code & 7]);
    default:
        return type->plane[0].bits == 8 ? (float)(int8_t)code : (float)(code - type->low);
    }
}

static void copied(const struct gguf_type *type, const unsigned char *restrict from, size_t n, float *restrict to)
{
    if (type->code == GGUF_CODE_F32)
        for (size_t i = 0; i < n; i++)
            to[i] = float_of_bits(gguf_load16(from + 4 * i) | (uint32_t)gguf_load16(from + 4 * i + 2) << 16);
    else if (type->code == GGUF_CODE_BF16)
        for (size_t i = 0; i < n; i++)
            to[i] = float_of_bf16(gguf_load16(from + 2 * i));
    else
        for (size_t i = 0; i < n; i++)
            to[i] = float_of_f16(gguf_load16(from + 2 * i));
}

/* The numbers of a run without what is subtracted: integers are converted, others looked up. */
static void run_numbers(const struct gguf_type *type, const float *numbers, const unsigned char *restrict codes,
                        float scale, float *restrict to)
{
    const size_t n = type->run;
    const bool integers = type->code != GGUF_CODE_SIGN && type->code != GGUF_CODE_CODEBOOK &&
                          type->code != GGUF_CODE_E2M1 && type->plane[0].bits != 8;
    const int low = type->low;
    if (integers)
        for (size_t i = 0; i < n; i++)
            to[i] = scale * (float)(codes[i] - low);
    else
        for (size_t i = 0; i < n; i++)
            to[i] = scale * numbers[codes[i]];
}

static void block_numbers(const struct gguf_type *type, const float *numbers, const unsigned char *block, float *to)
{
    float scale[GGUF_MOST_RUNS], minimum[GGUF_MOST_RUNS];
    unsigned char codes[GGUF_MOST_ELEMENTS];
    gguf_run_scales(type, block, scale, minimum);
    qobs_gguf_codes(type, block, codes);
    for (size_t r = 0, i = 0; i < type->elements; r++, i += type->run) {
        run_numbers(type, numbers, codes + i, scale[r], to + i);
        for (size_t k = i; type->minimum_at >= 0 && k < i + type->run; k++)
            to[k] -= minimum[r];
    }
}

void qobs_gguf_numbers(const struct gguf_type *type, const unsigned char *blocks, size_t n, float *to)
{
    float numbers[256];
    if (type->elements == 1) {
        copied(type, blocks, n, to);
        return;
    }
    for (size_t c = 0; c < (type->plane[0].bits == 8 ? 256U : type->top + 1U); c++)
        numbers[c] = qobs_gguf_number(type, (unsigned char)c);
    for (size_t b = 0; b < n; b++)
        block_numbers(type, numbers, blocks + b * type->bytes, to + b * type->elements);
}

bool qobs_gguf_overflows(const struct gguf_type *type, const unsigned char *block)
{
    const unsigned exponent = type->code == GGUF_CODE_BF16 ? 0x7f80 : 0x7c00;
    return (type->scale_at >= 0 && (gguf_load16(block + type->scale_at) & exponent) == exponent) ||
           (type->minimum_at >= 0 && (gguf_load16(block + type->minimum_at) & exponent) == exponent);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rows on which searches for scales differ, the same numbers as tests/gguf_judge.py makes: bits of a counter, and
 * operations of double that are exact or rounded once. */
#ifndef QOBS_TEST_GGUF_ROWS_H
#define QOBS_TEST_GGUF_ROWS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "number/number.h"

static inline uint64_t gguf_bits(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

enum { GGUF_KINDS = 21, GGUF_WEIGHTS = 4 };

/* u: from 0 up to below 1; g: the sum of four such numbers, about 0. */
static inline double gguf_number(int kind, uint64_t i, double u, double g, unsigned more)
{
    switch (kind) {
    case 0: /* outliers; BF16 */
        return (double)float_of_bf16(bf16_of_float((float)(more % 1024 == 0 ? g * 0.4 : g * 0.02)));
    case 1:
        return g;
    case 2:
        return u - 0.3;
    case 3:
        return i & 4096 ? -0.0 : 0.0;
    case 4: /* constant blocks */
        return (double)((int)(i / 256 % 7) - 3);
    case 5:
        return -1000 - u / 1024;
    case 6:
        return 1000 + u / 128;
    case 7: /* sparse */
        return more % 16 ? 0 : g;
    case 8:
        return ldexp(g, -66);
    case 9: /* subnormal */
        return ldexp(g, -136);
    case 10:
        return ldexp(g, 100);
    case 11:
        return ldexp(g, 125);
    case 12: /* mixed magnitudes */
        return ldexp(g, (int)(more % 80) - 40);
    case 13: /* ties */
        return floor(3 * g + 0.5);
    case 14: /* two values */
        return more % 2 ? 0.25 : -0.75;
    case 15: /* zero blocks among others */
        return i / 32 % 3 == 1 || i / 512 % 5 == 2 ? 0 : g;
    case 16: /* one in a block */
        return i % 32 == i / 32 % 32 ? g : 0;
    case 17: /* F16 */
        return (double)float_of_f16(f16_of_float((float)(g / 16)));
    case 18: /* heavy tails */
        return g / (0x1p-10 + u * u);
    case 19: /* constants with a step */
        return -5 - (i % 64 == 3 ? u : 0);
    default: /* just below powers of 2, and at them */
        return ldexp(more % 2 ? 1 : 1 - ldexp((double)(more / 2 % 8), -24), (int)(i / 32 % 61) - 30);
    }
}

static inline void gguf_fill(float *x, size_t n, int kind)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t z = gguf_bits(i + ((uint64_t)kind << 40)), more = gguf_bits(z) >> 40;
        const uint64_t sum = (z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48);
        x[i] =
            (float)gguf_number(kind, i, (double)(z >> 11) * 0x1p-53, ((double)sum - 131070) * 0x1p-15, (unsigned)more);
    }
}

/* Wide, ones, some zeros, whole blocks of zeros. */
static inline void gguf_fill_importance(float *q, size_t n, int kind)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t z = gguf_bits(i + ((uint64_t)(kind + 100) << 40));
        const double u = (double)(z >> 11) * 0x1p-53;
        q[i] = (float)(kind == 0   ? ldexp(1 + u, (int)(z & 15) - 8)
                       : kind == 1 ? 1
                       : kind == 2 ? ((z & 3) == 0 ? 0 : u / 1024)
                                   : (i % 512 < 256 ? 0 : u));
    }
}

/* FNV-1a. */
static inline uint64_t gguf_hash(const unsigned char *p, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

#endif

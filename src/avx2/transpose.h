/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Transposition of tiles in registers, for templates/indexed.inl.h: r[i] has in part p the row p * TILE + i, and
 * afterwards r[c] the column c of all rows in their order. Elements are interleaved within 128 bits first, then the
 * 128-bit lanes change places. */
#pragma once

#include "avx2/vec.h"

/* 16 rows of 16 elements do not fit the registers, two halves of 8 vectors do. */
#define VEC_PARTS16 2
#define VEC_PARTS32 1
#define VEC_PARTS64 1

/* The lower (p = 0) or the upper halves of two vectors. */
static inline vec vec_halves16(vec a, vec b, int p)
{
    return p == 0 ? _mm256_permute2x128_si256(a, b, 0x20) : _mm256_permute2x128_si256(a, b, 0x31);
}

/* Unused: there is one part. */
static inline vec vec_halves32(vec a, vec b, int p) { return (void)b, (void)p, a; }
static inline vec vec_halves64(vec a, vec b, int p) { return (void)b, (void)p, a; }

/* Interleaves n vectors that already hold elements of `done` rows side by side, `bits` wide together: pairs become
 * twice as wide. */
static inline __attribute__((always_inline)) void vec_interleave(int bits, int done, int n, vec *r)
{
    _Pragma("GCC unroll 8") for (int b = 0; b < n; b += 2 * done)
    {
        vec t[8];
        _Pragma("GCC unroll 8") for (int j = 0; j < done; j++)
        {
            const vec a = r[b + j], c = r[b + done + j];
            t[2 * j] = bits == 16   ? _mm256_unpacklo_epi16(a, c)
                       : bits == 32 ? _mm256_unpacklo_epi32(a, c)
                                    : _mm256_unpacklo_epi64(a, c);
            t[2 * j + 1] = bits == 16   ? _mm256_unpackhi_epi16(a, c)
                           : bits == 32 ? _mm256_unpackhi_epi32(a, c)
                                        : _mm256_unpackhi_epi64(a, c);
        }
        _Pragma("GCC unroll 8") for (int j = 0; j < 2 * done; j++) r[b + j] = t[j];
    }
}

/* Two vectors with two rows of lanes, of the columns c and c + n for n vectors. */
static inline __attribute__((always_inline)) void vec_lanes2(int n, vec *r)
{
    _Pragma("GCC unroll 8") for (int c = 0; c < n; c++)
    {
        const vec a = r[c], b = r[n + c];
        r[c] = _mm256_permute2x128_si256(a, b, 0x20);
        r[n + c] = _mm256_permute2x128_si256(a, b, 0x31);
    }
}

static inline __attribute__((always_inline)) void vec_transpose16(vec *r)
{
    vec_interleave(16, 1, 8, r);
    vec_interleave(32, 2, 8, r);
    vec_interleave(64, 4, 8, r);
}

static inline __attribute__((always_inline)) void vec_transpose32(vec *r)
{
    vec_interleave(32, 1, 8, r);
    vec_interleave(64, 2, 8, r);
    vec_lanes2(4, r);
}

static inline __attribute__((always_inline)) void vec_transpose64(vec *r)
{
    vec_interleave(64, 1, 4, r);
    vec_lanes2(2, r);
}

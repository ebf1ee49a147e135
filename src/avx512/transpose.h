/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Transposition of tiles in registers, for templates/indexed.inl.h: r[i] has in part p the row p * TILE + i, and
 * afterwards r[c] the column c of all rows in their order. Elements are interleaved within 128 bits first, then the
 * 128-bit lanes change places. */
#pragma once

#include "avx512/vec.h"

/* 32 rows of 32 elements do not fit the registers, two halves of 16 vectors do. */
#define VEC_PARTS16 2
#define VEC_PARTS32 1
#define VEC_PARTS64 1

/* The lower (p = 0) or the upper halves of two vectors. */
static inline vec vec_halves16(vec a, vec b, int p)
{
    return p == 0 ? _mm512_inserti64x4(a, _mm512_castsi512_si256(b), 1) : _mm512_shuffle_i64x2(a, b, 0xee);
}

/* Unused: there is one part. */
static inline vec vec_halves32(vec a, vec b, int p) { return (void)b, (void)p, a; }
static inline vec vec_halves64(vec a, vec b, int p) { return (void)b, (void)p, a; }

/* Interleaves n vectors that already hold elements of `done` rows side by side, `bits` wide together: pairs become
 * twice as wide. */
static inline __attribute__((always_inline)) void vec_interleave(int bits, int done, int n, vec *r)
{
    _Pragma("GCC unroll 16") for (int b = 0; b < n; b += 2 * done)
    {
        vec t[16];
        _Pragma("GCC unroll 16") for (int j = 0; j < done; j++)
        {
            const vec a = r[b + j], c = r[b + done + j];
            t[2 * j] = bits == 16   ? _mm512_unpacklo_epi16(a, c)
                       : bits == 32 ? _mm512_unpacklo_epi32(a, c)
                                    : _mm512_unpacklo_epi64(a, c);
            t[2 * j + 1] = bits == 16   ? _mm512_unpackhi_epi16(a, c)
                           : bits == 32 ? _mm512_unpackhi_epi32(a, c)
                                        : _mm512_unpackhi_epi64(a, c);
        }
        _Pragma("GCC unroll 16") for (int j = 0; j < 2 * done; j++) r[b + j] = t[j];
    }
}

/* Four vectors with four rows of lanes, of the columns c, c + n, c + 2n and c + 3n for n vectors. */
static inline __attribute__((always_inline)) void vec_lanes4(int n, vec *r)
{
    _Pragma("GCC unroll 16") for (int c = 0; c < n; c++)
    {
        const vec a = _mm512_shuffle_i64x2(r[c], r[n + c], 0x88),
                  b = _mm512_shuffle_i64x2(r[2 * n + c], r[3 * n + c], 0x88);
        const vec d = _mm512_shuffle_i64x2(r[c], r[n + c], 0xdd),
                  e = _mm512_shuffle_i64x2(r[2 * n + c], r[3 * n + c], 0xdd);
        r[c] = _mm512_shuffle_i64x2(a, b, 0x88);
        r[n + c] = _mm512_shuffle_i64x2(d, e, 0x88);
        r[2 * n + c] = _mm512_shuffle_i64x2(a, b, 0xdd);
        r[3 * n + c] = _mm512_shuffle_i64x2(d, e, 0xdd);
    }
}

static inline __attribute__((always_inline)) void vec_transpose16(vec *r)
{
    const vec first = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0), second = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    vec_interleave(16, 1, 16, r);
    vec_interleave(32, 2, 16, r);
    vec_interleave(64, 4, 16, r);
    _Pragma("GCC unroll 16") for (int c = 0; c < 8; c++)
    {
        const vec a = r[c], b = r[8 + c];
        r[c] = _mm512_permutex2var_epi64(a, first, b);
        r[8 + c] = _mm512_permutex2var_epi64(a, second, b);
    }
}

static inline __attribute__((always_inline)) void vec_transpose32(vec *r)
{
    vec_interleave(32, 1, 16, r);
    vec_interleave(64, 2, 16, r);
    vec_lanes4(4, r);
}

static inline __attribute__((always_inline)) void vec_transpose64(vec *r)
{
    vec_interleave(64, 1, 8, r);
    vec_lanes4(2, r);
}

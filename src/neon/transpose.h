/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Transposition of tiles in registers, for templates/indexed.inl.h: r[i] has row i, and afterwards r[c] column c of
 * all rows. */
#pragma once

#include "neon/vec.h"

#define VEC_PARTS16 1
#define VEC_PARTS32 1
#define VEC_PARTS64 1

/* Unused: there is one part. */
static inline vec vec_halves16(vec a, vec b, int p) { return (void)b, (void)p, a; }
static inline vec vec_halves32(vec a, vec b, int p) { return (void)b, (void)p, a; }
static inline vec vec_halves64(vec a, vec b, int p) { return (void)b, (void)p, a; }

static inline vec vec_zip_low(int bits, vec a, vec b)
{
    return bits == 16   ? vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
           : bits == 32 ? vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)))
                        : vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

static inline vec vec_zip_high(int bits, vec a, vec b)
{
    return bits == 16   ? vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
           : bits == 32 ? vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)))
                        : vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

/* Interleaves n vectors that already hold elements of `done` rows side by side, `bits` wide together: pairs become
 * twice as wide. */
static inline __attribute__((always_inline)) void vec_interleave(int bits, int done, int n, vec *r)
{
    _Pragma("GCC unroll 8") for (int b = 0; b < n; b += 2 * done)
    {
        vec t[8];
        _Pragma("GCC unroll 8") for (int j = 0; j < done; j++)
        {
            t[2 * j] = vec_zip_low(bits, r[b + j], r[b + done + j]);
            t[2 * j + 1] = vec_zip_high(bits, r[b + j], r[b + done + j]);
        }
        _Pragma("GCC unroll 8") for (int j = 0; j < 2 * done; j++) r[b + j] = t[j];
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
    vec_interleave(32, 1, 4, r);
    vec_interleave(64, 2, 4, r);
}

static inline __attribute__((always_inline)) void vec_transpose64(vec *r) { vec_interleave(64, 1, 2, r); }

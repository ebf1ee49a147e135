/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Functions whose parameters are constants that choose code, and loops that must not be unrolled. */
#pragma once

#include "base/sanitized.h"

/* Vector kernels are inlined once for each combination of constants. One function with flags at run time gives the
 * same bits and compiles in an eighth (minmax.c of AVX-512) to half (quantize.c) of the time of gcc 12: the scalar
 * kernels are like that, and all kernels of builds for size and for debugging. */
#ifdef QOBS_REFERENCE_KERNELS
#define ALWAYS_INLINE static inline
#else
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#endif

/* Inlined in the reference, too: codes of bf16 took it 1.5 to 1.75 times as long otherwise. */
#define REFERENCE_INLINE static inline __attribute__((always_inline))

/* The same for deep call trees. A sanitizer checks every step; inlined, these checks keep a compiler busy for
 * minutes. */
#ifdef SANITIZED
#define DEEP_INLINE static inline
#else
#define DEEP_INLINE ALWAYS_INLINE
#endif

/* First in each kernel of a table: the upper halves of vector registers are clear when it returns. gcc does that only
 * if it optimizes for speed, and not after every call of a function that is not inlined. */
#if defined(QOBS_REFERENCE_KERNELS) && defined(__AVX__)
static inline void clear_upper_halves(const int *unused)
{
    (void)unused;
    __builtin_ia32_vzeroupper();
}
#define CLEARS_UPPER_HALVES __attribute__((cleanup(clear_upper_halves), unused)) const int upper_halves = 0;
#else
#define CLEARS_UPPER_HALVES
#endif

/* Before a loop of few iterations that is to become vectors: gcc would unroll it first and then find few of them. */
#if defined(__clang__)
#define KEEP_LOOP
#else
#define KEEP_LOOP _Pragma("GCC unroll 1")
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Functions whose parameters are constants that choose code, and loops that must not be unrolled. */
#pragma once

#include "base/sanitized.h"

/* Vector kernels are inlined once for each combination of constants. The scalar kernels are the reference: one
 * function with flags at run time gives the same bits and compiles in a sixth (search.c) to half (quantize.c) of the
 * time of gcc 12. */
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

/* Before a loop of few iterations that is to become vectors: gcc would unroll it first and then find few of them. */
#if defined(__clang__)
#define KEEP_LOOP
#else
#define KEEP_LOOP _Pragma("GCC unroll 1")
#endif

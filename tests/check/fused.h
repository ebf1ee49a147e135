/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The reference of multiply_add. */
#pragma once

#include <math.h>

/* mingw-w64's fmaf rounds twice; the processor's instruction does not. */
#if defined(_WIN32) && defined(__x86_64__)
__attribute__((target("fma"), noinline)) static float fused(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
#else
static inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
#endif

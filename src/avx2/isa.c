/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The avx2 table. Built for the baseline, because usable() runs on every CPU. */
#include "avx2/tuning.h"
#include "kernels/kernels.h"

/* clang does not know the name before 18; every known CPU with AVX2 and FMA has F16C. */
#if defined(__clang__) && __clang_major__ < 18
#define HAS_F16C true
#else
#define HAS_F16C __builtin_cpu_supports("f16c")
#endif

static bool usable(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HAS_F16C;
}

QOBS_KERNEL_TABLE(avx2, "AVX2, FMA, F16C", usable);

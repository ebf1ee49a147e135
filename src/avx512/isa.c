/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The avx512 table. Built for the baseline, because usable() runs on every CPU. A CPU with AVX-512 also has AVX2, so
 * these kernels may call those of the avx2 table. */
#include "avx512/tuning.h"

#include "kernels/kernels.h"
#include "kernels/level1.h"

bool qobs_avx512_has_large_l1(void) { return qobs_l1_kind() == QOBS_L1_LARGE; }

static bool usable(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

QOBS_KERNEL_TABLE(avx512, "AVX-512 F, BW, DQ, VL", usable);

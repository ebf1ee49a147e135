/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The avx512 table of emulated kernels. It replaces src/avx512/isa.c in the build with -Demulate_avx512=true, and
 * its usable() asks for what the emulation is built for. */
#include "kernels/kernels.h"

#define __builtin_cpu_supports(feature) (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#include "avx512/isa.c"

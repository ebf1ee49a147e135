/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "plain.h"

#include <stddef.h>

#if defined(__x86_64__)
extern const struct kernel_table plain_haswell;
#endif
extern const struct kernel_table plain_native;

const struct kernel_table *const plain_tables[] = {
#if defined(__x86_64__)
    &plain_haswell,
#endif
    &plain_native,
    NULL,
};

/* The CPU the benchmarks are built on is the one they run on; haswell is what the AVX2 kernels need. */
bool plain_haswell_usable(void)
{
#if defined(__x86_64__)
    return qobs_kernels_avx2.usable();
#else
    return false;
#endif
}

bool plain_native_usable(void) { return true; }

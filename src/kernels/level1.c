/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "kernels/level1.h"

#include <unistd.h>

enum qobs_l1_kind qobs_l1_kind(void)
{
#ifdef _SC_LEVEL1_DCACHE_SIZE
    const long bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    return bytes <= 0 ? QOBS_L1_UNKNOWN : bytes < 48 << 10 ? QOBS_L1_SMALL : QOBS_L1_LARGE;
#else
    return QOBS_L1_UNKNOWN;
#endif
}

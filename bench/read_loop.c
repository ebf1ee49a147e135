/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The limit: every byte loaded once and or-ed together, as fast as this CPU's widest loads go. Compiled with the widest
 * instruction set's flags; the caller looks first whether it may run. */
#include "read_loop.h"

#include <string.h>

enum { WORDS = 32 }; /* four 512-bit accumulators */

uint64_t read_loop(const void *data, size_t bytes)
{
    typedef uint64_t word __attribute__((aligned(8), may_alias));
    const word *p = data;
    uint64_t sums[WORDS] = {0};
    size_t n = bytes / sizeof *p, i = 0;
    for (; i + WORDS <= n; i += WORDS)
        for (int k = 0; k < WORDS; k++)
            sums[k] |= p[i + (size_t)k];
    for (; i < n; i++)
        sums[0] |= p[i];
    for (int k = 1; k < WORDS; k++)
        sums[0] |= sums[k];
    return sums[0];
}

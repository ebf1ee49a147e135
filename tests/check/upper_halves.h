/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checks that kernels clear the upper halves of vector registers before they return. Otherwise the processor
 * preserves them: SSE code of the caller, which writes lower halves, then waits for the former contents of a
 * register until somebody clears them. */
#ifndef QOBS_CHECK_UPPER_HALVES_H
#define QOBS_CHECK_UPPER_HALVES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sanitized.h"

#if defined(__x86_64__) && !defined(SANITIZED) /* whose own code comes between */
/* The least time of some chains of multiplications, which overlap unless each waits for what the register held. */
static inline uint64_t time_of_sse(void)
{
    static const float ones[4] = {1, 1, 1, 1};
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint32_t times = 100, begin, begin_high, end, end_high;
        __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(begin), "=d"(begin_high));
        __asm__ volatile("1: movups %1, %%xmm1\n\tmulps %%xmm1, %%xmm1\n\tmulps %%xmm1, %%xmm1\n\tmulps %%xmm1, %%xmm1\n\t"
                         "mulps %%xmm1, %%xmm1\n\tdec %0\n\tjnz 1b"
                         : "+r"(times)
                         : "m"(ones)
                         : "xmm1", "cc");
        __asm__ volatile("lfence\n\trdtsc" : "=a"(end), "=d"(end_high));
        const uint64_t t = ((uint64_t)end_high << 32 | end) - ((uint64_t)begin_high << 32 | begin);
        shortest = t < shortest ? t : shortest;
    }
    return shortest;
}

/* Findings about a kernel. */
struct upper_halves {
    const char *isa, *kernel;
    unsigned checks, slow;
};

static inline struct upper_halves *upper_halves_of(const char *isa, const char *kernel)
{
    enum { MOST = 64 };
    static struct upper_halves all[MOST];
    int i = 0;
    while (i < MOST - 1 && all[i].isa && (all[i].isa != isa || all[i].kernel != kernel))
        i++;
    all[i].isa = isa;
    all[i].kernel = kernel;
    return &all[i];
}

/* Right after a kernel; ends the program if it did not. It is the time that tells: halves may be in use though they
 * hold zeros. As the machine may do something else meanwhile, once says nothing, but a quarter of a kernel's calls
 * does. One of 31 calls is looked at, as it takes some microseconds: an odd number, as kernels and the reference take
 * turns. */
static inline void check_upper_halves(const char *isa, const char *kernel)
{
    enum { MIN_SLOW = 8 };
    static unsigned calls;
    if (calls++ % 31 != 0 || !__builtin_cpu_supports("avx"))
        return;
    const uint64_t left = time_of_sse();
    __asm__ volatile("vzeroupper" : : : "memory");
    const uint64_t cleared = time_of_sse();
    struct upper_halves *found = upper_halves_of(isa, kernel);
    found->checks++;
    found->slow += left > 2 * cleared;
    if (found->slow >= MIN_SLOW && found->slow > found->checks / 4) {
        printf("FAIL %s %s: returns with upper halves of vector registers in use, after %u of %u calls SSE code takes twice as long\n", isa,
               kernel, found->slow, found->checks);
        exit(1);
    }
}
#else
static inline void check_upper_halves(const char *isa, const char *kernel)
{
    (void)isa;
    (void)kernel;
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Compiled once for every instruction set, with its flags and -DISA=scalar, avx2, avx512 or neon, and -ffp-contract=fast. */
#include "limits.h"

#define CAT_(a, b) a##_##b
#define CAT(a, b) CAT_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

#if defined(__AVX512F__)
#define VECTOR 64
#elif defined(__AVX2__)
#define VECTOR 32
#else
#define VECTOR 16
#endif
typedef float vec __attribute__((vector_size(VECTOR)));
enum { LANES = VECTOR / sizeof(float), CHAINS = 12, WORDS = 32 /* four 512-bit accumulators */ };

static uint64_t read_loop(const void *data, size_t bytes)
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

static void count_loop(uint32_t *counters, const uint32_t *index, size_t n)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i++) {
        uint32_t at = index[i];
        __asm__("" : "+r"(at)); /* not as vectors */
        counters[at]++;
    }
}

static float multiply_add_loop(size_t n, size_t *done)
{
    vec chain[CHAINS], a, b;
    size_t i = 0;
    float sum = 0;
    for (int k = 0; k < LANES; k++)
        a[k] = 0.5f, b[k] = (float)k;
    __asm__("" : "+m"(a), "+m"(b));
    for (int c = 0; c < CHAINS; c++)
        chain[c] = b;
    for (; i < n; i += CHAINS * LANES) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            chain[c] = chain[c] * a + b;
    }
    for (int c = 0; c < CHAINS; c++)
        for (int k = 0; k < LANES; k++)
            sum += chain[c][k];
    *done = i;
    return sum;
}

extern const struct limits CAT(limits, ISA);
const struct limits CAT(limits, ISA) = {TEXT(ISA), read_loop, count_loop, multiply_add_loop};

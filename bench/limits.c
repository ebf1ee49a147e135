/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Compiled once for every instruction set, with its flags and -DISA=scalar, avx2, avx512 or neon, and -ffp-contract=fast. */
#include "limits.h"

#include <stdbool.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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
typedef int16_t shorts __attribute__((vector_size(VECTOR), aligned(8), may_alias));
#if defined(__AVX512BW__)
#define MAXIMUM(a, b) ((shorts)_mm512_max_epi16((__m512i)(a), (__m512i)(b)))
#define MINIMUM(a, b) ((shorts)_mm512_min_epi16((__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__)
#define MAXIMUM(a, b) ((shorts)_mm256_max_epi16((__m256i)(a), (__m256i)(b)))
#define MINIMUM(a, b) ((shorts)_mm256_min_epi16((__m256i)(a), (__m256i)(b)))
#else
#define MAXIMUM(a, b) ((shorts)(((a) & ((a) > (b))) | ((b) & ~((a) > (b)))))
#define MINIMUM(a, b) ((shorts)(((a) & ((a) < (b))) | ((b) & ~((a) < (b)))))
#endif

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

enum { SIDE = 12, SUMS = 6, WHOLES = 3 }; /* operations side by side, and their chains: registers are left for loads */
struct chains {
    vec sum[SUMS], factor;
    shorts whole[WHOLES], other, most, least;
};

/* Half multiply-adds and half integers, which have more units than those on some processors. */
static inline __attribute__((always_inline)) void operate(struct chains *c)
{
#pragma GCC unroll 12
    for (int k = 0; k < SIDE; k++)
        if (k < SUMS)
            c->sum[k] = c->sum[k] * c->factor + c->factor;
        else if (k < SUMS + WHOLES)
            c->whole[k % WHOLES] += c->other;
        else
            c->whole[k % WHOLES] ^= c->other;
}

/* Four vectors at a time. */
static inline __attribute__((always_inline)) void load_step(struct chains *c, const shorts *from, bool extrema)
{
#pragma GCC unroll 16
    for (int k = 0; k < LIMITS_STEP / VECTOR; k += 4) {
        const shorts a = from[k], b = from[k + 1], d = from[k + 2], e = from[k + 3];
        if (extrema) {
            c->most = MAXIMUM(c->most, MAXIMUM(MAXIMUM(a, b), MAXIMUM(d, e)));
            c->least = MINIMUM(c->least, MINIMUM(MINIMUM(a, b), MINIMUM(d, e)));
        } else {
            c->most |= (a | b) | (d | e);
        }
    }
}

static inline __attribute__((always_inline)) void ask_ahead(const struct limits_work *w, const unsigned char *from,
                                                           const unsigned char *to)
{
    enum { LINE = 64 };
    for (size_t k = 0; k < (w->ahead ? LIMITS_STEP : 0); k += LINE)
        __builtin_prefetch(from + w->ahead + k);
    for (size_t k = 0; k < (w->ahead ? w->written : 0); k += LINE)
        __builtin_prefetch(to + w->ahead + k, 1);
}

static inline __attribute__((always_inline)) uint64_t work(const struct limits_work *w, bool extrema)
{
    const unsigned char *from = w->data;
    unsigned char *to = w->out;
    const size_t done = LIMITS_STEP / VECTOR * (extrema ? 2 : 1), others = w->operations > done ? w->operations - done : 0;
    struct chains unknown = {.sum = {{0}}};
    __asm__("" : "+m"(unknown)); /* values that the compiler does not know */
    struct chains c = unknown;
    for (size_t i = 0, due = 0; i + LIMITS_STEP <= w->bytes; i += LIMITS_STEP) {
        ask_ahead(w, from + i, to);
        load_step(&c, (const shorts *)(from + i), extrema);
        for (due += others; due >= SIDE; due -= SIDE)
            operate(&c);
        for (size_t k = 0; k < w->written; k += VECTOR)
            *(shorts *)to = c.other, to += VECTOR;
    }
    for (int k = 0; k < SUMS; k++)
        c.most |= c.least | (shorts)c.sum[k] | c.whole[k % WHOLES];
    return (uint64_t)(c.most[0] | c.most[VECTOR / 2 - 1]);
}

static uint64_t extrema_loop(const struct limits_work *w) { return work(w, true); }
static uint64_t arithmetic_loop(const struct limits_work *w) { return work(w, false); }

extern const struct limits CAT(limits, ISA);
const struct limits CAT(limits, ISA) = {TEXT(ISA),         read_loop,   count_loop,
                                        multiply_add_loop, extrema_loop, arithmetic_loop};

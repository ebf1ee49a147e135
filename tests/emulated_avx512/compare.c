/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Compares the emulated AVX-512 intrinsics with those of the CPU, on random operands full of special values.
 * Exit status: 0 all are equal, 1 some differ, 77 this CPU lacks AVX-512. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "results.h"

static uint64_t state = 1;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Random bits, or zeros, infinities, NaN of both kinds, denormals and small numbers, as 32 or 64 bits. */
static void fill(unsigned char *x)
{
    static const uint32_t special32[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 0x7f800001,
                                         0xffc12345, 1,          0x807fffff, 0x3f800000, 0xbf800000, 0x4f000000};
    static const uint64_t special64[] = {0,
                                         UINT64_C(1) << 63,
                                         UINT64_C(0x7ff) << 52,
                                         UINT64_C(0xfff) << 52,
                                         (UINT64_C(0x7ff) << 52) + 1,
                                         (UINT64_C(0xfff8) << 48) + 5,
                                         1,
                                         UINT64_C(0x3ff) << 52,
                                         UINT64_C(0x36a) << 52,
                                         UINT64_C(0x47efffffffffffff)};
    const unsigned kind = (unsigned)(next() >> 32) % 4;
    for (size_t n = 0; n < 64; n += 8) {
        uint64_t bits = next();
        const uint32_t halves[2] = {special32[(bits >> 33) % (sizeof special32 / sizeof *special32)],
                                    special32[(bits >> 11) % (sizeof special32 / sizeof *special32)]};
        if (kind == 1)
            memcpy(&bits, halves, sizeof bits);
        else if (kind == 2)
            bits = special64[(bits >> 20) % (sizeof special64 / sizeof *special64)];
        else if (kind == 3)
            bits &= UINT64_C(0x000f000700030001); /* equal lanes are frequent */
        memcpy(x + n, &bits, sizeof bits);
    }
}

int main(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
        printf("skipped: nothing to compare with, this CPU lacks AVX-512\n");
        return 77;
    }
    static struct result emulated[MAX_RESULTS], native[MAX_RESULTS];
    static bool differs[MAX_RESULTS];
    size_t count = 0, failed = 0;
    for (int round = 0; round < 10000; round++) {
        struct operands operands = {.mask = next()};
        fill(operands.a);
        fill(operands.b);
        fill(operands.c);
        count = results_emulated(&operands, emulated);
        if (results_native(&operands, native) != count) {
            printf("0 passed, 1 failed\n");
            return 1;
        }
        for (size_t n = 0; n < count; n++)
            if (!differs[n] && memcmp(emulated[n].bytes, native[n].bytes, emulated[n].size) != 0) {
                differs[n] = true;
                failed++;
                printf("FAIL %s, round %d\n", emulated[n].intrinsic, round);
            }
    }
    printf("%zu passed, %zu failed\n", count - failed, failed);
    return failed ? 1 : 0;
}

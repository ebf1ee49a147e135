/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 fake-quantize; contract and limits in src/quantize.inl.h. */
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "this file needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include <stdbool.h>
#include <stdint.h>

/* Does a store lie behind the loads by a line or so in the low 12 bits of addresses? By these loads are matched with the stores before
 * them, and wait for a store they have nothing to do with; on a Zen 4 those of half a line do not. Decided by the first run. */
static inline bool aliased(const void *x, const void *out)
{
    const uintptr_t behind = ((uintptr_t)out - (uintptr_t)x) % 4096;
    return behind > 32 && behind < 256;
}

#define AVX2_(name) name##_avx2
#define AVX2(name) AVX2_(name)
#define ELSEWHERE(light, name, ...)                                                                                  \
    if ((light) && aliased(x, out)) {                                                                                \
        AVX2(name)(__VA_ARGS__);                                                                                     \
        return;                                                                                                      \
    }

#define ENTRY_(name) name##_avx512
#define ENTRY(name) ENTRY_(name)
#include "templates/quantize.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Results of AVX-512 intrinsics for some operands. results.c is compiled twice, with the emulation and for a CPU
 * that has AVX-512. */
#ifndef QOBS_EMULATED_AVX512_RESULTS_H
#define QOBS_EMULATED_AVX512_RESULTS_H

#include <stddef.h>
#include <stdint.h>

struct operands {
    unsigned char a[64], b[64], c[64];
    uint64_t mask;
};

struct result {
    const char *intrinsic;
    size_t size;
    unsigned char bytes[64];
};

enum { MAX_RESULTS = 256 };

/* Each returns how many results it has written. */
size_t results_emulated(const struct operands *operands, struct result *results);
size_t results_native(const struct operands *operands, struct result *results);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of 8-bit codes that ggml makes of activations (ggml-cpu 0.21, quantize_row_q8_0 and quantize_row_q8_K). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Builds for x86-64 and for Arm64 make other blocks. q8_0 differs in the factor of the elements, 127 / largest and
 * 1 / (largest / 127), and in blocks whose factor is infinite. q8_K differs in the sum of a product and 1.5 * 2^23,
 * which rounds it to an integer: compilers for Arm64 fuse both. */
enum q8_block { Q8_NONE, Q8_0_X86, Q8_0_ARM, Q8_K_X86, Q8_K_ARM };

/* Numbers have the byte order of the machine:
 *   q8_0   scale (F16), 32 codes
 *   q8_K   scale (F32), 256 codes, sums of 16 codes each (int16) */
enum {
    Q8_0_ELEMENTS = 32,
    Q8_0_BYTES = 34,
    Q8_0_CODES = 2, /* bytes before them */
    Q8_K_ELEMENTS = 256,
    Q8_K_BYTES = 292,
    Q8_K_CODES = 4,
    Q8_K_SUMS = 260
};

static inline bool is_q8_k(enum q8_block block) { return block == Q8_K_X86 || block == Q8_K_ARM; }
static inline int64_t q8_elements(enum q8_block block) { return is_q8_k(block) ? Q8_K_ELEMENTS : Q8_0_ELEMENTS; }
static inline int64_t q8_bytes(enum q8_block block) { return is_q8_k(block) ? Q8_K_BYTES : Q8_0_BYTES; }

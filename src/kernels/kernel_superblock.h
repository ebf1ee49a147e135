/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels that make blocks of GGUF types (number/gguf_type.h) of numbers. */
#pragma once

#include "kernels/slot.h"
#include "number/gguf_type.h"

/* Rows without gaps: `rows` rows of `columns` finite elements, a multiple of the elements of a block, become blocks
 * without gaps in out. importance: `columns` finite numbers from 0 on, NULL for none. The bytes are those of ggml built
 * without contraction, also where a scale is beyond f16. A row's blocks do not depend on the other rows.
 *
 * Every float operation is rounded once, in the order of ggml. Integers of floats beyond 2^22 are the low bits of the
 * float's, as there. */
#define QOBS_SUPERBLOCK_ROWS(name)                                                                                     \
    void name(const struct gguf_type *type, enum kernel_dtype dtype, const void *x, size_t rows, size_t columns,       \
              const float *importance, unsigned char *out)

/* Replaces the blocks in out, such as those of superblock_rows, by blocks of less error. The error of a block is the
 * sum of importance * (element - number)^2, with equal ones the sum of squares; it never rises. Importance that is 0 in
 * a block counts as 1. The result has the least error of
 *   all scales                                   blocks of one scale a run: Q4_0, Q5_0, Q8_0, IQ4_NL, NVFP4, MXFP4, ...
 *   all integers for the scale that out has      Q6_K, Q3_K, IQ4_XS
 *   all pairs of integers for both that it has   Q4_K, Q5_K, Q2_K
 * or less. Sums in float decide, so that an error may be larger by 2^-16 of it. */
#define QOBS_SUPERBLOCK_IMPROVE(name) QOBS_SUPERBLOCK_ROWS(name)

#define QOBS_SUPERBLOCK_SLOTS(EACH, with)                                                                              \
    EACH(ONE, superblock_rows, QOBS_SUPERBLOCK_ROWS, with)                                                             \
    EACH(ONE, superblock_improve, QOBS_SUPERBLOCK_IMPROVE, with)

QOBS_SUPERBLOCK_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_SUPERBLOCK(isa) QOBS_SUPERBLOCK_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_SUPERBLOCK)

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

#define QOBS_SUPERBLOCK_SLOTS(EACH, with) EACH(ONE, superblock_rows, QOBS_SUPERBLOCK_ROWS, with)

QOBS_SUPERBLOCK_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_SUPERBLOCK(isa) QOBS_SUPERBLOCK_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_SUPERBLOCK)

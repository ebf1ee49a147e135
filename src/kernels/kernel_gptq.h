/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The kernel of GPTQ: the columns of a block one after the other, the errors of each taken off the later ones. */
#pragma once

#include "kernels/slot.h"
#include "number/quantizer.h"

/* Rows that are taken together, a lane each. */
enum { QOBS_GPTQ_ROWS = 16 };

/* Arrays of floats, column after column of QOBS_GPTQ_ROWS rows. Column k after column k - 1, each operation rounded to
 * float, and those that end in q also to dtype, the type of the scales (F32, BF16 or F16):
 *   q = (round(limit(w / scale + add)) - sub) * scale;  error = (w - q) / factor[k][k]
 *   w of column j -= error * factor[k][j]  for each j from k on
 * round and limit are those of the quantizer. factor: rows factor_stride floats apart, read from k on. */
#define QOBS_GPTQ_BLOCK(name)                                                                                          \
    void name(const struct quantizer *quantizer, qobs_dtype dtype, const float *factor, size_t factor_stride,          \
              size_t columns, const float *scale, const float *add, const float *sub, float *w, float *q,              \
              float *error)

#define QOBS_GPTQ_SLOTS(EACH, with) EACH(ONE, gptq_block, QOBS_GPTQ_BLOCK, with)

QOBS_GPTQ_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_GPTQ(isa) QOBS_GPTQ_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_GPTQ)

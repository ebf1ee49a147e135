/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes in blocks of GGUF types with a smaller error d H d^T than those that are nearest, by the descent of
 * optimal/code_descent.h. The bytes of scales and minima stay. */
#pragma once

#include "optimal/code_descent.h"

struct block_descent {
    const struct gguf_type *type;
    const struct view *value;   /* (rows, columns), finite */
    unsigned char *blocks;      /* of all rows without gaps; receive the result */
    struct code_descent common; /* runtime, kernels, gram, hessian, symmetric, tokens, passes */
};

/* True if codes of the type are numbers that a descent can choose: integers, those of IQ4, or e2m1. */
bool qobs_block_codes_descend(const struct gguf_type *type);

/* qobs_descend_codes for blocks, with its errors. */
int qobs_descend_blocks(const struct block_descent *b, struct code_descent_result *result, qobs_error *error);

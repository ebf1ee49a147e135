/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ggml's blocks of activations, made of rows whose ranges are known. */
#pragma once

#include "kernels/kernels.h"

struct q8_rows {
    enum q8_block block;
    qobs_dtype dtype;
    int64_t element; /* bytes */
    qobs_q8_blocks_fn *kernel;
};

/* Rows of whole blocks; strides are bytes from row to row. */
struct q8_matrix {
    const unsigned char *x;
    unsigned char *out;
    int64_t rows, blocks; /* of a row */
    int64_t x_stride, out_stride;
};

/* Writes the blocks of finite elements. max: of each block the largest magnitude (q8_0) or the maximum (q8_K), which
 * becomes the first element of the largest magnitude, and room for 15 more, which become 0. min: of q8_K the
 * minimum. */
void qobs_q8_rows(const struct q8_rows *q, const struct q8_matrix *m, const unsigned char *min, unsigned char *max);

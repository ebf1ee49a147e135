/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes against the numbers of the original. */
#pragma once

#include "qobs/format.h"
#include "qobs/stateless.h"
#include "schemes/quant_args.h"

/* Rows of a matrix: their stored codes and qparams, scales in F32 and zero points in I8, and the numbers that they
 * stand for. */
struct nearest_rows {
    const struct quant_args *args;
    const qobs_format *grid;            /* NULL: codes are integers */
    const qobs_dequantize_args *stored; /* codes, qparams and configuration */
    const qobs_tensor *original;
    int64_t block[2]; /* rows and columns of a qparam */
    int64_t block_qparams;
    unsigned char *codes; /* receives those that quantize makes of the original, a byte each */
};

/* Adds to *further the number of codes that are further from the original than those of quantize. Codes that differ and
 * are as near do not count, such as those of who divides without rounding. Fails as qobs_quantize does. */
int nearest_codes_count(const struct nearest_rows *rows, uint64_t *further, qobs_error *error);

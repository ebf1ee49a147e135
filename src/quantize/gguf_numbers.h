/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The numbers that blocks of GGUF types stand for. */
#pragma once

#include <stddef.h>

#include "number/gguf_type.h"

/* The numbers of n blocks. */
void qobs_gguf_numbers(const struct gguf_type *type, const unsigned char *blocks, size_t n, float *to);

/* The codes of a block, a byte each, and the number of a code, which the scale of its run multiplies. */
void qobs_gguf_codes(const struct gguf_type *type, const unsigned char *block, unsigned char *codes);
float qobs_gguf_number(const struct gguf_type *type, unsigned char code);

/* Stores codes in a block, whose scales stay; not those of trits. */
void qobs_gguf_put_codes(const struct gguf_type *type, const unsigned char *codes, unsigned char *block);

/* True if a scale or minimum of the block is infinite or NaN. */
bool qobs_gguf_overflows(const struct gguf_type *type, const unsigned char *block);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The numbers that blocks of GGUF types stand for. */
#pragma once

#include <stddef.h>

#include "number/gguf_type.h"

/* The numbers of a block. */
void qobs_gguf_numbers(const struct gguf_type *type, const unsigned char *block, float *to);

/* True if a scale or minimum of the block is infinite or NaN. */
bool qobs_gguf_overflows(const struct gguf_type *type, const unsigned char *block);

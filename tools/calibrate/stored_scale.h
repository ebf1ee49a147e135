/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales in the form that compressed-tensors stores: e4m3 numbers and powers of two as 8-bit codes, others
 * unchanged. */
#ifndef QOBS_TOOLS_STORED_SCALE_H
#define QOBS_TOOLS_STORED_SCALE_H

#include "program.h"

/* Returns the dtype in the file for scales of this configuration. `observed` is the dtype of the observer's result. */
const char *stored_dtype(const qobs_config *config, qobs_dtype observed);

/* Encodes `size` bytes of scales in place and returns the number of bytes of the encoded scales. */
size_t stored_encode(const char *stored, qobs_dtype observed, void *scales, size_t size);

#endif

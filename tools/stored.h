/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales as compressed-tensors' checkpoints store them: e4m3 numbers and powers of two as their 8-bit codes, others as they
 * are. */
#ifndef QOBS_TOOLS_STORED_H
#define QOBS_TOOLS_STORED_H

#include "program.h"

/* The dtype in the file for the scales of such an observer, which are numbers of `observed`. */
const char *stored_dtype(const qobs_config *config, qobs_dtype observed);

/* Encodes `size` bytes of scales in place; returns the bytes that are left. */
size_t stored_encode(const char *stored, qobs_dtype observed, void *scales, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Streams of codes of 1 to 8 bits: code k is at bits [k * bits, (k + 1) * bits), low bits first. Plain C; long rows
 * of 4 bits have a kernel, pack_pairs. */
#pragma once

#include <stddef.h>

/* Packs n codes, each plus `offset`, into `bytes` bytes; those behind the last code become 0. */
void qobs_pack_row(const unsigned char *codes, size_t n, int bits, int offset, unsigned char *packed, size_t bytes);

/* Unpacks n codes, each minus `offset`. */
void qobs_unpack_row(const unsigned char *packed, size_t n, int bits, int offset, unsigned char *codes);

/* Packs each column as a stream in 32-bit words; word w of column c is word w * columns + c, in little-endian order. */
void qobs_pack_columns(const unsigned char *codes, size_t rows, size_t columns, int bits, int offset,
                       unsigned char *packed);
void qobs_unpack_columns(const unsigned char *packed, size_t rows, size_t columns, int bits, int offset,
                         unsigned char *codes);

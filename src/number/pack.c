/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Eight codes fill `bits` bytes exactly, so that a row is whole groups of eight and a tail. */
#include "number/pack.h"

#include <stdint.h>
#include <string.h>

/* Packs 8 codes into the low 8 * bits bits of a word. */
static inline uint64_t pack_eight(const unsigned char *codes, int bits, unsigned offset, unsigned mask)
{
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word |= (uint64_t)((codes[i] + offset) & mask) << bits * i;
    return word;
}

/* 4 bits: pairs of bytes become a byte, in a loop that a compiler can vectorize. */
static void pack_nibbles(const unsigned char *codes, size_t pairs, unsigned offset, unsigned char *packed)
{
    for (size_t i = 0; i < pairs; i++)
        packed[i] = (unsigned char)(((codes[2 * i] + offset) & 15) | ((codes[2 * i + 1] + offset) & 15) << 4);
}

void qobs_pack_row(const unsigned char *codes, size_t n, int bits, int offset, unsigned char *packed, size_t bytes)
{
    const unsigned mask = (1u << bits) - 1, add = (unsigned)offset;
    const size_t whole = n / 8 * 8;
    size_t at = 0;
    if (bits == 4) {
        pack_nibbles(codes, whole / 2, add, packed);
        at = whole / 2;
    } else if (bits == 8) {
        for (; at < whole; at++)
            packed[at] = (unsigned char)(codes[at] + add);
    } else {
        for (size_t i = 0; i < whole; i += 8) {
            const uint64_t word = pack_eight(codes + i, bits, add, mask);
            for (int b = 0; b < bits; b++)
                packed[at++] = (unsigned char)(word >> 8 * b);
        }
    }
    uint64_t tail = 0;
    for (size_t i = whole; i < n; i++)
        tail |= (uint64_t)((codes[i] + add) & mask) << (size_t)bits * (i - whole);
    for (; at < bytes; at++, tail >>= 8)
        packed[at] = (unsigned char)tail;
}

static inline unsigned code_at(const unsigned char *packed, size_t bit, int bits, unsigned mask)
{
    const size_t byte = bit / 8, shift = bit % 8;
    unsigned word = packed[byte];
    if (shift + (size_t)bits > 8)
        word |= (unsigned)packed[byte + 1] << 8;
    return word >> shift & mask;
}

void qobs_unpack_row(const unsigned char *packed, size_t n, int bits, int offset, unsigned char *codes)
{
    const unsigned mask = (1u << bits) - 1, subtract = (unsigned)offset;
    if (bits == 4) {
        for (size_t i = 0; i < n / 2; i++) {
            codes[2 * i] = (unsigned char)((packed[i] & 15) - subtract);
            codes[2 * i + 1] = (unsigned char)((packed[i] >> 4) - subtract);
        }
        if (n % 2)
            codes[n - 1] = (unsigned char)((packed[n / 2] & 15) - subtract);
        return;
    }
    for (size_t i = 0; i < n; i++)
        codes[i] = (unsigned char)(code_at(packed, i * (size_t)bits, bits, mask) - subtract);
}

/* ---- Columns ----------------------------------------------------------------------------------------------------- */

void qobs_pack_columns(const unsigned char *codes, size_t rows, size_t columns, int bits, int offset,
                       unsigned char *packed)
{
    const unsigned mask = (1u << bits) - 1;
    memset(packed, 0, (rows * (size_t)bits + 31) / 32 * columns * 4);
    for (size_t r = 0; r < rows; r++) {
        const size_t bit = r * (size_t)bits;
        for (size_t c = 0; c < columns; c++) {
            const unsigned code = (codes[r * columns + c] + (unsigned)offset) & mask;
            for (size_t b = 0; b < (size_t)bits;) {
                const size_t at = bit + b, shift = at % 8,
                             step = 8 - shift < (size_t)bits - b ? 8 - shift : (size_t)bits - b;
                packed[(at / 32 * columns + c) * 4 + at % 32 / 8] |= (unsigned char)(code >> b << shift);
                b += step;
            }
        }
    }
}

void qobs_unpack_columns(const unsigned char *packed, size_t rows, size_t columns, int bits, int offset,
                         unsigned char *codes)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            unsigned code = 0;
            for (size_t b = 0; b < (size_t)bits; b++) {
                const size_t at = r * (size_t)bits + b;
                code |= (unsigned)(packed[(at / 32 * columns + c) * 4 + at % 32 / 8] >> at % 8 & 1) << b;
            }
            codes[r * columns + c] = (unsigned char)(code - (unsigned)offset);
        }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Eight codes fill `bits` bytes exactly, so that a row is whole groups of eight and a tail. */
#include "number/pack.h"

#include <stdint.h>
#include <string.h>

#define EACH_BYTE UINT64_C(0x0101010101010101)

/* Eight bytes as a word, the first one lowest. */
static inline uint64_t load_word(const unsigned char *from, size_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, from, bytes);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline void store_word(unsigned char *to, uint64_t word, size_t bytes)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    memcpy(to, &word, bytes);
}

/* Sums of bytes without carries between them. */
static inline uint64_t add_bytes(uint64_t a, uint64_t b)
{
    const uint64_t high = 0x80 * EACH_BYTE;
    return ((a & ~high) + (b & ~high)) ^ ((a ^ b) & high);
}

/* The low `bits` bits of each byte, side by side: neighbours move together in fields of 16, 32 and 64 bits. */
static inline uint64_t pack_eight(uint64_t codes, int bits)
{
    uint64_t w = codes & ((UINT64_C(1) << bits) - 1) * EACH_BYTE;
    w = (w & UINT64_C(0x00ff00ff00ff00ff)) | (w & UINT64_C(0xff00ff00ff00ff00)) >> (8 - bits);
    w = (w & UINT64_C(0x0000ffff0000ffff)) | (w & UINT64_C(0xffff0000ffff0000)) >> 2 * (8 - bits);
    return (w & UINT64_C(0x00000000ffffffff)) | (w & UINT64_C(0xffffffff00000000)) >> 4 * (8 - bits);
}

/* The inverse. */
static inline uint64_t unpack_eight(uint64_t w, int bits)
{
    const uint64_t one = (UINT64_C(1) << bits) - 1, two = (UINT64_C(1) << 2 * bits) - 1,
                   four = (UINT64_C(1) << 4 * bits) - 1;
    w = (w & four) | (w & four << 4 * bits) << 4 * (8 - bits);
    w = (w & two * UINT64_C(0x0000000100000001)) | (w & (two << 2 * bits) * UINT64_C(0x0000000100000001))
                                                       << 2 * (8 - bits);
    return (w & one * UINT64_C(0x0001000100010001)) | (w & (one << bits) * UINT64_C(0x0001000100010001)) << (8 - bits);
}

static inline void pack_words(const unsigned char *codes, size_t words, int bits, unsigned offset,
                              unsigned char *packed)
{
    for (size_t i = 0; i < words; i++)
        store_word(packed + i * (size_t)bits,
                   pack_eight(add_bytes(load_word(codes + 8 * i, 8), offset * EACH_BYTE), bits), (size_t)bits);
}

/* Reads whole words as long as they lie inside, since bytes of odd counts go through memory. */
static inline void unpack_words(const unsigned char *packed, size_t words, int bits, unsigned subtract,
                                unsigned char *codes)
{
    const uint64_t minus = (-(uint64_t)subtract & 0xff) * EACH_BYTE;
    const size_t step = (size_t)bits;
    size_t i = 0;
    for (; i * step + 8 <= words * step; i++)
        store_word(codes + 8 * i, add_bytes(unpack_eight(load_word(packed + i * step, 8), bits), minus), 8);
    for (; i < words; i++)
        store_word(codes + 8 * i, add_bytes(unpack_eight(load_word(packed + i * step, step), bits), minus), 8);
}

/* Constant widths, because shifts and stores of a known size are single instructions. */
#define EACH_WIDTH(WIDTH) WIDTH(1) WIDTH(2) WIDTH(3) WIDTH(5) WIDTH(6) WIDTH(7)

static void pack_whole(const unsigned char *codes, size_t words, int bits, unsigned offset, unsigned char *packed)
{
    switch (bits) {
#define WIDTH(bits)                                                                                                    \
    case bits:                                                                                                         \
        pack_words(codes, words, bits, offset, packed);                                                                \
        break;
        EACH_WIDTH(WIDTH)
        WIDTH(4)
#undef WIDTH
    default:
        for (size_t i = 0; i < 8 * words; i++)
            packed[i] = (unsigned char)(codes[i] + offset);
        break;
    }
}

void qobs_pack_row(const unsigned char *codes, size_t n, int bits, int offset, unsigned char *packed, size_t bytes)
{
    const unsigned mask = (1u << bits) - 1, add = (unsigned)offset;
    const size_t whole = n / 8 * 8;
    uint64_t tail = 0;
    pack_whole(codes, n / 8, bits, add, packed);
    for (size_t i = whole; i < n; i++)
        tail |= (uint64_t)((codes[i] + add) & mask) << (size_t)bits * (i - whole);
    for (size_t at = n / 8 * (size_t)bits; at < bytes; at++, tail >>= 8)
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

static void unpack_whole(const unsigned char *packed, size_t words, int bits, unsigned subtract, unsigned char *codes)
{
    switch (bits) {
#define WIDTH(bits)                                                                                                    \
    case bits:                                                                                                         \
        unpack_words(packed, words, bits, subtract, codes);                                                            \
        break;
        EACH_WIDTH(WIDTH)
#undef WIDTH
    case 4:
        for (size_t i = 0; i < 4 * words; i++) {
            codes[2 * i] = (unsigned char)((packed[i] & 15) - subtract);
            codes[2 * i + 1] = (unsigned char)((packed[i] >> 4) - subtract);
        }
        break;
    default:
        for (size_t i = 0; i < 8 * words; i++)
            codes[i] = (unsigned char)(packed[i] - subtract);
        break;
    }
}

void qobs_unpack_row(const unsigned char *packed, size_t n, int bits, int offset, unsigned char *codes)
{
    const unsigned mask = (1u << bits) - 1, subtract = (unsigned)offset;
    unpack_whole(packed, n / 8, bits, subtract, codes);
    for (size_t i = n / 8 * 8; i < n; i++)
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

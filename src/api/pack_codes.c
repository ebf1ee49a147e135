/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_pack and qobs_unpack. A stream is codes of 1 to 8 bits: code k is at bits [k * bits, (k + 1) * bits), low bits
 * first. Eight codes fill `bits` bytes exactly, so that a row is whole groups of eight and a tail. Plain C; codes of 4
 * bits have a kernel, pack_pairs. */

#include "base/struct_size.h"
#include "kernels/dispatch.h"
#include "number/format.h"
#include "qobs/stateless.h"

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

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

static inline void pack_words(const unsigned char *codes, size_t words, int bits, uint64_t offset,
                              unsigned char *packed)
{
    for (size_t i = 0; i < words; i++)
        store_word(packed + i * (size_t)bits, pack_eight(add_bytes(load_word(codes + 8 * i, 8), offset), bits),
                   (size_t)bits);
}

/* Reads whole words as long as they lie inside, since bytes of odd counts go through memory. */
static inline void unpack_words(const unsigned char *packed, size_t words, int bits, uint64_t offset,
                                unsigned char *codes)
{
    const size_t step = (size_t)bits;
    size_t i = 0;
    for (; i * step + 8 <= words * step; i++)
        store_word(codes + 8 * i, add_bytes(unpack_eight(load_word(packed + i * step, 8), bits), offset), 8);
    for (; i < words; i++)
        store_word(codes + 8 * i, add_bytes(unpack_eight(load_word(packed + i * step, step), bits), offset), 8);
}

#define EACH_WIDTH(WIDTH) WIDTH(1) WIDTH(2) WIDTH(3) WIDTH(5) WIDTH(6) WIDTH(7)

/* Packs or unpacks whole words; `offset` is added to each code. Constant widths, because shifts and stores of a known
 * size are single instructions. */
static void convert_words(bool packs, const unsigned char *from, size_t words, int bits, unsigned offset,
                          unsigned char *to)
{
    const uint64_t add = (offset & 0xff) * EACH_BYTE;
    switch (bits) {
#define WIDTH(bits)                                                                                                    \
    case bits:                                                                                                         \
        if (packs)                                                                                                     \
            pack_words(from, words, bits, add, to);                                                                    \
        else                                                                                                           \
            unpack_words(from, words, bits, add, to);                                                                  \
        break;
        EACH_WIDTH(WIDTH)
#undef WIDTH
    case 4:
        if (packs)
            qobs_kernels_active()->pack_pairs(from, 4 * words, offset, to);
        for (size_t i = 0; !packs && i < 4 * words; i++) {
            to[2 * i] = (unsigned char)((from[i] & 15) + offset);
            to[2 * i + 1] = (unsigned char)((from[i] >> 4) + offset);
        }
        break;
    default:
        for (size_t i = 0; i < 8 * words; i++)
            to[i] = (unsigned char)(from[i] + offset);
        break;
    }
}

/* At most 8 codes as bytes, each plus `offset`; those behind the last one become 0. Or back. */
static uint64_t pack_some(uint64_t codes, size_t n, int bits, unsigned offset)
{
    const uint64_t present = n < 8 ? (UINT64_C(1) << 8 * n) - 1 : UINT64_MAX;
    return pack_eight(add_bytes(codes, (offset & 0xff) * EACH_BYTE) & present, bits);
}

static uint64_t unpack_some(uint64_t packed, int bits, unsigned offset)
{
    return add_bytes(unpack_eight(packed, bits), (offset & 0xff) * EACH_BYTE);
}

/* Packs n codes, each plus `offset`, into `bytes` bytes; those behind the last code become 0. */
static void pack_stream(const unsigned char *codes, size_t n, int bits, unsigned offset, unsigned char *packed,
                        size_t bytes)
{
    const size_t rest = n % 8, at = n / 8 * (size_t)bits, used = (rest * (size_t)bits + 7) / 8;
    convert_words(true, codes, n / 8, bits, offset, packed);
    store_word(packed + at, pack_some(load_word(codes + n - rest, rest), rest, bits, offset), used);
    memset(packed + at + used, 0, bytes - at - used);
}

/* Unpacks n codes, and adds `offset` to each. */
static void unpack_stream(const unsigned char *packed, size_t n, int bits, unsigned offset, unsigned char *codes)
{
    const size_t rest = n % 8, at = n / 8 * (size_t)bits, used = (rest * (size_t)bits + 7) / 8;
    convert_words(false, packed, n / 8, bits, offset, codes);
    store_word(codes + n - rest, unpack_some(load_word(packed + at, used), bits, offset), rest);
}

/* Each column is a stream in 32-bit words; word w of column c is word w * columns + c, in little-endian order. */
static void convert_columns(const qobs_pack_args *a, bool packs, unsigned offset)
{
    const size_t rows = (size_t)a->rows, columns = (size_t)a->columns, bits = (size_t)a->bits;
    unsigned char *const codes = a->codes, *const packed = a->packed;
    for (size_t i = 0; packs && i < a->packed_size; i++)
        packed[i] = 0;
    for (size_t r = 0; r < rows; r += 8)
        for (size_t c = 0; c < columns; c++) {
            const size_t n = rows - r < 8 ? rows - r : 8, first = r / 8 * bits, end = first + (n * bits + 7) / 8;
            uint64_t word = 0;
            for (size_t i = 0; packs && i < n; i++)
                word |= (uint64_t)codes[(r + i) * columns + c] << 8 * i;
            for (size_t at = first; !packs && at < end; at++)
                word |= (uint64_t)packed[(at / 4 * columns + c) * 4 + at % 4] << 8 * (at - first);
            word = packs ? pack_some(word, n, a->bits, offset) : unpack_some(word, a->bits, offset);
            for (size_t at = first; packs && at < end; at++, word >>= 8)
                packed[(at / 4 * columns + c) * 4 + at % 4] = (unsigned char)word;
            for (size_t i = 0; !packs && i < n; i++, word >>= 8)
                codes[(r + i) * columns + c] = (unsigned char)word;
        }
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int range(const char *name, int64_t value, int64_t least, int64_t most, qobs_error *error)
{
    if (value >= least && value <= most)
        return QOBS_OK;
    return qobs_invalid(error, "%s: is %lld, allowed are %lld to %lld", name, (long long)value, (long long)least,
                        (long long)most);
}

/* Checks the arguments and returns the bytes of a stream in `stream`. */
static int read_args(qobs_pack_args *a, const qobs_pack_args *args, int64_t *stream, qobs_error *error)
{
    int64_t codes, packed;
    RETURN_IF_FAILED(ARGS_READ(qobs_pack_args, a, args, packed_size, error));
    RETURN_IF_FAILED(range("bits", a->bits, 1, 8, error));
    RETURN_IF_FAILED(range("dim", a->dim, 0, 1, error));
    RETURN_IF_FAILED(range("rows", a->rows, 0, INT64_C(1) << 48, error));
    RETURN_IF_FAILED(range("columns", a->columns, 0, INT64_C(1) << 48, error));
    if (a->offset != 0 && a->offset != 1 << (a->bits - 1))
        return qobs_invalid(error, "offset: is %d, allowed are 0 and %d", a->offset, 1 << (a->bits - 1));
    if (a->word_bits != 32 && !(a->word_bits == 8 && a->dim == 1))
        return qobs_invalid(error, "word_bits: is %d, allowed are 32, and 8 if dim is 1", a->word_bits);
    const int64_t length = a->dim == 1 ? a->columns : a->rows, streams = a->dim == 1 ? a->rows : a->columns;
    *stream = (length * a->bits + a->word_bits - 1) / a->word_bits * (a->word_bits / 8);
    if (!qobs_multiply(a->rows, a->columns, &codes) || !qobs_multiply(*stream, streams, &packed))
        return qobs_invalid(error, "rows: is %lld, with %lld columns there are too many codes", (long long)a->rows,
                            (long long)a->columns);
    if ((!a->codes && codes > 0) || a->codes_size != (uint64_t)codes)
        return qobs_invalid(error, "codes: has %zu bytes%s, needed are %lld", a->codes_size, a->codes ? "" : " (NULL)",
                            (long long)codes);
    if ((!a->packed && packed > 0) || a->packed_size != (uint64_t)packed)
        return qobs_invalid(error, "packed: has %zu bytes%s, needed are %lld", a->packed_size,
                            a->packed ? "" : " (NULL)", (long long)packed);
    return QOBS_OK;
}

/* Fails at the first code that needs more bits. */
static int check_codes(const qobs_pack_args *a, qobs_error *error)
{
    const unsigned char *codes = a->codes;
    const size_t n = a->codes_size;
    unsigned char all = 0;
    for (size_t i = 0; i < n; i++)
        all |= (unsigned char)(codes[i] + a->offset);
    if (all >> a->bits == 0)
        return QOBS_OK;
    size_t i = 0;
    while ((unsigned char)(codes[i] + a->offset) >> a->bits == 0)
        i++;
    const int least = -a->offset, most = (1 << a->bits) - 1 - a->offset;
    return qobs_invalid(error, "codes: [%zu] is %d, allowed are %d to %d", i,
                        a->offset ? (signed char)codes[i] : codes[i], least, most);
}

int qobs_pack(const qobs_pack_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(codes, error);
    qobs_pack_args a;
    int64_t stream = 0;
    RETURN_IF_FAILED(read_args(&a, args, &stream, error));
    RETURN_IF_FAILED(check_codes(&a, error));
    if (a.dim == 0)
        convert_columns(&a, true, (unsigned)a.offset);
    for (int64_t r = 0; a.dim == 1 && a.columns > 0 && r < a.rows; r++)
        pack_stream((const unsigned char *)a.codes + r * a.columns, (size_t)a.columns, a.bits, (unsigned)a.offset,
                    (unsigned char *)a.packed + r * stream, (size_t)stream);
    return qobs_succeed(error);
}

int qobs_unpack(const qobs_pack_args *args, qobs_error *error)
{
    qobs_pack_args a;
    int64_t stream = 0;
    RETURN_IF_FAILED(read_args(&a, args, &stream, error));
    if (a.dim == 0)
        convert_columns(&a, false, -(unsigned)a.offset);
    for (int64_t r = 0; a.dim == 1 && a.columns > 0 && r < a.rows; r++)
        unpack_stream((const unsigned char *)a.packed + r * stream, (size_t)a.columns, a.bits, -(unsigned)a.offset,
                      (unsigned char *)a.codes + r * a.columns);
    return qobs_succeed(error);
}

/* ---- Numbers of a format ----------------------------------------------------------------------------------------- */

int qobs_format_encode_array(const qobs_format_array_args *args, qobs_error *error)
{
    qobs_format_array_args a;
    RETURN_IF_FAILED(ARGS_READ(qobs_format_array_args, &a, args, saturate, error));
    RETURN_IF_FAILED(qobs_require(a.format, "format", error));
    if (a.x_size % sizeof *a.x != 0)
        return qobs_invalid(error, "x: has %zu bytes, allowed are multiples of %zu", a.x_size, sizeof *a.x);
    RETURN_IF_FAILED(array_check("x", a.x, a.x_size, a.x_size, error));
    const size_t n = a.x_size / sizeof *a.x;
    RETURN_IF_FAILED(array_check("out", a.out, a.out_size, n * qobs_format_size(a.format), error));
    qobs_encode_floats(a.format, n, a.x, a.out, a.saturate);
    return qobs_succeed(error);
}

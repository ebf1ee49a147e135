/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_pack and qobs_unpack: check their arguments. */
#include "base/build.h"
#include "base/struct_size.h"
#include "base/tensor.h"
#include "kernels/dispatch.h"
#include "number/format.h"
#include "number/pack.h"
#include "qobs/stateless.h"

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

/* A row. The kernel packs whole words of 4 bits. */
static void pack_row(const qobs_pack_args *a, const unsigned char *codes, unsigned char *packed, size_t bytes)
{
    const size_t columns = (size_t)a->columns, by_kernel = a->bits == 4 ? columns / 8 * 8 : 0;
    qobs_kernels_active()->pack_pairs(codes, by_kernel / 2, (unsigned)a->offset, packed);
    qobs_pack_row(codes + by_kernel, columns - by_kernel, a->bits, a->offset, packed + by_kernel / 2,
                  bytes - by_kernel / 2);
}

int qobs_pack(const qobs_pack_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(QOBS_HAS_CODES, "codes", error);
    qobs_pack_args a;
    int64_t stream = 0;
    RETURN_IF_FAILED(read_args(&a, args, &stream, error));
    RETURN_IF_FAILED(check_codes(&a, error));
    if (a.dim == 1)
        for (int64_t r = 0; r < a.rows; r++)
            pack_row(&a, (const unsigned char *)a.codes + r * a.columns, (unsigned char *)a.packed + r * stream,
                     (size_t)stream);
    else
        qobs_pack_columns(a.codes, (size_t)a.rows, (size_t)a.columns, a.bits, a.offset, a.packed);
    return qobs_succeed(error);
}

int qobs_unpack(const qobs_pack_args *args, qobs_error *error)
{
    qobs_pack_args a;
    int64_t stream = 0;
    RETURN_IF_FAILED(read_args(&a, args, &stream, error));
    if (a.dim == 1)
        for (int64_t r = 0; r < a.rows; r++)
            qobs_unpack_row((const unsigned char *)a.packed + r * stream, (size_t)a.columns, a.bits, a.offset,
                            (unsigned char *)a.codes + r * a.columns);
    else
        qobs_unpack_columns(a.packed, (size_t)a.rows, (size_t)a.columns, a.bits, a.offset, a.codes);
    return qobs_succeed(error);
}

/* ---- Numbers of a format ----------------------------------------------------------------------------------------- */

/* Rounding and encoding of arrays in a number format, with checked arguments. */

static int open_arrays(qobs_format_array_args *a, const qobs_format_array_args *args, bool codes, size_t *n,
                       qobs_error *error)
{
    RETURN_IF_FAILED(ARGS_READ(qobs_format_array_args, a, args, saturate, error));
    if (!a->format)
        RETURN_IF_FAILED(qobs_invalid(error, "format: is NULL"));
    if (a->x_size % sizeof *a->x != 0)
        RETURN_IF_FAILED(
            qobs_invalid(error, "x: has %zu bytes, allowed are multiples of %zu", a->x_size, sizeof *a->x));
    RETURN_IF_FAILED(array_check("x", a->x, a->x_size, a->x_size, error));
    *n = a->x_size / sizeof *a->x;
    return array_check("out", a->out, a->out_size, *n * (codes ? qobs_format_size(a->format) : sizeof(float)), error);
}

int qobs_format_round_array(const qobs_format_array_args *args, qobs_error *error)
{
    qobs_format_array_args a;
    size_t n;
    RETURN_IF_FAILED(open_arrays(&a, args, false, &n, error));
    qobs_round_floats(a.format, n, a.x, a.out, a.saturate);
    return qobs_succeed(error);
}

int qobs_format_encode_array(const qobs_format_array_args *args, qobs_error *error)
{
    qobs_format_array_args a;
    size_t n;
    RETURN_IF_FAILED(open_arrays(&a, args, true, &n, error));
    qobs_encode_floats(a.format, n, a.x, a.out, a.saturate);
    return qobs_succeed(error);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads rows of a weight as numbers: gathers strided matrices and dequantizes codes as compressed-tensors does. */
#include <string.h>

#include "files/bus_errors.h"
#include "files/gguf.h"
#include "model/read_words.h"
#include "model/weights.h"
#include "qobs/format.h"
#include "qobs/stateless.h"

bool weight_is_in_place(const struct weight *w)
{
    return !w->source_codes.format && !w->source_codes.blocks && w->column_bytes == (int64_t)dtype_size(w->dtype);
}

bool weight_is_contiguous(const struct weight *w)
{
    const int64_t element = (int64_t)dtype_size(w->dtype);
    return weight_is_in_place(w) && (w->ndim != 2 || w->row_bytes == w->shape[1] * element);
}

static bool gather(const struct weight *w, int64_t first, int64_t count, unsigned char *out)
{
    const size_t element = dtype_size(w->dtype), row = (size_t)w->shape[1] * element;
    if (w->column_bytes == (int64_t)element && w->row_bytes == (int64_t)row)
        return bus_errors_copy(out, w->data + first * w->row_bytes, row * (size_t)count);
    if (w->column_bytes == (int64_t)element) {
        for (int64_t r = 0; r < count; r++, out += row)
            if (!bus_errors_copy(out, w->data + (first + r) * w->row_bytes, row))
                return false;
        return true;
    }
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < w->shape[1]; c++, out += element)
            memcpy(out, w->data + (first + r) * w->row_bytes + c * w->column_bytes, element);
    return true;
}

/* ---- Codes ------------------------------------------------------------------------------------------------------- */

enum { CHUNK = 1024 }; /* columns at a time; with any number of bits they end at a word */

/* The codes of a weight with what their bytes mean, made once for many rows. */
struct code_reader {
    const struct source_codes *codes;
    float numbers[256];      /* of codes of floats */
    float scales[256];       /* of scales of one byte, under the global scale */
    size_t scale_size;       /* bytes */
    const qobs_format *half; /* of scales of two bytes */
};

static void open_reader(struct code_reader *reader, const struct source_codes *c)
{
    const qobs_format *format = c->format->code.floats ? qobs_format_find(c->format->code.grid) : NULL;
    const enum file_dtype dtype = c->scales->dtype;
    const qobs_format *scale = qobs_format_find(dtype == FILE_F8_E4M3 ? "fp8_e4m3" : "e8m0");
    reader->codes = c;
    reader->scale_size = dtype_size(dtype);
    reader->half = qobs_format_find(dtype == FILE_F16 ? "f16" : "bf16");
    for (uint32_t code = 0; format && code < 256; code++)
        reader->numbers[code] = qobs_format_decode(format, code);
    for (uint32_t code = 0; code < 256 && reader->scale_size == 1; code++) {
        const float number = qobs_format_decode(scale, code);
        reader->scales[code] = !c->format->global.name     ? number
                               : c->format->global.divides ? number / c->global_scale
                                                           : number * c->global_scale;
    }
}

/* Returns `count` codes of a row that begin at column `first`, a multiple of CHUNK: in place or in `unpacked`. */
static const unsigned char *read_codes(const struct source_codes *c, const unsigned char *row, int64_t first,
                                       int64_t count, unsigned char *unpacked)
{
    const int word_bits = quant_word_bits(c->format);
    if (word_bits == 0)
        return row + first;
    const size_t size = (size_t)((count * c->bits + word_bits - 1) / word_bits * (word_bits / 8));
    const qobs_pack_args args =
        quant_pack_args(c->format, c->bits, 1, 1, count, unpacked, row + first * c->bits / 8, size);
    qobs_unpack(&args, NULL); /* fails for wrong arguments only */
    return unpacked;
}

/* Writes the numbers of `count` codes of a row that begin at column `first`, a multiple of CHUNK. */
static void read_numbers(const struct code_reader *reader, const unsigned char *row, int64_t first, int64_t count,
                         float *x)
{
    const struct source_codes *c = reader->codes;
    unsigned char unpacked[CHUNK];
    const unsigned char *codes = read_codes(c, row, first, count, unpacked);
    if (c->format->code.ints)
        for (int64_t i = 0; i < count; i++)
            x[i] = (signed char)codes[i];
    else
        for (int64_t i = 0; i < count; i++)
            x[i] = reader->numbers[codes[i]];
}

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

static float scale_at(const struct code_reader *reader, int64_t i)
{
    const unsigned char *at = (const unsigned char *)reader->codes->scales->data + (size_t)i * reader->scale_size;
    float value;
    if (reader->scale_size == 1)
        return reader->scales[*at];
    if (reader->scale_size == 2)
        return qobs_format_decode(reader->half, (uint32_t)at[0] | (uint32_t)at[1] << 8);
    memcpy(&value, at, sizeof value);
    return value;
}

/* Returns the scale of row `row` of the scales. */
static float scale_of(const struct code_reader *reader, int64_t row, int64_t column)
{
    const struct source_codes *c = reader->codes;
    return scale_at(reader, c->format->words ? column * c->scales->shape[1] + row : row * c->scale_columns + column);
}

/* Returns the zero point of row `row` of the scales. */
static float zero_point_at(const struct code_reader *reader, int64_t row, int64_t column)
{
    const struct source_codes *c = reader->codes;
    int16_t zero_point;
    if (c->zero_points->dtype == FILE_F8_E4M3)
        return reader->numbers[((const unsigned char *)c->zero_points->data)[row * c->scale_columns + column]];
    source_zero_points(c, row, 1, column, &zero_point);
    return zero_point;
}

/* x -= zero point. Integers are exact; floats round to the dtype of the scales. */
static void subtract(const struct source_codes *c, float zero_point, float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] -= zero_point;
    if (!c->format->code.floats || c->scales->dtype == FILE_F32)
        return;
    const qobs_format *format = qobs_format_find(c->scales->dtype == FILE_F16 ? "f16" : "bf16");
    for (int64_t i = 0; i < count; i++)
        x[i] = qobs_format_round(format, x[i], false);
}

/* Multiplies columns [first, first + count) of row `row` by their scales. */
static void apply_scales(const struct code_reader *reader, int64_t row, int64_t first, int64_t count, float *x)
{
    const struct source_codes *c = reader->codes;
    row = (c->first_row + row * c->row_step) / c->block[0];
    for (int64_t i = 0, n; i < count; i += n, x += n) {
        const int64_t column = source_group(c, first + i), end = (first + i) / c->block[1] * c->block[1] + c->block[1];
        n = c->group_index ? 1 : (end - first < count ? end - first : count) - i;
        const float scale = scale_of(reader, row, column);
        if (c->zero_points)
            subtract(c, zero_point_at(reader, row, column), x, n);
        for (int64_t k = 0; k < n; k++)
            x[k] *= scale;
    }
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* The product is in float and rounded to the dtype once, which is the product of compressed-tensors in that dtype. */
static void put_numbers(const struct weight *w, const float *x, int64_t n, unsigned char *out)
{
    const size_t element = dtype_size(w->dtype);
    if (element == sizeof *x) {
        memcpy(out, x, (size_t)n * element);
        return;
    }
    const qobs_format *format = qobs_format_find(w->dtype == FILE_F16 ? "f16" : "bf16");
    const qobs_format_array_args args = {.struct_size = sizeof args,
                                         .format = format,
                                         .x = x,
                                         .x_size = (size_t)n * sizeof *x,
                                         .out = out,
                                         .out_size = (size_t)n * qobs_format_size(format)};
    qobs_format_encode_array(&args, NULL); /* fails for wrong arguments only */
}

static void dequantize(const struct weight *w, int64_t first, int64_t count, unsigned char *out)
{
    const size_t element = dtype_size(w->dtype);
    struct code_reader reader;
    float x[CHUNK];
    open_reader(&reader, &w->source_codes);
    for (int64_t r = first; r < first + count; r++)
        for (int64_t c = 0, n; c < w->shape[1]; c += n, out += (size_t)n * element) {
            n = w->shape[1] - c < CHUNK ? w->shape[1] - c : CHUNK;
            read_numbers(&reader, w->data + r * w->row_bytes, c, n, x);
            apply_scales(&reader, r, c, n, x);
            put_numbers(w, x, n, out);
        }
}

enum { TILE = 64 }; /* rows and columns: a line of the cache has words of many rows */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Dequantizes a tile to `out`, which has the rows from `first` on. */
static void dequantize_tile(const struct weight *w, const struct code_reader *reader, const struct word_tile *t,
                            int64_t first, unsigned char *out)
{
    signed char codes[TILE * TILE];
    float x[TILE];
    words_read(&w->source_codes, w->data, t, codes, TILE);
    for (int64_t r = 0; r < t->rows; r++) {
        for (int64_t k = 0; k < t->columns; k++)
            x[k] = codes[r * TILE + k];
        apply_scales(reader, t->row + r, t->column, t->columns, x);
        const int64_t place = (t->row + r - first) * w->shape[1] + t->column;
        put_numbers(w, x, t->columns, out + (size_t)place * dtype_size(w->dtype));
    }
}

static void dequantize_words(const struct weight *w, int64_t first, int64_t count, unsigned char *out)
{
    struct code_reader reader;
    open_reader(&reader, &w->source_codes);
    for (int64_t r = first; r < first + count; r += TILE)
        for (int64_t c = 0; c < w->shape[1]; c += TILE) {
            const struct word_tile t = {r, smaller(TILE, first + count - r), c, smaller(TILE, w->shape[1] - c)};
            dequantize_tile(w, &reader, &t, first, out);
        }
}

/* Rows of [E, columns, rows], which are columns of matrices [E, rows, columns]. The product of an e2m1 number and a
 * power of two is exact in BF16. */
static void dequantize_columns(const struct weight *w, int64_t first, int64_t count, unsigned char *out)
{
    const int64_t columns = w->shape[1], rows = w->shape[2], bytes = columns / 2, group = w->source_codes.block[1];
    struct code_reader reader;
    float x[CHUNK];
    open_reader(&reader, &w->source_codes);
    for (int64_t i = first, n; i < first + count; i += n, out += 2 * n * rows) {
        const int64_t column = i % columns, start = column / group * group, left = first + count - i;
        n = start + group - column < left ? start + group - column : left;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t row = i / columns * rows + r;
            read_numbers(&reader, w->data + row * bytes, start, group, x);
            apply_scales(&reader, row, start, group, x);
            for (int64_t k = 0; k < n; k++) {
                uint32_t bits;
                memcpy(&bits, &x[column - start + k], sizeof bits);
                const uint16_t half = (uint16_t)(bits >> 16);
                memcpy(out + 2 * (k * rows + r), &half, sizeof half);
            }
        }
    }
}

void weight_read_codes(const struct weight *w, int64_t first, int64_t count, unsigned char *codes)
{
    const bool words = w->source_codes.format->words;
    for (int64_t c = 0; words && c < w->shape[1]; c += TILE) {
        const struct word_tile t = {first, count, c, smaller(TILE, w->shape[1] - c)};
        words_read(&w->source_codes, w->data, &t, (signed char *)codes + c, w->shape[1]);
    }
    for (int64_t r = first; !words && r < first + count; r++)
        for (int64_t c = 0, n; c < w->shape[1]; c += n, codes += n) {
            unsigned char unpacked[CHUNK];
            n = smaller(CHUNK, w->shape[1] - c);
            memcpy(codes, read_codes(&w->source_codes, w->data + r * w->row_bytes, c, n, unpacked), (size_t)n);
        }
}

void weight_read_scales(const struct weight *w, int64_t first, int64_t count, float *scales, float *zero_points)
{
    const struct source_codes *c = &w->source_codes;
    struct code_reader reader;
    open_reader(&reader, c);
    for (int64_t r = first; r < first + count; r++) {
        const int64_t row = (c->first_row + r * c->row_step) / c->block[0];
        for (int64_t b = 0; b < c->scale_columns; b++) {
            *scales++ = scale_of(&reader, row, b);
            if (zero_points)
                *zero_points++ = c->zero_points ? zero_point_at(&reader, row, b) : 0;
        }
    }
}

bool weight_read_rows(const struct weight *w, int64_t first, int64_t count, void *out)
{
    if (w->source_codes.blocks) /* their columns and sizes fit, for the file was checked */
        return gguf_read_numbers(w->source_codes.blocks->name, count, w->shape[1], w->data + first * w->row_bytes,
                                 (size_t)(count * w->row_bytes), out, NULL) == QOBS_OK;
    if (!w->source_codes.format)
        return gather(w, first, count, out);
    if (w->ndim == 3)
        dequantize_columns(w, first, count, out);
    else if (w->source_codes.format->words)
        dequantize_words(w, first, count, out);
    else
        dequantize(w, first, count, out);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads rows of a weight as numbers: gathers strided matrices and dequantizes encoded ones. */
#include <string.h>

#include "model/weights.h"

bool weight_is_in_place(const struct weight *w)
{
    return w->encoding == WEIGHT_PLAIN && w->column_bytes == (int64_t)dtype_size(w->dtype);
}

bool weight_is_contiguous(const struct weight *w)
{
    const int64_t element = (int64_t)dtype_size(w->dtype);
    return w->encoding == WEIGHT_PLAIN && w->column_bytes == element &&
           (w->ndim != 2 || w->row_bytes == w->shape[1] * element);
}

static void gather(const struct weight *w, int64_t first, int64_t count, unsigned char *out)
{
    const size_t element = dtype_size(w->dtype);
    if (w->column_bytes == (int64_t)element) {
        for (int64_t r = 0; r < count; r++, out += (size_t)w->shape[1] * element)
            memcpy(out, w->data + (first + r) * w->row_bytes, (size_t)w->shape[1] * element);
        return;
    }
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < w->shape[1]; c++, out += element)
            memcpy(out, w->data + (first + r) * w->row_bytes + c * w->column_bytes, element);
}

/* ---- Block FP8 --------------------------------------------------------------------------------------------------- */

static float bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float of_bf16(uint16_t bits) { return bits_to_float((uint32_t)bits << 16); }

/* Rounds to nearest, ties to even. NaN becomes the quiet NaN of torch. */
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float of_e4m3(unsigned char code)
{
    const uint32_t sign = (uint32_t)(code & 0x80) << 24, exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 0x7f) == 0x7f)
        return bits_to_float(sign | 0x7fc00000);
    if (exponent == 0) {
        const float value = (float)mantissa * 0x1p-9f;
        return sign ? -value : value;
    }
    return bits_to_float(sign | (exponent + 120) << 23 | mantissa << 20);
}

static float scale_at(const struct st_tensor *scales, int64_t i)
{
    uint32_t wide;
    uint16_t narrow;
    if (strcmp(scales->dtype, "F32") == 0) {
        memcpy(&wide, (const unsigned char *)scales->data + 4 * i, sizeof wide);
        return bits_to_float(wide);
    }
    memcpy(&narrow, (const unsigned char *)scales->data + 2 * i, sizeof narrow);
    return of_bf16(narrow);
}

/* x = bf16(e4m3 * scale of its block); FP8BlockDequantizer of compressed-tensors. */
static void read_fp8_block(const struct weight *w, const struct weights *all, int64_t first, int64_t count,
                           unsigned char *out)
{
    float numbers[256];
    for (int i = 0; i < 256; i++)
        numbers[i] = of_e4m3((unsigned char)i);
    const int64_t columns = w->shape[1], blocks = (columns + all->block[1] - 1) / all->block[1];
    for (int64_t r = first; r < first + count; r++)
        for (int64_t b = 0; b < blocks; b++) {
            const float scale = scale_at(w->scales, r / all->block[0] * blocks + b);
            const int64_t end = (b + 1) * all->block[1] < columns ? (b + 1) * all->block[1] : columns;
            for (int64_t c = b * all->block[1]; c < end; c++, out += 2) {
                const uint16_t value = to_bf16(numbers[w->data[r * columns + c]] * scale);
                memcpy(out, &value, sizeof value);
            }
        }
}

/* ---- MXFP4 ------------------------------------------------------------------------------------------------------- */

/* Rows of blocks [rows, groups, 16] bytes, the low nibble first, under exponents [rows, groups]. The product of an e2m1
 * number and a power of two is exact in BF16, unless it is beyond its range. */
static void read_mxfp4(const struct weight *w, int64_t first, int64_t count, unsigned char *out)
{
    static const float numbers[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const int64_t groups = w->shape[1] / 32;
    const unsigned char *exponents = w->scales->data;
    for (int64_t r = first; r < first + count; r++) {
        const unsigned char *codes = w->data + r * w->row_bytes;
        const unsigned char *row = exponents + (w->first_row + r * (w->row_bytes / (16 * groups))) * groups;
        for (int64_t g = 0; g < groups; g++) {
            const float scale = row[g] == 255 ? bits_to_float(0x7fc00000)
                                : row[g] == 0 ? 0x1p-127f
                                              : bits_to_float((uint32_t)row[g] << 23);
            for (int i = 0; i < 32; i++, out += 2) {
                const uint16_t value = to_bf16(numbers[codes[16 * g + i / 2] >> 4 * (i % 2) & 15] * scale);
                memcpy(out, &value, sizeof value);
            }
        }
    }
}

void weight_read_rows(const struct weight *w, const struct weights *weights, int64_t first, int64_t count, void *out)
{
    if (w->encoding == WEIGHT_FP8_BLOCK)
        read_fp8_block(w, weights, first, count, out);
    else if (w->encoding == WEIGHT_MXFP4)
        read_mxfp4(w, first, count, out);
    else
        gather(w, first, count, out);
}

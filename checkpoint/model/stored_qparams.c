/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Conversions of single numbers. */
#include "model/stored_qparams.h"

#include <math.h>
#include <string.h>

#include "qobs/format.h"

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The product moves the exponent from F16's or E4M3's to float's range; it is exact, also for subnormals. */
static float float_of_f16(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, magnitude = (uint32_t)(bits & 0x7fff) << 13;
    const float value =
        (bits & 0x7c00) == 0x7c00 ? float_of_bits(magnitude | 0x7f800000) : float_of_bits(magnitude) * 0x1p112f;
    return sign ? -value : value;
}

static float float_of_e4m3(uint8_t bits)
{
    const uint32_t magnitude = (uint32_t)(bits & 0x7f) << 20;
    const float value = (bits & 0x7f) == 0x7f ? NAN : float_of_bits(magnitude) * 0x1p120f;
    return bits & 0x80 ? -value : value;
}

#define LOAD(member) (memcpy(&v.member, at, sizeof v.member), v.member)

double number_at(const void *at, qobs_dtype dtype)
{
    union {
        float f32;
        double f64;
        uint8_t u8;
        uint16_t half;
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
    } v;
    switch (dtype) {
    case QOBS_F32:
        return (double)LOAD(f32);
    case QOBS_F64:
        return LOAD(f64);
    case QOBS_BF16:
        return (double)float_of_bits((uint32_t)LOAD(half) << 16);
    case QOBS_F16:
        return (double)float_of_f16(LOAD(half));
    case QOBS_F8_E4M3:
        return (double)float_of_e4m3(LOAD(u8));
    case QOBS_I8:
        return LOAD(i8);
    case QOBS_U8:
        return LOAD(u8);
    case QOBS_I16:
        return LOAD(i16);
    case QOBS_I32:
        return LOAD(i32);
    default:
        return (double)LOAD(i64);
    }
}

qobs_tensor tensor_of_array(const void *data, qobs_dtype dtype, const int64_t *count)
{
    return (qobs_tensor){.struct_size = sizeof(qobs_tensor), .data = data, .dtype = dtype, .ndim = 1, .shape = count};
}

double number_of(const void *array, qobs_dtype dtype, size_t i)
{
    return number_at((const unsigned char *)array + i * qobs_dtype_size(dtype), dtype);
}

double stored_scale_number(const void *data, enum file_dtype dtype, size_t i)
{
    const unsigned char code = ((const unsigned char *)data)[i];
    if (dtype == FILE_U8)
        return code == 255 ? (double)NAN : ldexp(1, code - 127);
    return number_of(data, dtype_in_library(dtype), i);
}

void stored_put_number(void *to, qobs_dtype dtype, double value)
{
    const float single = (float)value;
    const qobs_format *format = qobs_format_find(dtype == QOBS_F16 ? "f16" : "bf16");
    const uint16_t half = (uint16_t)qobs_format_encode(format, single, false);
    memcpy(to, dtype == QOBS_F32 ? (const void *)&single : (const void *)&half, qobs_dtype_size(dtype));
}

/* Usual dtypes have loops that compilers vectorize. */
void floats_of(const void *array, qobs_dtype dtype, size_t first, size_t n, float *out)
{
    const unsigned char *from = (const unsigned char *)array + first * qobs_dtype_size(dtype);
    if (dtype == QOBS_F32)
        memcpy(out, from, n * sizeof *out);
    else if (dtype == QOBS_BF16)
        for (size_t i = 0; i < n; i++) {
            uint16_t half;
            memcpy(&half, from + i * sizeof half, sizeof half);
            out[i] = float_of_bits((uint32_t)half << 16);
        }
    else
        for (size_t i = 0; i < n; i++)
            out[i] = (float)number_of(from, dtype, i);
}

enum { BLOCK = 256 }; /* numbers that are converted at once */

void extrema_of(const void *array, qobs_dtype dtype, size_t n, double *min, double *max)
{
    float low = INFINITY, high = -INFINITY;
    for (size_t k = 0; k < n; k += BLOCK) {
        float block[BLOCK];
        const size_t m = n - k < BLOCK ? n - k : BLOCK;
        floats_of(array, dtype, k, m, block);
        for (size_t j = 0; j < m; j++) {
            low = block[j] < low ? block[j] : low;
            high = block[j] > high ? block[j] : high;
        }
    }
    *min = (double)low;
    *max = (double)high;
}

static size_t encode_e4m3(const void *numbers, qobs_dtype dtype, size_t n, unsigned char *out)
{
    const qobs_format *format = qobs_format_find("fp8_e4m3");
    for (size_t k = 0; k < n; k += BLOCK) {
        float block[BLOCK];
        const size_t m = n - k < BLOCK ? n - k : BLOCK;
        floats_of(numbers, dtype, k, m, block);
        const qobs_format_array_args args = {.struct_size = sizeof args,
                                             .format = format,
                                             .x = block,
                                             .x_size = m * sizeof *block,
                                             .out = out + k,
                                             .out_size = m * qobs_format_size(format)};
        qobs_format_encode_array(&args, NULL);
    }
    return n;
}

/* Exponents of powers of two as E8M0 has them, which are those of floats; 2^-127 is subnormal there. A scale that is no
 * positive number becomes 1. */
static size_t encode_e8m0(const void *numbers, qobs_dtype dtype, size_t n, unsigned char *out)
{
    for (size_t k = 0; k < n; k += BLOCK) {
        float block[BLOCK];
        const size_t m = n - k < BLOCK ? n - k : BLOCK;
        floats_of(numbers, dtype, k, m, block);
        for (size_t j = 0; j < m; j++) {
            uint32_t bits;
            memcpy(&bits, &block[j], sizeof bits);
            out[k + j] = (unsigned char)(bits - 1 < 0x7f800000 - 1 ? bits >> 23 : 127);
        }
    }
    return n;
}

size_t stored_scales(const void *scale, qobs_dtype dtype, size_t n, enum file_dtype stored, void *out)
{
    if (stored == FILE_NONE) {
        memcpy(out, scale, n * qobs_dtype_size(dtype));
        return n * qobs_dtype_size(dtype);
    }
    if (stored == FILE_F32) {
        floats_of(scale, dtype, 0, n, out);
        return n * sizeof(float);
    }
    return (stored == FILE_F8_E4M3 ? encode_e4m3 : encode_e8m0)(scale, dtype, n, out);
}

size_t stored_zero_points(const void *zero_point, qobs_dtype dtype, size_t n, enum file_dtype stored, void *out)
{
    if (dtype == QOBS_F8_E4M3) {
        memcpy(out, zero_point, n);
        return n;
    }
    if (stored == FILE_F8_E4M3)
        return encode_e4m3(zero_point, dtype, n, out);
    for (size_t i = 0; i < n; i++)
        ((signed char *)out)[i] = (signed char)number_of(zero_point, dtype, i);
    return n;
}

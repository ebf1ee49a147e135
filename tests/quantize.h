/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Fake-quantize, slowly: every operation in double, then one rounding by nearbyint. */
#ifndef QOBS_TEST_QUANTIZE_H
#define QOBS_TEST_QUANTIZE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/tensor.h"
#include "number/convert.h"
#include "number/format.h"
#include "number/number.h"
#include "qobs/format.h"

static const qobs_dtype dtypes[] = {QOBS_F32, QOBS_BF16, QOBS_F16, QOBS_F64};

static uint64_t random_state = 88172645463325252u;

static uint32_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

static double uniform(double lo, double hi) { return lo + (hi - lo) * ldexp((double)random_bits(), -32); }

/* An element of an array of float, or of double for F64. */
static inline void put_real(qobs_dtype dtype, void *array, size_t i, double value)
{
    if (dtype == QOBS_F64)
        ((double *)array)[i] = value;
    else
        ((float *)array)[i] = (float)value;
}

/* ---- The slow computation ---------------------------------------------------------------------------------------- */

/* 2^exponent, -1022 to 1023. */
static double power(int exponent) { return double_of_bits((uint64_t)(1023 + exponent) << 52); }

/* To `digits` binary digits, none of them below 2^smallest, which is at least -1000; ties to even. */
static double round_digits(double x, int digits, int smallest)
{
    if (x == 0 || !isfinite(x))
        return x;
    const int exponent = (int)(bits_of_double(x) >> 52 & 2047) - 1022; /* of a subnormal: below all that count */
    const int last = exponent - digits > smallest ? exponent - digits : smallest;
    return copysign(nearbyint(x * power(-last)) * power(last), x);
}

static double round_dtype(qobs_dtype dtype, double x)
{
    const double r = dtype == QOBS_F32    ? round_digits(x, 24, -149)
                     : dtype == QOBS_BF16 ? round_digits(x, 8, -133)
                     : dtype == QOBS_F16  ? round_digits(x, 11, -24)
                                          : x;
    const double most = dtype == QOBS_F64   ? INFINITY
                        : dtype == QOBS_F16 ? 65504
                        : dtype == QOBS_F32 ? 0x1.fffffep127
                                            : 0x1.fep127;
    return fabs(r) > most ? copysign(INFINITY, r) : r;
}

static double get(qobs_dtype dtype, const void *x, int64_t i)
{
    return qobs_element((const unsigned char *)x + i * (int64_t)qobs_dtype_size(dtype), dtype);
}

static uint16_t f16_bits(double value)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent;
    if (value == 0 || isinf(value))
        return value == 0 ? sign : sign | 0x7c00;
    frexp(value, &exponent);
    const int last = exponent - 11 > -24 ? exponent - 11 : -24;
    return sign | (uint16_t)((int)ldexp(fabs(value), -last) + (last + 24) * 1024);
}

/* `value` is a number of the dtype; every NaN becomes the same. */
static void put(qobs_dtype dtype, void *array, int64_t i, double value)
{
    const float single = isnan(value) ? NAN : (float)value;
    const double whole = isnan(value) ? (double)NAN : value;
    const uint16_t bf16 = (uint16_t)(bits_of_float(single) >> 16), f16 = isnan(value) ? 0x7e00 : f16_bits(value);
    const void *from = dtype == QOBS_F32    ? (const void *)&single
                       : dtype == QOBS_BF16 ? (const void *)&bf16
                       : dtype == QOBS_F16  ? (const void *)&f16
                                            : (const void *)&whole;
    const size_t size = qobs_dtype_size(dtype);
    memcpy((unsigned char *)array + (size_t)i * size, from, size);
}

/* The target and the arithmetic of a quantization. */
struct way {
    const qobs_format *format; /* NULL: the integers from least to greatest in torch's arithmetic */
    int64_t quant_min, quant_max;
    bool in_float;
};

static double round_format(const qobs_format *f, double x)
{
    if (f->kind == FORMAT_INTEGER)
        return nearbyint(x);
    const int smallest = f->kind == FORMAT_SCALE ? -f->bias : 1 - f->bias - f->mantissa;
    return round_digits(x, f->mantissa + 1, smallest);
}

/* One rounding to `dtype` an operation. */
static double slow_compressed_tensors(const struct way *way, qobs_dtype x_dtype, double x, double scale,
                                      const double *zero_point)
{
    const qobs_dtype dtype = way->in_float && x_dtype != QOBS_F64 ? QOBS_F32 : x_dtype;
    const qobs_dtype back = way->in_float ? QOBS_F32 : dtype;
    const double quant_min = round_dtype(dtype, qobs_format_min(way->format));
    const double quant_max = round_dtype(dtype, qobs_format_max(way->format));
    double v = round_dtype(dtype, x / scale);
    if (zero_point)
        v = round_dtype(dtype, v + round_dtype(x_dtype, *zero_point));
    v = v < quant_min ? quant_min : v > quant_max ? quant_max : v;
    if (x_dtype == QOBS_F64 && way->format->kind != FORMAT_INTEGER && way->format->bits > 4)
        v = (double)(float)v;
    v = round_dtype(back, round_dtype(dtype, round_format(way->format, v)));
    if (zero_point)
        v = round_dtype(back, v - round_dtype(back, *zero_point));
    return round_dtype(x_dtype, round_dtype(back, v * scale));
}

static double slow_torch(const struct way *way, qobs_dtype dtype, double x, double scale, double zero_point)
{
    const float inverse = 1.0f / (float)scale;
    double q;
    if (dtype == QOBS_F64) {
        q = zero_point + nearbyint(x * (double)inverse);
    } else {
        const float product = (float)x * inverse;
        q = (double)((float)zero_point + nearbyintf(product));
    }
    q = fmin(fmax(q, (double)way->quant_min), (double)way->quant_max);
    const float out = (float)((int64_t)q - (int64_t)zero_point) * (float)scale;
    return round_dtype(dtype, (double)out);
}

static inline double slow(const struct way *way, qobs_dtype dtype, double x, double scale, const double *zero_point)
{
    return way->format ? slow_compressed_tensors(way, dtype, x, scale, zero_point)
                       : slow_torch(way, dtype, x, scale, zero_point ? *zero_point : 0);
}

static inline const char *name_of(const struct way *way)
{
    static char text[64];
    if (way->format)
        snprintf(text, sizeof text, "%s%s", way->format->name, way->in_float ? " in float" : "");
    else
        snprintf(text, sizeof text, "torch %lld..%lld", (long long)way->quant_min, (long long)way->quant_max);
    return text;
}

#endif

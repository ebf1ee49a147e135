/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "number/convert.h"

#include "number/native.h"
#include "qobs/format.h"

double qobs_element(const void *element, qobs_dtype dtype)
{
    switch (dtype) {
    case QOBS_F32:
        return *(const element_f32 *)element;
    case QOBS_BF16:
        return float_of_bf16(*(const element_bf16 *)element);
    case QOBS_F16:
        return float_of_f16(*(const element_f16 *)element);
    default:
        return *(const element_f64 *)element;
    }
}

void qobs_put_element(void *to, qobs_dtype dtype, double value)
{
    if (dtype == QOBS_F32)
        *(element_f32 *)to = (float)value;
    else if (dtype == QOBS_BF16)
        *(element_bf16 *)to = bf16_of_float((float)value);
    else if (dtype == QOBS_F16)
        *(element_f16 *)to = f16_of_float((float)value);
    else
        *(element_f64 *)to = value;
}

double qobs_round_to(qobs_dtype dtype, double value)
{
    unsigned char element[sizeof value];
    qobs_put_element(element, dtype, value);
    return qobs_element(element, dtype);
}

/* Stores values of one dtype. NOLINTBEGIN(bugprone-macro-parentheses): `real` and `stored` are types. */
#define STORE_DOUBLES(dtype, stored, real)                                                                             \
    static void store_doubles_##dtype(stored *array, size_t first, size_t n, const double *values)                     \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            array[first + i] = store_##dtype((real)values[i]);                                                         \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
STORE_DOUBLES(f32, float, float)
STORE_DOUBLES(bf16, uint16_t, float)
STORE_DOUBLES(f16, uint16_t, float)
STORE_DOUBLES(f64, double, double)

void qobs_store_doubles(void *array, qobs_dtype dtype, size_t first, size_t n, const double *values)
{
    FOR_NATIVE(dtype, store_doubles, array, first, n, values)
}

double qobs_number_of(const void *number, qobs_dtype dtype)
{
    typedef int16_t __attribute__((aligned(1), may_alias)) element_i16;
    typedef int32_t __attribute__((aligned(1), may_alias)) element_i32;
    typedef int64_t __attribute__((aligned(1), may_alias)) element_i64;
    switch (dtype) {
    case QOBS_I8:
        return *(const signed char *)number;
    case QOBS_U8:
        return *(const unsigned char *)number;
    case QOBS_I16:
        return *(const element_i16 *)number;
    case QOBS_I32:
        return *(const element_i32 *)number;
    case QOBS_I64:
        return (double)*(const element_i64 *)number;
    case QOBS_F8_E4M3:
        return (double)qobs_format_decode(qobs_format_find("fp8_e4m3"), *(const unsigned char *)number);
    default:
        return qobs_element(number, dtype);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "number/convert.h"

#include <string.h>

#include "number/native.h"
#include "qobs/format.h"

double qobs_element(const void *element, qobs_dtype dtype)
{
    uint16_t half;
    float single;
    double d;
    switch (dtype) {
    case QOBS_F32:
        memcpy(&single, element, sizeof single);
        return single;
    case QOBS_BF16:
        memcpy(&half, element, sizeof half);
        return float_of_bf16(half);
    case QOBS_F16:
        memcpy(&half, element, sizeof half);
        return float_of_f16(half);
    default:
        memcpy(&d, element, sizeof d);
        return d;
    }
}

void qobs_put_element(void *to, qobs_dtype dtype, double value)
{
    const float single = (float)value;
    if (dtype == QOBS_F32) {
        memcpy(to, &single, sizeof single);
    } else if (dtype == QOBS_BF16 || dtype == QOBS_F16) {
        const uint16_t half = dtype == QOBS_BF16 ? bf16_of_float(single) : f16_of_float(single);
        memcpy(to, &half, sizeof half);
    } else {
        memcpy(to, &value, sizeof value);
    }
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
    int8_t byte;
    int16_t half;
    int32_t word;
    int64_t wide;
    switch (dtype) {
    case QOBS_I8:
        memcpy(&byte, number, sizeof byte);
        return byte;
    case QOBS_U8:
        return *(const unsigned char *)number;
    case QOBS_I16:
        memcpy(&half, number, sizeof half);
        return half;
    case QOBS_I32:
        memcpy(&word, number, sizeof word);
        return word;
    case QOBS_I64:
        memcpy(&wide, number, sizeof wide);
        return (double)wide;
    case QOBS_F8_E4M3:
        return (double)qobs_format_decode(qobs_format_find("fp8_e4m3"), *(const unsigned char *)number);
    default:
        return qobs_element(number, dtype);
    }
}

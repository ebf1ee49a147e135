/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Native arithmetic: in the dtype of the observed tensor, with one rounding to that dtype for each operation. For bf16
 * and f16 that is an operation in float followed by a rounding. Float has more than twice their digits plus two, so the
 * second rounding changes nothing. Loaded values are exact.
 *
 * native_each.inl.h includes a file once for each of the four dtypes. The file finds
 *
 *   NATIVE(name)        the name for this dtype
 *   stored              type of an element in memory; stored_bits: an unsigned integer of its size
 *   real                type of the arithmetic: float or double
 *   MANTISSA_BITS       of an element
 *   load(stored)        as a real
 *   store(real)         as an element, rounded
 *   round_native(real)  the nearest number of the dtype, as a real */
#pragma once

#include <math.h>

#include "number/number.h"

/* Calls the function of that name for an observable dtype. `result =` may stand before the name. */
#define FOR_NATIVE(dtype, name, ...)                                                                                   \
    switch (dtype) {                                                                                                   \
    case QOBS_F32:                                                                                                     \
        name##_f32(__VA_ARGS__);                                                                                       \
        break;                                                                                                         \
    case QOBS_BF16:                                                                                                    \
        name##_bf16(__VA_ARGS__);                                                                                      \
        break;                                                                                                         \
    case QOBS_F16:                                                                                                     \
        name##_f16(__VA_ARGS__);                                                                                       \
        break;                                                                                                         \
    default:                                                                                                           \
        name##_f64(__VA_ARGS__);                                                                                       \
        break;                                                                                                         \
    }

static inline float load_f32(float x) { return x; }
static inline float store_f32(float x) { return x; }
static inline double load_f64(double x) { return x; }
static inline double store_f64(double x) { return x; }
static inline float load_bf16(uint16_t x) { return float_of_bf16(x); }
static inline uint16_t store_bf16(float x) { return bf16_of_float(x); }
static inline float load_f16(uint16_t x) { return float_of_f16(x); }
static inline uint16_t store_f16(float x) { return f16_of_float(x); }

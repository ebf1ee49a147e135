/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Vectors of a fixed number of elements, named by element and number. They are extensions of both compilers: an
 * instruction set without registers of that size gets several instructions. */
#pragma once

#include <stdint.h>

typedef uint8_t u8x16 __attribute__((vector_size(16), may_alias));
typedef uint16_t u16x8 __attribute__((vector_size(16), may_alias));
typedef int32_t i32x4 __attribute__((vector_size(16), may_alias));
typedef float f32x4 __attribute__((vector_size(16), may_alias));
typedef double f64x2 __attribute__((vector_size(16), may_alias));

typedef uint16_t u16x16 __attribute__((vector_size(32), may_alias));
typedef int16_t i16x16 __attribute__((vector_size(32), may_alias));
typedef uint32_t u32x8 __attribute__((vector_size(32), may_alias));
typedef int32_t i32x8 __attribute__((vector_size(32), may_alias));
typedef float f32x8 __attribute__((vector_size(32), may_alias));
typedef int64_t i64x4 __attribute__((vector_size(32), may_alias));
typedef double f64x4 __attribute__((vector_size(32), may_alias));

typedef uint32_t u32x16 __attribute__((vector_size(64), may_alias));
typedef int16_t i16x32 __attribute__((vector_size(64), may_alias));
typedef uint16_t u16x32 __attribute__((vector_size(64), may_alias));
typedef int32_t i32x16 __attribute__((vector_size(64), may_alias));
typedef int64_t i64x8 __attribute__((vector_size(64), may_alias));

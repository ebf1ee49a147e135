/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Types of elements in memory, at any address. */
#pragma once

#include <stdint.h>

typedef float __attribute__((aligned(1), may_alias)) element_f32;
typedef double __attribute__((aligned(1), may_alias)) element_f64;
typedef uint16_t __attribute__((aligned(1), may_alias)) element_bf16;
typedef uint16_t __attribute__((aligned(1), may_alias)) element_f16;

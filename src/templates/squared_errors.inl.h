/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sums of squared differences, plain C for every instruction set; included by src/ISA/squares.c with its ENTRY. Its
 * flags decide how wide the compiler makes the vectors. One dtype is squared_errors_native.inl.h.
 *
 * Accumulators: 16 floats (F64: doubles) for each of the two sums, over at most SQUARED_ERRORS_BLOCK elements; then the
 *   caller's doubles. The order of all additions is that of kernel_squares.h.
 * Overflow: a square above the largest float makes its sum infinite, for numbers from about 1.8e19 on. NaN and infinity
 *   spread into the sums; the bits of a NaN sum are not defined.
 * Tails: one element at a time, into the sums that a longer array would use. Nothing else is read.
 * In flight: 16 elements of both arrays.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). */
#include <string.h>

#include "kernels/kernel_squares.h"
#include "number/element.h"
#include "number/native.h"
#include "templates/inline.h"

typedef uint16_t eight_halves __attribute__((vector_size(16)));
typedef uint32_t eight_words __attribute__((vector_size(32)));

#define NATIVE_BODY "templates/squared_errors_native.inl.h"
#include "number/native_each.inl.h"

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sums of squares of columns and of differences, plain C for every instruction set; included by src/ISA/squares.c with
 * its ENTRY. Its flags decide how wide the compiler makes the loops. One dtype is squares_native.inl.h.
 *
 * Columns
 * Accumulators: one double a column, the caller's. A square of a float is exact in double (48 bits), so every element
 *   costs one rounding, and the order of rows decides all bits.
 * Overflow: none in double for fewer than 2^767 rows of floats. NaN and infinity spread into their column's sum; the
 * bits of a NaN sum are not defined.
 * Tails: the compiler's. Nothing outside the rows is read.
 * In flight: SQUARES_UNROLLED_ROWS rows, so that a sum is loaded and stored once for that many elements.
 *
 * Differences
 * Accumulators: 16 floats (F64: doubles) for each of the two sums, over at most SQUARED_ERRORS_BLOCK elements; then the
 *   caller's doubles. The order of all additions is that of kernel_squares.h.
 * Overflow: a square above the largest float makes its sum infinite, for numbers from about 1.8e19 on.
 * Tails: one element at a time, into the sums that a longer array would use. Nothing else is read.
 * In flight: 16 elements of both arrays.
 *
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). */
#include <string.h>

#include "number/grid.h"
#include "kernels/kernel_squares.h"
#include "number/native.h"
#include "templates/fixed_vectors.h"
#include "templates/inline.h"

_Static_assert(SQUARES_UNROLLED_ROWS == 8, "squares_native.inl.h has a pointer for each row");

#ifndef WITH_F64
#define NATIVE_NARROW
#endif
#define NATIVE_BODY "templates/squares_native.inl.h"
#include "number/native_each.inl.h"

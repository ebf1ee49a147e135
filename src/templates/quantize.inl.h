/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Fake-quantize, plain C for every instruction set; included by src/ISA/quantize.c with its ENTRY. Its flags decide how
 * wide the compiler makes the loops. One dtype is quantize_native.inl.h.
 *
 * Accumulators: none; elements are independent. Each has upstream's operations in upstream's order, one rounding each.
 *   Results are the same bits everywhere because IEEE arithmetic is. NaN becomes the quiet NaN without sign: its
 *   payload would depend on the processor and on the order of operands that the compiler chose.
 * Overflow: scaled values are clamped to quant_min and quant_max before they are rounded to the grid.
 * Tails: the compiler's. Nothing outside a run is read or written.
 * In flight: as many as the compiler unrolls; no iteration waits for another.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). scale, and for BF16 and F16 unless
 *   in_float the zero points, are numbers of the dtype. In torch's arithmetic zero points lie between quant_min and
 *   quant_max. */
#include <math.h>

#include "number/element.h"
#include "number/grid.h"
#include "kernels/kernel_quantize.h"
#include "number/round.h"
#include "templates/entries.h"
#include "templates/inline.h"

/* The variant of a loop, as bits. */
enum {
    ZERO_POINT = 1,
    IN_DOUBLE = 2, /* the grid does not fit float; with ZERO_POINT always */
    IN_FLOAT = 4,
    TORCH = 8,
    INTEGER_GRID = 16,
    BY_RECIPROCAL = 32 /* `scale` is 1 / scale */
};

enum { CODE_BLOCK = 16 }; /* codes of one store */

/* A variant that is missing from the list stops the program: otherwise it would silently leave the output as it was. */
#define NO_VARIANT __builtin_trap()

#define NATIVE_BODY "templates/quantize_native.inl.h"
#include "number/native_each.inl.h"

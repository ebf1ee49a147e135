/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Fake-quantize, plain C for every instruction set: src/<isa>/quantize.c includes this with its ENTRY, and its flags decide
 * how wide the compiler makes the loops. One dtype is quantize_native.inl.h.
 *
 * Accumulators: none, elements are independent. Each has the operations of upstream in upstream's order, one rounding each;
 *   the results are the same bits everywhere because IEEE arithmetic is. NaN is made the one quiet NaN without a sign: its
 *   payload would depend on the processor and on the order of operands the compiler chose.
 * Overflow: scaled values are brought between `least` and `greatest` before they are rounded to the grid.
 * Tails: the compiler's. Nothing outside a run is read or written.
 * In flight: as many as the compiler unrolls; no iteration waits for another.
 * Caller's duty: round to nearest, no flushing of subnormals (src/fpenv.h). scale, for BF16 and F16 unless in_float, also
 *   added and removed, are numbers of the dtype; in torch's way zero points lie between least and greatest. */
#include <math.h>

#include "number/element.h"
#include "number/grid.h"
#include "kernels/kernel_quantize.h"
#include "number/round.h"
#include "templates/entries.h"

/* ---- The loops -------------------------------------------------------------------------------------------------------- */

/* What a loop is made for. */
enum {
    ZERO_POINT = 1,
    IN_DOUBLE = 2, /* the grid does not fit float; with ZERO_POINT always */
    IN_FLOAT = 4,
    TORCH = 8,
    WHOLE = 16 /* the grid is that of the integers */
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NATIVE_BODY "templates/quantize_native.inl.h"
#include "number/native_each.inl.h"

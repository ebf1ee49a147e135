/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Fake-quantize, plain C for every instruction set, and codes; included by src/ISA/quantize.c with its ENTRY and its
 * simd.h. Flags decide how wide the compiler makes the loops of plain C. One dtype is quantize_native.inl.h.
 *
 * Accumulators: none; elements are independent. Each has upstream's operations in upstream's order, one rounding each.
 *   Results are the same bits everywhere because IEEE arithmetic is. NaN becomes the quiet NaN without sign: its
 *   payload would depend on the processor and on the order of operands that the compiler chose. The squared errors of
 *   codes have 16 sums in float (F64: double) and the caller's doubles, in the order of kernel_quantize.h.
 * Overflow: scaled values are clamped to quant_min and quant_max before they are rounded to the grid; integers of BF16
 *   may be packed with saturation after it, which gives the same.
 * Tails: the compiler's; codes: through a buffer of 16. Nothing outside a run is read or written.
 * In flight: as many as the compiler unrolls; codes: 16. No iteration waits for another but for the sums.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). scale, and for BF16 and F16 unless
 *   in_float the zero points, are numbers of the dtype. In torch's arithmetic zero points lie between quant_min and
 *   quant_max. */
#include <float.h>
#include <math.h>

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
    BY_RECIPROCAL = 32, /* may_multiply() allows the divisor 1 / scale */
    WITH_SUM = 64,      /* squared errors are added up */
    FUSED = 128         /* a product and its sum are rounded once */
};

/* A variant that is missing from the list stops the program: otherwise it would silently leave the output as it was. */
#define NO_VARIANT __builtin_trap()

/* Bytes from an element to the line that is prefetched with it. The hardware prefetches less than loops with this much
 * work need. Rows that a caller measures next follow the runs of a call; more than NEXT_ROWS_MOST do not fit beside
 * them. */
enum { CODE_PREFETCH_BYTES = 2048, NEXT_ROWS_MOST = 1 << 16 };

ALWAYS_INLINE ptrdiff_t code_prefetch_bytes(bool next_rows, size_t runs, ptrdiff_t x_stride)
{
    const ptrdiff_t bytes = (ptrdiff_t)runs * x_stride;
    return next_rows && bytes > CODE_PREFETCH_BYTES && bytes <= NEXT_ROWS_MOST ? bytes : (ptrdiff_t)CODE_PREFETCH_BYTES;
}

enum { NEXT_ROWS_BYTES = 1 << 14 /* rows that a caller measures next */, WRITE_PREFETCH_BYTES = 2048 };

/* A kind of codes of floats. least: the exponent field that the smallest normal number has as a float, less 1. nan: the
 * code of NaN, also of integers. */
struct code_layout {
    int mantissa;
    uint32_t least, sign, nan;
};

ALWAYS_INLINE struct code_layout code_layout(int kind)
{
    return kind == QOBS_CODE_E4M3   ? (struct code_layout){3, 120, 0x80, 0x7f}
           : kind == QOBS_CODE_E2M3 ? (struct code_layout){3, 126, 0x20, 0x20}
                                    : (struct code_layout){1, 126, 8, 0};
}

#include "templates/code_numbers.inl.h"
#include "templates/code_sums.inl.h"

/* A pair as a number of 16 bits, the first code in the low byte. Sums of two low halves do not carry into another byte.
 */
ALWAYS_INLINE void pack_run(const unsigned char *codes, size_t pairs, unsigned add, unsigned char *packed)
{
    const unsigned low_halves = 0x0f0f;
    NO_DEPENDENCE
    for (size_t i = 0; i < pairs; i++) {
        uint16_t pair;
        memcpy(&pair, codes + 2 * i, sizeof pair);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        pair = __builtin_bswap16(pair);
#endif
        const unsigned sums = ((pair & low_halves) + add) & low_halves;
        packed[i] = (unsigned char)(sums | sums >> 4);
    }
}

QOBS_PACK_PAIRS(ENTRY(qobs_pack_pairs))
{
    CLEARS_UPPER_HALVES
    enum { LINE = 64, PACK_PREFETCH_BYTES = 8192 }; /* what a caller writes before it packs on */
    const unsigned add = (offset & 15) * 0x0101;
    for (; pairs >= LINE; pairs -= LINE, codes += 2 * LINE, packed += LINE) {
        __builtin_prefetch(packed + PACK_PREFETCH_BYTES, 1, 2);
        pack_run(codes, LINE, add, packed);
    }
    pack_run(codes, pairs, add, packed);
}

#ifndef WITH_F64
#define NATIVE_NARROW
#endif
#define NATIVE_BODY "templates/quantize_native.inl.h"
#include "number/native_each.inl.h"

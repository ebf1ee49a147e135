/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table's entry points over indexed16/32/64. ENTRY(name) appends the instruction set. FEW(name, lanes): what is done with fewer rows
 * than would fill half of as many lanes. */
#ifndef FEW
#define FEW(name, lanes)
#endif

QOBS_MINMAX_INDEXED(ENTRY(qobs_minmax_indexed_f32))
{
    FEW(qobs_minmax_indexed_f32, 16)
    indexed32(x, row_stride, rows, columns, group, groups, UINT32_C(0x7f800000), min, max, scratch, nonfinite);
}

QOBS_MINMAX_INDEXED(ENTRY(qobs_minmax_indexed_bf16))
{
    FEW(qobs_minmax_indexed_bf16, 32)
    indexed16(x, row_stride, rows, columns, group, groups, UINT16_C(0x7f80), min, max, scratch, nonfinite);
}

QOBS_MINMAX_INDEXED(ENTRY(qobs_minmax_indexed_f16))
{
    FEW(qobs_minmax_indexed_f16, 32)
    indexed16(x, row_stride, rows, columns, group, groups, UINT16_C(0x7c00), min, max, scratch, nonfinite);
}

QOBS_MINMAX_INDEXED(ENTRY(qobs_minmax_indexed_f64))
{
    FEW(qobs_minmax_indexed_f64, 8)
    indexed64(x, row_stride, rows, columns, group, groups, UINT64_C(0x7ff0000000000000), min, max, scratch, nonfinite);
}

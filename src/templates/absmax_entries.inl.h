/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table's entry points over rows16/32/64 and columns16/32/64. ENTRY(name) appends the instruction set. ELSEWHERE(name,
 * element, ...) and ELSEWHERE_COLUMNS: hand rows and columns on that another table does faster. */
#ifndef ELSEWHERE
#define ELSEWHERE(name, element, ...)
#define ELSEWHERE_COLUMNS(name, element, ...)
#endif

QOBS_ABSMAX_ROWS(ENTRY(qobs_absmax_rows_f32))
{
    ELSEWHERE(qobs_absmax_rows_f32, 4, x, run_stride, runs, length, absmax, out_stride, nonfinite)
    rows32(x, run_stride, runs, length, UINT32_C(0x7f800000), absmax, out_stride * 4, nonfinite);
}

QOBS_ABSMAX_ROWS(ENTRY(qobs_absmax_rows_bf16))
{
    ELSEWHERE(qobs_absmax_rows_bf16, 2, x, run_stride, runs, length, absmax, out_stride, nonfinite)
    rows16(x, run_stride, runs, length, UINT16_C(0x7f80), absmax, out_stride * 2, nonfinite);
}

QOBS_ABSMAX_ROWS(ENTRY(qobs_absmax_rows_f16))
{
    ELSEWHERE(qobs_absmax_rows_f16, 2, x, run_stride, runs, length, absmax, out_stride, nonfinite)
    rows16(x, run_stride, runs, length, UINT16_C(0x7c00), absmax, out_stride * 2, nonfinite);
}

QOBS_ABSMAX_ROWS(ENTRY(qobs_absmax_rows_f64))
{
    ELSEWHERE(qobs_absmax_rows_f64, 8, x, run_stride, runs, length, absmax, out_stride, nonfinite)
    rows64(x, run_stride, runs, length, UINT64_C(0x7ff0000000000000), absmax, out_stride * 8, nonfinite);
}

QOBS_ABSMAX_COLUMNS(ENTRY(qobs_absmax_columns_f32))
{
    ELSEWHERE_COLUMNS(qobs_absmax_columns_f32, 4, x, row_stride, rows, columns, absmax, nonfinite)
    columns32(x, row_stride, rows, columns, UINT32_C(0x7f800000), absmax, nonfinite);
}

QOBS_ABSMAX_COLUMNS(ENTRY(qobs_absmax_columns_bf16))
{
    ELSEWHERE_COLUMNS(qobs_absmax_columns_bf16, 2, x, row_stride, rows, columns, absmax, nonfinite)
    columns16(x, row_stride, rows, columns, UINT16_C(0x7f80), absmax, nonfinite);
}

QOBS_ABSMAX_COLUMNS(ENTRY(qobs_absmax_columns_f16))
{
    ELSEWHERE_COLUMNS(qobs_absmax_columns_f16, 2, x, row_stride, rows, columns, absmax, nonfinite)
    columns16(x, row_stride, rows, columns, UINT16_C(0x7c00), absmax, nonfinite);
}

QOBS_ABSMAX_COLUMNS(ENTRY(qobs_absmax_columns_f64))
{
    ELSEWHERE_COLUMNS(qobs_absmax_columns_f64, 8, x, row_stride, rows, columns, absmax, nonfinite)
    columns64(x, row_stride, rows, columns, UINT64_C(0x7ff0000000000000), absmax, nonfinite);
}

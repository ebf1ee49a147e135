/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table's entry points over rows16/32/64, bands16/32/64 and columns16/32/64. ENTRY(name) appends the instruction set. ELSEWHERE(name,
 * element, ...), ELSEWHERE_BANDS and ELSEWHERE_COLUMNS: hand on what another table does faster. */
#ifndef ELSEWHERE
#define ELSEWHERE(name, element, ...)
#define ELSEWHERE_BANDS(name, element, ...)
#define ELSEWHERE_COLUMNS(name, element, ...)
#endif

QOBS_MINMAX_ROWS(ENTRY(qobs_minmax_rows_f32))
{
    ELSEWHERE(qobs_minmax_rows_f32, 4, x, run_stride, runs, length, min, max, out_stride, nonfinite)
    rows32(x, run_stride, runs, length, UINT32_C(0x7f800000), min, max, out_stride * 4, nonfinite);
}

QOBS_MINMAX_ROWS(ENTRY(qobs_minmax_rows_bf16))
{
    ELSEWHERE(qobs_minmax_rows_bf16, 2, x, run_stride, runs, length, min, max, out_stride, nonfinite)
    rows16(x, run_stride, runs, length, UINT16_C(0x7f80), min, max, out_stride * 2, nonfinite);
}

QOBS_MINMAX_ROWS(ENTRY(qobs_minmax_rows_f16))
{
    ELSEWHERE(qobs_minmax_rows_f16, 2, x, run_stride, runs, length, min, max, out_stride, nonfinite)
    rows16(x, run_stride, runs, length, UINT16_C(0x7c00), min, max, out_stride * 2, nonfinite);
}

QOBS_MINMAX_ROWS(ENTRY(qobs_minmax_rows_f64))
{
    ELSEWHERE(qobs_minmax_rows_f64, 8, x, run_stride, runs, length, min, max, out_stride, nonfinite)
    rows64(x, run_stride, runs, length, UINT64_C(0x7ff0000000000000), min, max, out_stride * 8, nonfinite);
}

QOBS_MINMAX_BANDS(ENTRY(qobs_minmax_bands_f32))
{
    ELSEWHERE_BANDS(qobs_minmax_bands_f32, 4, x, row_stride, bands, rows, runs, length, min, max, nonfinite)
    bands32(x, row_stride, bands, rows, runs, length, UINT32_C(0x7f800000), min, max, nonfinite);
}

QOBS_MINMAX_BANDS(ENTRY(qobs_minmax_bands_bf16))
{
    ELSEWHERE_BANDS(qobs_minmax_bands_bf16, 2, x, row_stride, bands, rows, runs, length, min, max, nonfinite)
    bands16(x, row_stride, bands, rows, runs, length, UINT16_C(0x7f80), min, max, nonfinite);
}

QOBS_MINMAX_BANDS(ENTRY(qobs_minmax_bands_f16))
{
    ELSEWHERE_BANDS(qobs_minmax_bands_f16, 2, x, row_stride, bands, rows, runs, length, min, max, nonfinite)
    bands16(x, row_stride, bands, rows, runs, length, UINT16_C(0x7c00), min, max, nonfinite);
}

QOBS_MINMAX_BANDS(ENTRY(qobs_minmax_bands_f64))
{
    ELSEWHERE_BANDS(qobs_minmax_bands_f64, 8, x, row_stride, bands, rows, runs, length, min, max, nonfinite)
    bands64(x, row_stride, bands, rows, runs, length, UINT64_C(0x7ff0000000000000), min, max, nonfinite);
}

QOBS_MINMAX_COLUMNS(ENTRY(qobs_minmax_columns_f32))
{
    ELSEWHERE_COLUMNS(qobs_minmax_columns_f32, 4, x, row_stride, rows, columns, min, max, nonfinite)
    columns32(x, row_stride, rows, columns, UINT32_C(0x7f800000), min, max, nonfinite);
}

QOBS_MINMAX_COLUMNS(ENTRY(qobs_minmax_columns_bf16))
{
    ELSEWHERE_COLUMNS(qobs_minmax_columns_bf16, 2, x, row_stride, rows, columns, min, max, nonfinite)
    columns16(x, row_stride, rows, columns, UINT16_C(0x7f80), min, max, nonfinite);
}

QOBS_MINMAX_COLUMNS(ENTRY(qobs_minmax_columns_f16))
{
    ELSEWHERE_COLUMNS(qobs_minmax_columns_f16, 2, x, row_stride, rows, columns, min, max, nonfinite)
    columns16(x, row_stride, rows, columns, UINT16_C(0x7c00), min, max, nonfinite);
}

QOBS_MINMAX_COLUMNS(ENTRY(qobs_minmax_columns_f64))
{
    ELSEWHERE_COLUMNS(qobs_minmax_columns_f64, 8, x, row_stride, rows, columns, min, max, nonfinite)
    columns64(x, row_stride, rows, columns, UINT64_C(0x7ff0000000000000), min, max, nonfinite);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The neon table. Built for the baseline, because usable() runs on every CPU. */
#include "kernels/kernels.h"

static bool usable(void)
{
    return true; /* part of the aarch64 baseline */
}

const struct qobs_kernels qobs_kernels_neon = {
    .isa = "neon",
    .summary = "Advanced SIMD (aarch64)",
    .usable = usable,
    .minmax_rows =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_rows_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_minmax_rows_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_minmax_rows_f16_neon,
            [QOBS_KERNEL_F64] = qobs_minmax_rows_f64_neon,
        },
    .minmax_bands =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_bands_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_minmax_bands_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_minmax_bands_f16_neon,
            [QOBS_KERNEL_F64] = qobs_minmax_bands_f64_neon,
        },
    .minmax_columns =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_columns_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_minmax_columns_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_minmax_columns_f16_neon,
            [QOBS_KERNEL_F64] = qobs_minmax_columns_f64_neon,
        },
    .minmax_indexed =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_indexed_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_minmax_indexed_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_minmax_indexed_f16_neon,
            [QOBS_KERNEL_F64] = qobs_minmax_indexed_f64_neon,
        },
    .absmax_rows =
        {
            [QOBS_KERNEL_F32] = qobs_absmax_rows_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_absmax_rows_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_absmax_rows_f16_neon,
            [QOBS_KERNEL_F64] = qobs_absmax_rows_f64_neon,
        },
    .absmax_columns =
        {
            [QOBS_KERNEL_F32] = qobs_absmax_columns_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_absmax_columns_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_absmax_columns_f16_neon,
            [QOBS_KERNEL_F64] = qobs_absmax_columns_f64_neon,
        },
    .fake_quantize_rows =
        {
            [QOBS_KERNEL_F32] = qobs_fake_quantize_rows_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_fake_quantize_rows_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_fake_quantize_rows_f16_neon,
            [QOBS_KERNEL_F64] = qobs_fake_quantize_rows_f64_neon,
        },
    .fake_quantize_columns =
        {
            [QOBS_KERNEL_F32] = qobs_fake_quantize_columns_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_fake_quantize_columns_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_fake_quantize_columns_f16_neon,
            [QOBS_KERNEL_F64] = qobs_fake_quantize_columns_f64_neon,
        },
    .histogram_rows =
        {
            [QOBS_KERNEL_F32] = qobs_histogram_rows_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_histogram_rows_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_histogram_rows_f16_neon,
            [QOBS_KERNEL_F64] = qobs_histogram_rows_f64_neon,
        },
    .squares_columns =
        {
            [QOBS_KERNEL_F32] = qobs_squares_columns_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_squares_columns_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_squares_columns_f16_neon,
            [QOBS_KERNEL_F64] = qobs_squares_columns_f64_neon,
        },
    .search_errors = qobs_search_errors_neon,
    .search_batch = qobs_search_batch_neon,
    .search_improved = qobs_search_improved_neon,
    .search_load =
        {
            [QOBS_KERNEL_F32] = qobs_search_load_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_search_load_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_search_load_f16_neon,
            [QOBS_KERNEL_F64] = qobs_search_load_f64_neon,
        },
    .search_shrink =
        {
            [QOBS_KERNEL_F32] = qobs_search_shrink_f32_neon,
            [QOBS_KERNEL_BF16] = qobs_search_shrink_bf16_neon,
            [QOBS_KERNEL_F16] = qobs_search_shrink_f16_neon,
        },
};

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The avx512 table. Built for the baseline, because usable() runs on every CPU. */
#include "kernels/kernels.h"

static bool usable(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const struct qobs_kernels qobs_kernels_avx512 = {
    .isa = "avx512",
    .summary = "AVX-512 F, BW, DQ, VL",
    .usable = usable,
    .minmax_rows =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_rows_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_minmax_rows_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_minmax_rows_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_minmax_rows_f64_avx512,
        },
    .minmax_bands =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_bands_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_minmax_bands_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_minmax_bands_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_minmax_bands_f64_avx512,
        },
    .minmax_columns =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_columns_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_minmax_columns_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_minmax_columns_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_minmax_columns_f64_avx512,
        },
    .minmax_indexed =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_indexed_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_minmax_indexed_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_minmax_indexed_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_minmax_indexed_f64_avx512,
        },
    .absmax_rows =
        {
            [QOBS_KERNEL_F32] = qobs_absmax_rows_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_absmax_rows_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_absmax_rows_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_absmax_rows_f64_avx512,
        },
    .absmax_columns =
        {
            [QOBS_KERNEL_F32] = qobs_absmax_columns_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_absmax_columns_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_absmax_columns_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_absmax_columns_f64_avx512,
        },
    .fake_quantize_rows =
        {
            [QOBS_KERNEL_F32] = qobs_fake_quantize_rows_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_fake_quantize_rows_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_fake_quantize_rows_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_fake_quantize_rows_f64_avx512,
        },
    .fake_quantize_columns =
        {
            [QOBS_KERNEL_F32] = qobs_fake_quantize_columns_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_fake_quantize_columns_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_fake_quantize_columns_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_fake_quantize_columns_f64_avx512,
        },
    .histogram_rows =
        {
            [QOBS_KERNEL_F32] = qobs_histogram_rows_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_histogram_rows_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_histogram_rows_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_histogram_rows_f64_avx512,
        },
    .squares_columns =
        {
            [QOBS_KERNEL_F32] = qobs_squares_columns_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_squares_columns_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_squares_columns_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_squares_columns_f64_avx512,
        },
    .search_errors = qobs_search_errors_avx512,
    .search_batch = qobs_search_batch_avx512,
    .search_improved = qobs_search_improved_avx512,
    .search_load =
        {
            [QOBS_KERNEL_F32] = qobs_search_load_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_search_load_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_search_load_f16_avx512,
            [QOBS_KERNEL_F64] = qobs_search_load_f64_avx512,
        },
    .search_shrink =
        {
            [QOBS_KERNEL_F32] = qobs_search_shrink_f32_avx512,
            [QOBS_KERNEL_BF16] = qobs_search_shrink_bf16_avx512,
            [QOBS_KERNEL_F16] = qobs_search_shrink_f16_avx512,
        },
};

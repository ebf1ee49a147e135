/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The avx2 table. Built for the baseline, because usable() runs on every CPU. */
#include "kernels/kernels.h"

/* clang does not know the name before 18; no CPU that is known has AVX2 and FMA without it. */
#if defined(__clang__) && __clang_major__ < 18
#define HAS_F16C true
#else
#define HAS_F16C __builtin_cpu_supports("f16c")
#endif

static bool usable(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HAS_F16C;
}

const struct qobs_kernels qobs_kernels_avx2 = {
    .isa = "avx2",
    .summary = "AVX2, FMA, F16C",
    .usable = usable,
    .minmax_rows =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_rows_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_minmax_rows_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_minmax_rows_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_minmax_rows_f64_avx2,
        },
    .minmax_bands =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_bands_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_minmax_bands_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_minmax_bands_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_minmax_bands_f64_avx2,
        },
    .minmax_columns =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_columns_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_minmax_columns_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_minmax_columns_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_minmax_columns_f64_avx2,
        },
    .minmax_indexed =
        {
            [QOBS_KERNEL_F32] = qobs_minmax_indexed_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_minmax_indexed_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_minmax_indexed_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_minmax_indexed_f64_avx2,
        },
    .absmax_rows =
        {
            [QOBS_KERNEL_F32] = qobs_absmax_rows_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_absmax_rows_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_absmax_rows_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_absmax_rows_f64_avx2,
        },
    .absmax_columns =
        {
            [QOBS_KERNEL_F32] = qobs_absmax_columns_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_absmax_columns_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_absmax_columns_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_absmax_columns_f64_avx2,
        },
    .fake_quantize_rows =
        {
            [QOBS_KERNEL_F32] = qobs_fake_quantize_rows_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_fake_quantize_rows_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_fake_quantize_rows_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_fake_quantize_rows_f64_avx2,
        },
    .fake_quantize_columns =
        {
            [QOBS_KERNEL_F32] = qobs_fake_quantize_columns_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_fake_quantize_columns_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_fake_quantize_columns_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_fake_quantize_columns_f64_avx2,
        },
    .histogram_rows =
        {
            [QOBS_KERNEL_F32] = qobs_histogram_rows_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_histogram_rows_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_histogram_rows_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_histogram_rows_f64_avx2,
        },
    .squares_columns =
        {
            [QOBS_KERNEL_F32] = qobs_squares_columns_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_squares_columns_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_squares_columns_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_squares_columns_f64_avx2,
        },
    .search_errors = qobs_search_errors_avx2,
    .search_batch = qobs_search_batch_avx2,
    .search_improved = qobs_search_improved_avx2,
    .search_load =
        {
            [QOBS_KERNEL_F32] = qobs_search_load_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_search_load_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_search_load_f16_avx2,
            [QOBS_KERNEL_F64] = qobs_search_load_f64_avx2,
        },
    .search_shrink =
        {
            [QOBS_KERNEL_F32] = qobs_search_shrink_f32_avx2,
            [QOBS_KERNEL_BF16] = qobs_search_shrink_bf16_avx2,
            [QOBS_KERNEL_F16] = qobs_search_shrink_f16_avx2,
        },
};

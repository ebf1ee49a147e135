/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The block of GPTQ, plain C for every instruction set; included by src/ISA/hessian.c with its ENTRY. Flags decide how
 * wide the compiler makes the loops over rows.
 *
 * Accumulators: w, from which each column's products are subtracted in the order of the columns; nothing is fused.
 * Overflow: infinity and NaN spread as in upstream's tensors.
 * Tails: rows are padded by the caller.
 * In flight: the later columns are updated for GPTQ_TOGETHER columns at once, so that w is loaded and stored once for
 *   that many products. */
#include "kernels/kernel_gptq.h"
#include "number/grid.h"
#include "templates/inline.h"

enum { GPTQ_TOGETHER = 8, GPTQ_LANES = 2 * HESSIAN_LANES, GPTQ_VECTORS = QOBS_GPTQ_ROWS / GPTQ_LANES };

typedef float gptq_vector __attribute__((vector_size(GPTQ_LANES * sizeof(float)), aligned(4), may_alias));

/* Rounds to the dtype, a constant. A NaN of arithmetic is quiet. */
ALWAYS_INLINE float gptq_rounded(qobs_dtype dtype, float x)
{
    const uint32_t bits = bits_of_float(x);
    if (dtype == QOBS_BF16)
        return float_of_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
    return dtype == QOBS_F16 ? float_of_f16(f16_of_float(x)) : x;
}

ALWAYS_INLINE void gptq_column(const struct quantizer *quantizer, qobs_dtype dtype, float diagonal,
                               const float *restrict scale, const float *restrict add, const float *restrict sub,
                               const float *restrict w, float *restrict q, float *restrict error)
{
    const struct grid_float grid = {quantizer->min_normal, quantizer->shifter};
    const float quant_min = (float)quantizer->quant_min, quant_max = (float)quantizer->quant_max;
    KEEP_LOOP
    for (size_t r = 0; r < QOBS_GPTQ_ROWS; r++) {
        const float s = scale[r];
        float x = w[r] / s + add[r];
        x = x < quant_min ? quant_min : x;
        x = x > quant_max ? quant_max : x;
        x = gptq_rounded(dtype, grid_round_float(grid, x) - sub[r]);
        q[r] = gptq_rounded(dtype, x * s);
        error[r] = (w[r] - q[r]) / diagonal;
    }
}

/* A column after `count` columns of errors, a constant. factor: of the first of them. */
ALWAYS_INLINE void gptq_update(float *w, const float *error, size_t count, const float *factor, size_t factor_stride)
{
    gptq_vector x[GPTQ_VECTORS];
    for (int v = 0; v < GPTQ_VECTORS; v++)
        x[v] = *(const gptq_vector *)(const void *)(w + v * GPTQ_LANES);
    for (size_t k = 0; k < count; k++)
        for (int v = 0; v < GPTQ_VECTORS; v++)
            x[v] -= *(const gptq_vector *)(const void *)(error + k * QOBS_GPTQ_ROWS + v * GPTQ_LANES) *
                    factor[k * factor_stride];
    for (int v = 0; v < GPTQ_VECTORS; v++)
        *(gptq_vector *)(void *)(w + v * GPTQ_LANES) = x[v];
}

ALWAYS_INLINE void gptq_block(const struct quantizer *quantizer, qobs_dtype dtype, const float *factor, size_t stride,
                              size_t columns, const float *scale, const float *add, const float *sub, float *w,
                              float *q, float *error)
{
    for (size_t first = 0; first < columns; first += GPTQ_TOGETHER) {
        const size_t end = columns - first < GPTQ_TOGETHER ? columns : first + GPTQ_TOGETHER;
        for (size_t k = first; k < end; k++) {
            const size_t at = k * QOBS_GPTQ_ROWS;
            gptq_column(quantizer, dtype, factor[k * stride + k], scale + at, add + at, sub + at, w + at, q + at,
                        error + at);
            for (size_t j = k; j < end; j++)
                gptq_update(w + j * QOBS_GPTQ_ROWS, error + at, 1, factor + k * stride + j, stride);
        }
        for (size_t j = end; j < columns; j++)
            gptq_update(w + j * QOBS_GPTQ_ROWS, error + first * QOBS_GPTQ_ROWS, GPTQ_TOGETHER,
                        factor + first * stride + j, stride);
    }
}

QOBS_GPTQ_BLOCK(ENTRY(qobs_gptq_block))
{
    CLEARS_UPPER_HALVES
    if (dtype == QOBS_BF16)
        gptq_block(quantizer, QOBS_BF16, factor, factor_stride, columns, scale, add, sub, w, q, error);
    else if (dtype == QOBS_F16)
        gptq_block(quantizer, QOBS_F16, factor, factor_stride, columns, scale, add, sub, w, q, error);
    else
        gptq_block(quantizer, QOBS_F32, factor, factor_stride, columns, scale, add, sub, w, q, error);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The numbers that fake-quantize and the searches round to, as their kernels read them. Made by qobs_quantizer_for_...
 * (number/format.h); see number/grid.h for the grids. */
#pragma once

#include "number/q8_block.h"

struct quantizer {
    double quant_min, quant_max; /* limits of quantized numbers */
    float min_normal;            /* grid_float of the numbers between the limits */
    uint32_t shifter;
    double wide_min_normal; /* grid_double of the same numbers */
    uint64_t wide_shifter;
    bool in_double;     /* the numbers do not fit a grid_float */
    bool through_float; /* F64 is rounded to float first */
    bool torch;         /* arithmetic of torch.fake_quantize_per_tensor_affine instead of compressed-tensors' */
    bool in_float;      /* The scale is float. BF16 and F16 are then computed in float and rounded once, at the end, not
                         * after every operation. F64 is float after rounding to the grid. */
    bool bounded;       /* no element is NaN or larger than 2^14 scales; kernels of codes may use it */
    bool next_rows;     /* the caller measures what follows the runs of a call next; kernels of codes may fetch it */
    bool in_runtime;    /* codes of a runtime's operator: of F32, BF16 and F16 in float, without sums of errors */
    bool product;       /* in_runtime: codes are those of kernel product_rows: no quotient, one product */
    bool fused;         /* product: the zero point is added to the exact product */
    unsigned char nan;  /* product: the code of NaN */
    float zero_scale;   /* product: scales are multiplied by 1 / global scale, and this replaces 0; 0: neither */
    enum q8_block block; /* in_runtime: codes lie in blocks with their scales, those of kernel q8_blocks */
};

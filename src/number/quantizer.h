/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The target of fake-quantize and of range search: its limits, its grid, and the arithmetic. Made by the functions
 * qobs_quantizer_for_... of number/format.h. */
#ifndef QOBS_QUANTIZER_H
#define QOBS_QUANTIZER_H

#include <stdbool.h>
#include <stdint.h>

struct qobs_quantizer {
    double quant_min, quant_max; /* limits of quantized numbers */
    float floor;                 /* with shifter: the numbers between the limits as a grid_float of number/grid.h */
    uint32_t shifter;
    double wide_floor; /* with wide_shifter: the same numbers as a grid_double */
    uint64_t wide_shifter;
    bool in_double;     /* the numbers do not fit a grid_float */
    bool through_float; /* F64 is rounded to float first */
    bool torch;         /* arithmetic of torch.fake_quantize_per_tensor_affine, otherwise that of compressed-tensors */
    bool in_float;      /* scale is float: BF16 and F16 are computed in float and rounded once at the end; otherwise every
                         * operation rounds to the dtype. F64 is float after rounding to the grid. */
};

#endif

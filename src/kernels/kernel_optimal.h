/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels of the search for optimal scales. Elements w are finite floats and weights h non-negative doubles; both
 * arrays are aligned to 64 bytes and end with zeros up to a multiple of 16. Sums of a group are eight sums in double,
 * of elements 8 apart in ascending order, which are added as ((0+1)+(2+3))+((4+5)+(6+7)). */
#pragma once

#include "kernels/slot.h"

/* What a group is quantized to: the integers quant_min to quant_max, or e2m1. */
struct optimal_number {
    bool e2m1;
    float quant_min, quant_max;
};

/* Returns sum h * e * e with e = (q - zero_point) * scale - w in double, of n elements. q is w / scale + zero_point,
 * one float rounding each, limited, and rounded to the nearest number, ties to even. */
#define QOBS_OPTIMAL_ERROR(name)                                                                                       \
    double name(const struct optimal_number *number, const float *w, const double *h, size_t n, float scale,           \
                float zero_point)

#define QOBS_OPTIMAL_SLOTS(EACH, with) EACH(ONE, optimal_error, QOBS_OPTIMAL_ERROR, with)

QOBS_OPTIMAL_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_OPTIMAL(isa) QOBS_OPTIMAL_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_OPTIMAL)

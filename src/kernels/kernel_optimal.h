/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels of the search for optimal scales. Elements w are finite floats and weights h non-negative doubles; both
 * arrays are aligned to 64 bytes and end with zeros up to a multiple of QOBS_OPTIMAL_LANES. Sums of a group are eight
 * sums in double, of elements 8 apart in ascending order, which are added as ((0+1)+(2+3))+((4+5)+(6+7)). */
#pragma once

#include "kernels/slot.h"

enum { QOBS_OPTIMAL_LANES = 16 };

/* The numbers that a group is quantized to: the integers quant_min to quant_max, or e2m1. */
struct optimal_number {
    bool e2m1;
    float quant_min, quant_max;
};

/* Returns sum h * e * e with e = (q - zero_point) * scale - w in double, of n elements. q is w / scale + zero_point,
 * one float rounding each, limited, and rounded to the nearest number, ties to even. */
#define QOBS_OPTIMAL_ERROR(name)                                                                                       \
    double name(const struct optimal_number *number, const float *w, const double *h, size_t n, float scale,           \
                float zero_point)

/* The same of e2m1 for 8 scales at once, in float: w * (1 / scale) is rounded, and w are magnitudes. h are floats,
 * padded as w. */
enum { QOBS_OPTIMAL_SCALES = 8 };
#define QOBS_OPTIMAL_NEARLY(name)                                                                                      \
    void name(const float *w, const float *h, size_t n, const float scale[QOBS_OPTIMAL_SCALES],                        \
              float error[QOBS_OPTIMAL_SCALES])

/* lo = min(0, w), hi = max(0, w); sums of h * w * w, h * |w| and h. */
struct optimal_moments {
    float lo, hi;
    double energy, magnitude, weight;
};

#define QOBS_OPTIMAL_MOMENTS(name) void name(const float *w, const double *h, size_t n, struct optimal_moments *moments)

/* beyond[0] = sum h * x * x and beyond[1] = sum h * x with x = max(0, w - above, -w - below), above, below >= 0. */
#define QOBS_OPTIMAL_BEYOND(name)                                                                                      \
    void name(const float *w, const double *h, size_t n, float above, float below, double beyond[2])

/* The magnitudes that an element is quantized to, from 0 on. Step j leads to magnitude j + 1: from the scale
 * |w| * inverse_mid[j] downwards an element takes it. It adds h * |w| * gain[j][0] to sum h * |w| * q, and
 * h * gain[j][1] to sum h * q * q. Negative elements take `negative` steps, others `positive`. */
enum { QOBS_OPTIMAL_STEPS = 256, QOBS_OPTIMAL_CHUNK = 128 };
struct optimal_steps {
    size_t positive, negative; /* at most QOBS_OPTIMAL_STEPS - 1 */
    float inverse_mid[QOBS_OPTIMAL_STEPS];
    double gain[QOBS_OPTIMAL_STEPS][2] __attribute__((aligned(16)));
    /* sums of gain[0] to gain[j - 1]: magnitude j and its square */
    double taken[QOBS_OPTIMAL_STEPS][2] __attribute__((aligned(16)));
};

/* Scratch of QOBS_OPTIMAL_CURVE in bytes, aligned to 64, for that many scales and steps. */
#define QOBS_OPTIMAL_CURVE_SCRATCH(scales, steps)                                                                      \
    (((scales) + 1) * 16 + QOBS_OPTIMAL_CHUNK * (steps) * sizeof(uint32_t) + 2 * 64 + QOBS_OPTIMAL_CHUNK * 20)

/* Errors of scales whose bits are (first + k) << 16, for k < count: error[k] = sum h * e * e up to rounding of 1e-15 of
 * `energy` an operation. An element takes a step too early or too late where the scale of the step is within 2^-22 of
 * the candidate. count: at most 4095. error has capacity for a multiple of 8 of them. */
#define QOBS_OPTIMAL_CURVE(name)                                                                                       \
    void name(const struct optimal_steps *steps, const float *w, const double *h, size_t n, uint32_t first,            \
              size_t count, double energy, double *error, void *scratch)

/* The cost of the limits: excess[c] = sum h * ((w - p * scale)^2 - (w - q * scale)^2) with p = lowest + c for c < caps.
 * The sum is over elements whose rounded magnitude q, w / scale limited to `highest`, is above p. w is not negative,
 * scale positive. w is in descending order. Rounding of w / scale is that of double. w and h are not padded; excess
 * has capacity for a multiple of 4 caps. */
#define QOBS_OPTIMAL_EXCESS(name)                                                                                      \
    void name(const float *w, const double *h, size_t n, double scale, double highest, double lowest, size_t caps,     \
              double *excess)

#define QOBS_OPTIMAL_SLOTS(EACH, with)                                                                                 \
    EACH(ONE, optimal_error, QOBS_OPTIMAL_ERROR, with)                                                                 \
    EACH(ONE, optimal_nearly, QOBS_OPTIMAL_NEARLY, with)                                                               \
    EACH(ONE, optimal_moments, QOBS_OPTIMAL_MOMENTS, with)                                                             \
    EACH(ONE, optimal_beyond, QOBS_OPTIMAL_BEYOND, with)                                                               \
    EACH(ONE, optimal_curve, QOBS_OPTIMAL_CURVE, with)                                                                 \
    EACH(ONE, optimal_excess, QOBS_OPTIMAL_EXCESS, with)

QOBS_OPTIMAL_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_OPTIMAL(isa) QOBS_OPTIMAL_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_OPTIMAL)

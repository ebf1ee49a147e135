/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors of optimal scales, plain C for every instruction set; included by src/ISA/optimal.c with its ENTRY. Loops have
 * a fixed number of lanes, which the compiler puts into vectors.
 *
 * Accumulators: eight doubles. q - zero_point has 9 bits and the scale 24, so their product is exact.
 * Overflow: |w / scale| may be infinite and is limited before it is rounded.
 * Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h); a scale other than 0. */
#include "kernels/kernel_optimal.h"
#include "number/number.h"
#include "templates/inline.h"

enum { LANES = 8 };

/* Adding and subtracting it rounds a float of magnitude below 2^22 to an integer. */
#define ROUNDER 0x1.8p23f

ALWAYS_INLINE double sum_of_lanes(const double lane[LANES])
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

ALWAYS_INLINE float rounded_integer(float x, float zero_point, float quant_min, float quant_max)
{
    const float y = x + zero_point, low = y < quant_min ? quant_min : y, q = low > quant_max ? quant_max : low;
    return q + ROUNDER - ROUNDER - zero_point;
}

/* Numbers of e2m1 are 0.5, 1 or 2 apart: below 2, below 4, and from there to 6. */
ALWAYS_INLINE float rounded_e2m1(float x)
{
    const float a = x < 0 ? -x : x, limited = a > 6 ? 6 : a;
    const float rounder = limited < 2 ? ROUNDER / 2 : limited < 4 ? ROUNDER : ROUNDER * 2;
    const float q = limited + rounder - rounder;
    return x < 0 ? -q : q;
}

ALWAYS_INLINE double error_sum(bool e2m1, const struct optimal_number *number, const float *w, const double *h,
                               size_t n, float scale, float zero_point)
{
    const float quant_min = number->quant_min, quant_max = number->quant_max;
    const double wide = (double)scale;
    double lane[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES) {
        float q[LANES];
        for (int l = 0; l < LANES; l++) {
            const float x = w[i + (size_t)l] / scale;
            q[l] = e2m1 ? rounded_e2m1(x) : rounded_integer(x, zero_point, quant_min, quant_max);
        }
        for (int l = 0; l < LANES; l++) {
            const double e = (double)q[l] * wide - (double)w[i + (size_t)l];
            lane[l] += h[i + (size_t)l] * e * e;
        }
    }
    return sum_of_lanes(lane);
}

QOBS_OPTIMAL_ERROR(ENTRY(qobs_optimal_error))
{
    return number->e2m1 ? error_sum(true, number, w, h, n, scale, 0)
                        : error_sum(false, number, w, h, n, scale, zero_point);
}

QOBS_OPTIMAL_MOMENTS(ENTRY(qobs_optimal_moments))
{
    double energy[LANES] = {0}, magnitude[LANES] = {0}, weight[LANES] = {0};
    float lo[LANES] = {0}, hi[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            const float x = w[i + (size_t)l];
            const double wide = (double)x, a = wide < 0 ? -wide : wide, g = h[i + (size_t)l];
            lo[l] = x < lo[l] ? x : lo[l];
            hi[l] = x > hi[l] ? x : hi[l];
            energy[l] += g * (wide * wide);
            magnitude[l] += g * a;
            weight[l] += g;
        }
    *moments = (struct optimal_moments){
        .energy = sum_of_lanes(energy), .magnitude = sum_of_lanes(magnitude), .weight = sum_of_lanes(weight)};
    for (int l = 0; l < LANES; l++) {
        moments->lo = lo[l] < moments->lo ? lo[l] : moments->lo;
        moments->hi = hi[l] > moments->hi ? hi[l] : moments->hi;
    }
}

QOBS_OPTIMAL_BEYOND(ENTRY(qobs_optimal_beyond))
{
    double up[LANES] = {0}, down[LANES] = {0};
    const double high = (double)above, low = (double)below;
    for (size_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            const double x = (double)w[i + (size_t)l], g = h[i + (size_t)l];
            const double a = x - high, b = -x - low, over = a > 0 ? a : 0, under = b > 0 ? b : 0;
            up[l] += g * (over * over);
            down[l] += g * (under * under);
        }
    beyond[0] = sum_of_lanes(up);
    beyond[1] = sum_of_lanes(down);
}

QOBS_OPTIMAL_EXCESS(ENTRY(qobs_optimal_excess))
{
    const double inverse = 1 / scale, rounder = 0x1.8p52;
    for (size_t c = 0; c < caps; c++) {
        const double cap = lowest + (double)c;
        double lane[LANES] = {0};
        for (size_t i = 0; i < n; i += LANES)
            for (int l = 0; l < LANES; l++) {
                const double x = (double)w[i + (size_t)l], y = x * inverse, limited = y < highest ? y : highest;
                const double q = limited + rounder - rounder, p = q < cap ? q : cap;
                const double free = x - q * scale, kept = x - p * scale;
                lane[l] += h[i + (size_t)l] * (kept * kept - free * free);
            }
        excess[c] = sum_of_lanes(lane);
    }
}

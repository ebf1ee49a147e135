/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Tables for bounds of int4 errors in 16-bit integers (struct native_int4). */
#include "range/native_int4.h"

#include <math.h>
#include <stdlib.h>

/* Tangents touch the power in the middle of the errors that they are for; the last one and the one for errors far
 * beyond a limit touch it here. FAR_SLOPE is what the second adds, in units of a slope. */
#define LAST_TANGENT 1100
#define FAR_TANGENT 2600
#define FAR_SLOPE 24000

/* k times a significand, rounded to eight bits as BF16 does, ties to even. */
static int level_of(int k, int significand)
{
    const int exact = abs(k) * significand;
    int shift = 0;
    while (exact >> shift >= 256)
        shift++;
    const int half = shift ? 1 << (shift - 1) : 0, odd = exact >> shift & 1;
    const int level = (exact + half - (half && !odd)) >> shift << shift;
    return (k < 0 ? -level : level) * 8;
}

static int limit(int k, int low, int high) { return k < low ? low : k > high ? high : k; }

static void make_steps(int quant_min, int quant_max, struct native_int4 *t)
{
    for (int m = 0; m < NATIVE_INT4_SIGNIFICANDS; m++)
        for (int k = -16; k < 16; k++) {
            const int low = level_of(limit(k, quant_min, quant_max), 128 + m);
            const int high = level_of(limit(k + 1, quant_min, quant_max), 128 + m);
            t->middle[m][k & 31] = (int16_t)((low + high) / 2);
            t->half[m][k & 31] = (int16_t)((high - low) / 2);
        }
}

/* The offset of the tangent of factor * e^p that has this slope. */
static double offset_of(double factor, double p, double slope)
{
    const double e = pow(slope / (factor * p), 1 / (p - 1));
    return factor * pow(e, p) - slope * e;
}

static void make_tangents(double p, struct native_int4 *t)
{
    const double factor = FAR_SLOPE / (p * (pow(FAR_TANGENT, p - 1) - pow(LAST_TANGENT, p - 1)));
    double offset[NATIVE_INT4_TANGENTS];
    for (int i = 0; i < NATIVE_INT4_TANGENTS; i++) {
        const double at = i == NATIVE_INT4_TANGENTS - 1 ? LAST_TANGENT : 32 * i + 16;
        t->slope[i] = (int16_t)(i == 0 ? 0 : lrint(factor * p * pow(at, p - 1)));
        offset[i] = t->slope[i] > 0 ? offset_of(factor, p, t->slope[i]) : 0;
    }
    const double last = offset[NATIVE_INT4_TANGENTS - 1], slope = t->slope[NATIVE_INT4_TANGENTS - 1];
    t->offset_unit = (int16_t)ceil(-last / 32000);
    for (int i = 0; i < NATIVE_INT4_TANGENTS; i++)
        t->offset[i] = (int16_t)floor(offset[i] / t->offset_unit);
    t->far_slope = FAR_SLOPE;
    t->far = (int16_t)ceil((last - offset_of(factor, p, slope + FAR_SLOPE)) / FAR_SLOPE);
    for (int i = 0; i < NATIVE_INT4_EXPONENTS; i++)
        t->unit[i] = (float)(NATIVE_INT4_ROUNDING / factor * exp2(p * (NATIVE_INT4_MIN_EXPONENT + i - 10)));
}

bool qobs_native_int4_applies(double p, double quant_min, double quant_max)
{
    return quant_max == 7 && quant_min >= -8 && quant_min <= -7 && p >= 2 && p <= 3;
}

void qobs_native_int4_make(double p, int quant_min, int quant_max, struct native_int4 *t)
{
    make_steps(quant_min, quant_max, t);
    make_tangents(p, t);
}

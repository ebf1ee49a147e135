/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 16 floats as one for the body of search_errors.inl.h, one by one. */
#ifndef QOBS_SCALAR_LANES_H
#define QOBS_SCALAR_LANES_H

#include <math.h>

#include "kernels/kernel_search.h"
#include "number/number.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

#define LANES_ABREAST 1
typedef struct {
    float f[16];
} lanes;

#define LANES_EACH(expression)                                                                                        \
    lanes r;                                                                                                          \
    for (int i = 0; i < 16; i++)                                                                                      \
        r.f[i] = expression;                                                                                          \
    return r

static inline lanes lanes_load(const float *p) { LANES_EACH(p[i]); }

static inline void lanes_store(float *p, lanes a)
{
    for (int i = 0; i < 16; i++)
        p[i] = a.f[i];
}

static inline lanes lanes_splat(float a) { LANES_EACH(a); }
static inline lanes lanes_add(lanes a, lanes b) { LANES_EACH(a.f[i] + b.f[i]); }
static inline lanes lanes_sub(lanes a, lanes b) { LANES_EACH(a.f[i] - b.f[i]); }
static inline lanes lanes_mul(lanes a, lanes b) { LANES_EACH(a.f[i] * b.f[i]); }
static inline lanes lanes_fma(lanes a, lanes b, lanes c) { LANES_EACH(fmaf(a.f[i], b.f[i], c.f[i])); }   /* a * b + c */
static inline lanes lanes_fnma(lanes a, lanes b, lanes c) { LANES_EACH(fmaf(-a.f[i], b.f[i], c.f[i])); } /* c - a * b */
static inline lanes lanes_abs(lanes a) { LANES_EACH(fabsf(a.f[i])); }

/* `negative` where x has a sign, elsewhere `other`. */
static inline lanes lanes_by_sign(lanes x, lanes negative, lanes other)
{
    LANES_EACH(bits_of_float(x.f[i]) >> 31 ? negative.f[i] : other.f[i]);
}

/* The sign of `sign` on the magnitude of a. */
static inline lanes lanes_copy_sign(lanes a, lanes sign) { LANES_EACH(copysignf(a.f[i], sign.f[i])); }

/* Of their bits as signed integers: of floats where none of the two is negative, and of bounds to floats of any sign. */
static inline lanes lanes_min_bits(lanes a, lanes b)
{
    LANES_EACH((int32_t)bits_of_float(a.f[i]) < (int32_t)bits_of_float(b.f[i]) ? a.f[i] : b.f[i]);
}

static inline lanes lanes_max_bits(lanes a, lanes b)
{
    LANES_EACH((int32_t)bits_of_float(a.f[i]) > (int32_t)bits_of_float(b.f[i]) ? a.f[i] : b.f[i]);
}

/* Minus the mantissa as a number from 1 up to below 2, for a biased exponent below 128. */
static inline lanes lanes_minus_mantissa(lanes a) { LANES_EACH(float_of_bits(bits_of_float(a.f[i]) | 0xbf800000)); }

struct lanes_table {
    const float *low, *high;
};

static inline struct lanes_table lanes_table(const float low[8], const float high[8])
{
    return (struct lanes_table){low, high};
}

/* low[exponent % 8] * high[exponent / 8] for a biased exponent below 64; the sign does not matter. */
static inline lanes lanes_look_up(struct lanes_table t, lanes a)
{
    LANES_EACH(t.low[bits_of_float(a.f[i]) >> 23 & 7] * t.high[bits_of_float(a.f[i]) >> 26 & 7]);
}

#ifdef QOBS_SLEEF
static inline lanes lanes_pow(lanes a, float exponent) { LANES_EACH(Sleef_cinz_powf1_u10purec(a.f[i], exponent)); }
#endif

/* The sums of four: of lanes 8 apart, then of those 4, 2 and 1 apart. */
static inline void lanes_fold(const lanes a[4], float sum[4])
{
    for (int i = 0; i < 4; i++) {
        lanes s = a[i];
        for (int apart = 8; apart > 0; apart /= 2)
            for (int j = 0; j < apart; j++)
                s.f[j] += s.f[j + apart];
        sum[i] = s.f[0];
    }
}

/* Rows of 16, `row` apart, as columns. */
static inline void lanes_turn(const float *x, size_t row, float *out)
{
    for (size_t i = 0; i < 16; i++)
        for (size_t column = 0; column < 16; column++)
            out[column * 16 + i] = x[i * row + column];
}

/* Is any lane of a less than that of *best? There *best becomes a and *at becomes `step`. NaN is not. */
static inline bool lanes_improve(lanes a, float step, lanes *best, lanes *at)
{
    bool any = false;
    for (int i = 0; i < 16; i++) {
        const bool less = a.f[i] < best->f[i];
        best->f[i] = less ? a.f[i] : best->f[i];
        at->f[i] = less ? step : at->f[i];
        any |= less;
    }
    return any;
}

#undef LANES_EACH
#endif

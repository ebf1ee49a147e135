/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* 16 floats as one for the body of search_errors.inl.h, one by one. */
#ifndef QOBS_SCALAR_LANES_H
#define QOBS_SCALAR_LANES_H

#include <math.h>

#include "kernels.h"
#include "number.h"
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

/* The lesser ones; b where a is NaN. */
static inline lanes lanes_least(lanes a, lanes b) { LANES_EACH(a.f[i] < b.f[i] ? a.f[i] : b.f[i]); }

/* The least of them, none of which is NaN. */
static inline float lanes_least_of(lanes a)
{
    float least = a.f[0];
    for (int i = 1; i < 16; i++)
        least = a.f[i] < least ? a.f[i] : least;
    return least;
}

/* The first n of a, at least 1, and infinity in the others. */
static inline lanes lanes_first(lanes a, size_t n) { LANES_EACH((size_t)i < n ? a.f[i] : INFINITY); }

/* A bit for each lane that is equal. */
static inline uint32_t lanes_equal(lanes a, lanes b)
{
    uint32_t mask = 0;
    for (int i = 0; i < 16; i++)
        mask |= (uint32_t)(a.f[i] == b.f[i]) << i;
    return mask;
}

/* A bit for each lane that is less than *least, the same in all lanes, and every lane before it; *least becomes the least of all.
 * NaN is not. */
static inline uint32_t lanes_improved(lanes a, lanes *least)
{
    const float *const v = a.f;
    float so_far = least->f[0];
    uint32_t mask = 0;
    for (int i = 0; i < 16; i++)
        if (v[i] < so_far) {
            so_far = v[i];
            mask |= UINT32_C(1) << i;
        }
    *least = lanes_splat(so_far);
    return mask;
}

#undef LANES_EACH
#endif

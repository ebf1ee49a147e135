/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Random tensors in every layout memory allows, for tests. */
#ifndef QOBS_TEST_LAYOUTS_H
#define QOBS_TEST_LAYOUTS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "qobs/qobs.h"

/* ---- Random things ----------------------------------------------------------------------------------------------- */

struct rng {
    uint64_t state;
};

static uint64_t next(struct rng *r) /* splitmix64 */
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int64_t between(struct rng *r, int64_t quant_min, int64_t quant_max)
{
    return quant_min + (int64_t)(next(r) % (uint64_t)(quant_max - quant_min + 1));
}

static bool chance(struct rng *r, int percent) { return between(r, 1, 100) <= percent; }

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

static const struct dtype {
    qobs_dtype dtype;
    size_t size;
    int exponent, mantissa; /* bits */
} dtypes[] = {{QOBS_F32, 4, 8, 23}, {QOBS_BF16, 2, 8, 7}, {QOBS_F16, 2, 5, 10}, {QOBS_F64, 8, 11, 52}};

static double f16_values[1 << 16];

static inline void make_f16_values(void)
{
    for (int bits = 0; bits < 1 << 16; bits++) {
        const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
        const double magnitude = exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                                 : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                                : ldexp(mantissa, -24);
        f16_values[bits] = bits & 0x8000 ? -magnitude : magnitude;
    }
}

static inline double value_of(const struct dtype *d, uint64_t bits)
{
    const uint32_t narrow = (uint32_t)(d->dtype == QOBS_BF16 ? bits << 16 : bits);
    float single;
    double value;
    switch (d->dtype) {
    case QOBS_F16:
        return f16_values[bits];
    case QOBS_F64:
        memcpy(&value, &bits, sizeof value);
        return value;
    default:
        memcpy(&single, &narrow, sizeof single);
        return (double)single;
    }
}

static inline uint64_t load_bits(const struct dtype *d, const void *p) { return get_bits(p, d->size); }

enum fill { ANY_FINITE, NEAR_ONE, TINY, CONSTANT, FILLS };

static uint64_t draw_finite(struct rng *r, const struct dtype *d, enum fill fill)
{
    const uint64_t fractions = (UINT64_C(1) << d->mantissa) - 1, exponents = (UINT64_C(1) << d->exponent) - 1;
    uint64_t exponent = next(r) % exponents; /* never all ones */
    if (fill == NEAR_ONE)
        exponent = exponents / 2 + (uint64_t)between(r, 0, 4) - 2;
    else if (fill == TINY)
        exponent = 0;
    uint64_t bits = exponent << d->mantissa | (next(r) & fractions);
    if (fill == TINY && chance(r, 30))
        bits = 0;
    return bits | next(r) % 2 << (d->mantissa + d->exponent);
}

static uint64_t draw_nonfinite(struct rng *r, const struct dtype *d, int nan_percent)
{
    const uint64_t infinity = ((UINT64_C(1) << d->exponent) - 1) << d->mantissa;
    const uint64_t sign = next(r) % 2 << (d->mantissa + d->exponent);
    const uint64_t payload = UINT64_C(1) + next(r) % ((UINT64_C(1) << d->mantissa) - 1);
    return sign | infinity | (chance(r, nan_percent) ? payload : 0);
}

/* ---- Tensors in memory ------------------------------------------------------------------------------------------- */

enum { DIMS = 5 };

struct tensor {
    const struct dtype *dtype;
    int ndim;
    int64_t shape[DIMS], strides[DIMS], elements;
    unsigned char *memory, *data; /* what is allocated; the element whose indices are all 0 */
    bool plain;                   /* C order without gaps, strides left out */
};

static inline bool step(const struct tensor *t, int64_t *index)
{
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (++index[d] < t->shape[d])
            return true;
        index[d] = 0;
    }
    return false;
}

static inline unsigned char *address(const struct tensor *t, const int64_t *index)
{
    unsigned char *p = t->data;
    for (int d = 0; d < t->ndim; d++)
        p += index[d] * t->strides[d];
    return p;
}

/* Strides for t->shape: any order of the dimensions, gaps, both directions, repetition, garbage where there is one
 * index only. Gaps between the elements are NaN, so that reading them shows. */
static inline void lay_out(struct rng *r, struct tensor *t)
{
    const bool permute = chance(r, 40), gaps = chance(r, 40), flip = chance(r, 40), repeat = chance(r, 20);
    const int64_t shift = chance(r, 40) ? between(r, 1, 63) : 0;
    int order[DIMS] = {0, 1, 2, 3, 4};
    int64_t at = (int64_t)t->dtype->size, first = shift;
    for (int d = t->ndim - 1; permute && d > 0; d--) {
        const int64_t other = between(r, 0, d);
        const int kept = order[d];
        order[d] = order[other];
        order[other] = kept;
    }
    t->plain = !permute && !gaps && !flip && !repeat && chance(r, 50);
    t->elements = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        const int d = order[i];
        const int64_t every = gaps && at < 1 << 25 && chance(r, 50) ? between(r, 2, 3) : 1;
        t->elements *= t->shape[d];
        t->strides[d] = at * every;
        if (repeat && chance(r, 40)) {
            t->strides[d] = 0;
            continue;
        }
        at *= every * t->shape[d] + (gaps && chance(r, 30));
        if (flip && chance(r, 60)) {
            first += t->strides[d] * (t->shape[d] - 1);
            t->strides[d] = -t->strides[d];
        }
        if (t->shape[d] == 1 && !t->plain && chance(r, 20))
            t->strides[d] = between(r, -1000000, 1000000);
    }
    t->memory = malloc((size_t)(at + shift));
    if (!t->memory)
        abort();
    memset(t->memory, 0xff, (size_t)(at + shift));
    t->data = t->memory + first;
}

static inline void fill_elements(struct rng *r, struct tensor *t, int nonfinite_percent)
{
    const enum fill fill = (enum fill)between(r, 0, FILLS - 1);
    const int sign = (int)between(r, 0, 3); /* 2: none negative, 3: none positive */
    const uint64_t sign_bit = UINT64_C(1) << (t->dtype->mantissa + t->dtype->exponent);
    const int nan_percent = (int)between(r, 0, 2) * 50;
    const uint64_t constant = draw_finite(r, t->dtype, ANY_FINITE);
    int64_t index[DIMS] = {0};
    do {
        uint64_t bits = fill == CONSTANT ? constant : draw_finite(r, t->dtype, fill);
        bits = sign == 2 ? bits & ~sign_bit : sign == 3 ? bits | sign_bit : bits;
        if (nonfinite_percent && chance(r, nonfinite_percent))
            bits = draw_nonfinite(r, t->dtype, nan_percent);
        put_bits(address(t, index), bits, t->dtype->size);
    } while (step(t, index));
}

static inline qobs_tensor view_of(const struct tensor *t)
{
    return (qobs_tensor){.struct_size = sizeof(qobs_tensor),
                         .data = t->data,
                         .dtype = t->dtype->dtype,
                         .ndim = t->ndim,
                         .shape = t->shape,
                         .strides = t->plain ? NULL : t->strides};
}

#endif

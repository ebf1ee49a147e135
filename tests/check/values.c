/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "values.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* splitmix64 */
uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

size_t rng_below(struct rng *rng, size_t n) { return (size_t)(rng_next(rng) >> 32) % n; }

const struct dtype dtypes[QOBS_KERNEL_DTYPES] = {
    [QOBS_KERNEL_F32] = {"f32", 4, 23, UINT64_C(1) << 31, UINT64_C(0x7f800000)},
    [QOBS_KERNEL_BF16] = {"bf16", 2, 7, UINT64_C(1) << 15, UINT64_C(0x7f80)},
    [QOBS_KERNEL_F16] = {"f16", 2, 10, UINT64_C(1) << 15, UINT64_C(0x7c00)},
    [QOBS_KERNEL_F64] = {"f64", 8, 52, UINT64_C(1) << 63, UINT64_C(0x7ff0000000000000)},
};

void store_bits(const struct dtype *dtype, void *p, uint64_t bits)
{
    const uint16_t b16 = (uint16_t)bits;
    const uint32_t b32 = (uint32_t)bits;
    switch (dtype->size) {
    case 2:
        memcpy(p, &b16, sizeof b16);
        break;
    case 4:
        memcpy(p, &b32, sizeof b32);
        break;
    default:
        memcpy(p, &bits, sizeof bits);
        break;
    }
}

/* 2^n for n >= -1074, which is ldexp(1, n) for a twentieth of the time. */
static double power_of_two(int n)
{
    const uint64_t bits = n < -1022 ? UINT64_C(1) << (n + 1074) : (uint64_t)(n + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* From sign, exponent and mantissa, for all types alike; every element is exact in double. */
double value_of_bits(const struct dtype *dtype, uint64_t bits)
{
    const uint64_t hidden = UINT64_C(1) << dtype->mantissa, mantissa = bits & (hidden - 1);
    const int exponent = (int)((bits & dtype->infinity) >> dtype->mantissa);
    const int bias = (int)(dtype->infinity >> dtype->mantissa) / 2;
    const int lowest = 1 - bias - dtype->mantissa; /* of the last mantissa bit of a subnormal */
    double magnitude;
    if ((bits & dtype->infinity) == dtype->infinity)
        magnitude = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = (double)mantissa * power_of_two(lowest);
    else {
        const uint64_t as_double = (uint64_t)(exponent - bias + 1023) << 52 | mantissa << (52 - dtype->mantissa);
        memcpy(&magnitude, &as_double, sizeof magnitude);
    }
    return bits & dtype->sign ? -magnitude : magnitude;
}

static bool same_order(const struct dtype *dtype, uint64_t a, uint64_t b)
{
    const double x = value_of_bits(dtype, a), y = value_of_bits(dtype, b);
    const int64_t p = order_of_bits(dtype, a), q = order_of_bits(dtype, b), infinity = (int64_t)dtype->infinity;
    if ((isnan(x) != 0) != (p > infinity || p < -infinity) || (isinf(x) != 0) != (p == infinity || p == -infinity))
        return false;
    return isnan(x) || isnan(y) || ((x < y) == (p < q) && (x > y) == (p > q));
}

bool order_is_that_of_values(const struct dtype *dtype)
{
    const uint64_t top = dtype->sign | (dtype->sign - 1);
    const uint64_t apart = dtype->size == 2 ? 1 : top / UINT64_C(99991);
    bool right = true;
    for (uint64_t bits = 0; right; bits += apart) {
        const uint64_t far = top - bits, next = bits < top ? bits + 1 : bits;
        right = same_order(dtype, bits, next) && same_order(dtype, next, bits) && same_order(dtype, bits, far) &&
                same_order(dtype, bits, bits ^ dtype->sign);
        if (top - bits < apart)
            break;
    }
    for (uint64_t around = 0; around < 3; around++) /* of zero, of the smallest normal number, of infinity */
        for (uint64_t at = 0; at < 3; at++) {
            const uint64_t special[] = {1, UINT64_C(1) << dtype->mantissa, dtype->infinity};
            const uint64_t bits = special[at] + around - 1;
            right = right && same_order(dtype, bits, bits + 1) && same_order(dtype, bits | dtype->sign, (bits + 1) | dtype->sign);
        }
    return right;
}

uint64_t draw(struct rng *rng, const struct dtype *dtype, enum kind kind)
{
    const uint64_t random = rng_next(rng), either = random & dtype->sign;
    const uint64_t hidden = UINT64_C(1) << dtype->mantissa, mantissa = random & (hidden - 1);
    const uint64_t quiet = hidden >> 1;
    const uint64_t exponent = random & dtype->infinity; /* all ones only if it is made so: */
    const uint64_t finite = exponent == dtype->infinity ? exponent - hidden : exponent;
    const uint64_t normal = finite == 0 ? hidden : finite;
    switch (kind) {
    case ZERO:
        return 0;
    case MINUS_ZERO:
        return dtype->sign;
    case POSITIVE:
        return normal | mantissa;
    case NEGATIVE:
        return dtype->sign | normal | mantissa;
    case SUBNORMAL:
        return either | (mantissa ? mantissa : 1);
    case LARGEST:
        return either | (dtype->infinity - 1);
    case FINITE:
        return either | finite | mantissa;
    case INFINITE:
        return either | dtype->infinity;
    case QUIET_NAN:
        return either | dtype->infinity | mantissa | quiet;
    case SIGNALLING_NAN:
        return either | dtype->infinity | (mantissa & ~quiet) | 1;
    default:
        return random & (dtype->sign | (dtype->sign - 1));
    }
}

const char *const data_names[DATA] = {
    [FINITE_RUNS] = "finite",
    [NON_NEGATIVE] = "non-negative",
    [NON_POSITIVE] = "non-positive",
    [SPARSE] = "one to three not finite",
    [MIXED] = "mixed",
    [UNIFORM] = "of one kind",
};

/* Pieces of random length, each of one of the first `kinds` kinds; a third of them repeat one value. */
static void fill_pieces(struct rng *rng, const struct dtype *dtype, size_t kinds, unsigned char *p, size_t n)
{
    static const size_t longest[] = {2, 9, 40, 300};
    while (n > 0) {
        const enum kind kind = (enum kind)rng_below(rng, kinds);
        const bool constant = rng_below(rng, 3) == 0;
        size_t piece = 1 + rng_below(rng, longest[rng_below(rng, 4)]);
        piece = piece < n ? piece : n;
        uint64_t bits = draw(rng, dtype, kind);
        for (size_t i = 0; i < piece; i++, p += dtype->size) {
            store_bits(dtype, p, bits);
            if (!constant)
                bits = draw(rng, dtype, kind);
        }
        n -= piece;
    }
}

/* One sign, in which a zero of either sign may lie. */
static void fill_one_sign(struct rng *rng, const struct dtype *dtype, uint64_t sign, unsigned char *p, size_t n)
{
    const enum kind kind = rng_below(rng, 4) == 0 ? SUBNORMAL : FINITE;
    for (size_t i = 0; i < n; i++)
        store_bits(dtype, p + i * dtype->size, (draw(rng, dtype, kind) & ~dtype->sign) | sign);
    if (n > 0 && rng_below(rng, 2) == 0)
        store_bits(dtype, p + rng_below(rng, n) * dtype->size, draw(rng, dtype, rng_below(rng, 2) ? ZERO : MINUS_ZERO));
}

void fill_data(struct rng *rng, const struct dtype *dtype, enum data data, unsigned char *p, size_t n)
{
    switch (data) {
    case NON_NEGATIVE:
        fill_one_sign(rng, dtype, 0, p, n);
        break;
    case NON_POSITIVE:
        fill_one_sign(rng, dtype, dtype->sign, p, n);
        break;
    case MIXED:
        fill_pieces(rng, dtype, KINDS, p, n);
        break;
    case UNIFORM: {
        const enum kind kind = (enum kind)rng_below(rng, KINDS);
        for (size_t i = 0; i < n; i++)
            store_bits(dtype, p + i * dtype->size, draw(rng, dtype, kind));
        break;
    }
    default:
        fill_pieces(rng, dtype, FINITE_KINDS, p, n);
        if (data == SPARSE && n > 0)
            for (size_t i = 1 + rng_below(rng, 3); i > 0; i--)
                store_bits(dtype, p + rng_below(rng, n) * dtype->size,
                           draw(rng, dtype, (enum kind)(INFINITE + rng_below(rng, 3))));
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Element types, what their bits mean, and the data kernels are tried on. */
#ifndef QOBS_CHECK_VALUES_H
#define QOBS_CHECK_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *rng);
size_t rng_below(struct rng *rng, size_t n);

struct dtype {
    const char *name;
    size_t size;   /* bytes */
    int mantissa;  /* explicit bits */
    uint64_t sign; /* the bit */
    uint64_t infinity;
};

extern const struct dtype dtypes[QOBS_KERNEL_DTYPES];

static inline uint64_t load_sized(const void *p, size_t size)
{
    uint16_t b16;
    uint32_t b32;
    uint64_t b64;
    switch (size) {
    case 2:
        memcpy(&b16, p, sizeof b16);
        return b16;
    case 4:
        memcpy(&b32, p, sizeof b32);
        return b32;
    default:
        memcpy(&b64, p, sizeof b64);
        return b64;
    }
}

static inline uint64_t load_bits(const struct dtype *dtype, const void *p) { return load_sized(p, dtype->size); }
void store_bits(const struct dtype *dtype, void *p, uint64_t bits);
double value_of_bits(const struct dtype *dtype, uint64_t bits);

/* Orders elements as their values: below a type's infinity an element's magnitude is less if its bits are. Zeros are
 * equal, NaN lies beyond the infinities. */
static inline int64_t order_of_bits(const struct dtype *dtype, uint64_t bits)
{
    const int64_t magnitude = (int64_t)(bits & (dtype->sign - 1));
    return bits & dtype->sign ? -magnitude : magnitude;
}

/* That it does, by decoded values: of all elements of 16 bits, and of many others each and its neighbours. */
bool order_is_that_of_values(const struct dtype *dtype);

/* Classes of elements; the first FINITE_KINDS are finite. "either" means of either sign. */
enum kind {
    ZERO,
    MINUS_ZERO,
    POSITIVE,  /* normal */
    NEGATIVE,  /* normal */
    SUBNORMAL, /* either */
    LARGEST,   /* largest finite, either */
    FINITE,    /* uniform bits */
    FINITE_KINDS,
    INFINITE = FINITE_KINDS, /* either */
    QUIET_NAN,               /* either */
    SIGNALLING_NAN,          /* either */
    ANYTHING,                /* uniform bits */
    KINDS
};

uint64_t draw(struct rng *rng, const struct dtype *dtype, enum kind kind);

/* How a buffer is filled; the first FINITE_DATA are finite. */
enum data {
    FINITE_RUNS, /* cut into pieces of random length, each of one finite kind, some of one value */
    NON_NEGATIVE,
    NON_POSITIVE,
    FINITE_DATA,
    SPARSE = FINITE_DATA, /* finite pieces, in which one to three elements are not finite */
    MIXED,                /* pieces of all kinds */
    UNIFORM,              /* of one kind */
    DATA
};

extern const char *const data_names[DATA];

void fill_data(struct rng *rng, const struct dtype *dtype, enum data data, unsigned char *p, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The histogram element by element: the definition of the result, and the tail of the vector forms. */
#include <math.h>
#include <string.h>

#include "kernels/kernel_histogram.h"
#include "number/number.h"

static inline float load_f32(const unsigned char *x)
{
    float f;
    memcpy(&f, x, sizeof f);
    return f;
}

static inline float load_bf16(const unsigned char *x)
{
    uint16_t h;
    memcpy(&h, x, sizeof h);
    return float_of_bf16(h);
}

static inline float load_f16(const unsigned char *x)
{
    uint16_t h;
    memcpy(&h, x, sizeof h);
    return float_of_f16(h);
}

static inline float load_f64(const unsigned char *x)
{
    double d;
    memcpy(&d, x, sizeof d);
    return (float)d;
}

/* Adds a minimum and a maximum; zeros become +0. */
static inline void add_extrema(struct extrema *extrema, float min, float max)
{
    extrema->min = min < extrema->min ? min + 0.0f : extrema->min;
    extrema->max = max > extrema->max ? max + 0.0f : extrema->max;
}

static inline void add_element(const struct binning *b, float x, uint32_t *counters, struct extrema *extrema)
{
    x = b->magnitude ? fabsf(x) : x;
    if (x >= b->lo && x <= b->hi && !(b->skip_zeros && x == 0))
        counters[qobs_bin_index(b, x)]++;
    if (!isfinite(x)) {
        extrema->nonfinite.nan += isnan(x) != 0;
        extrema->nonfinite.inf += isinf(x) != 0;
    } else if (!(b->skip_zeros && x == 0)) {
        add_extrema(extrema, x, x);
    }
}

/* n elements of `size` bytes each. */
static inline __attribute__((always_inline)) void add_elements(float (*load)(const unsigned char *), size_t size,
                                                               const struct binning *b, const unsigned char *x,
                                                               size_t n, uint32_t *counters, struct extrema *extrema)
{
    for (size_t i = 0; i < n; i++)
        add_element(b, load(x + i * size), counters, extrema);
}

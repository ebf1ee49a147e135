/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors |q - x|^norm for the search kernels. Kernels take elements of magnitude below 0.5, so elements and scales are
 * multiplied by 2^prescale_exp first. A kernel's sum is then an error in units of qobs_search_error_unit(). */
#pragma once

#include <string.h>

#include "base/runtime.h"
#include "kernels/kernels.h"
#include "qobs/qobs.h"
#include "range/range_params.h"

/* The unit 2^(-prescale_exp * norm - sum_exp) is a product of two table entries. */
enum { MAX_PRESCALE_EXP = 1024, FINE_UNITS = 32, COARSE_UNITS = 2 * MAX_PRESCALE_EXP / FINE_UNITS };

struct search_norm {
    struct error_norm errors; /* for kernels */
    double sum_exp;           /* kernels enlarge their sums by 2^sum_exp, to use all exponents of float */
    double fine_unit[FINE_UNITS], coarse_unit[COARSE_UNITS];
};

/* QOBS_ERROR_UNSUPPORTED: value is not 1, 2 or 3, and this build is without SLEEF. */
int qobs_search_norm(struct search_norm *norm, double value, qobs_error *error);

/* The exponent for elements of that dtype and that largest magnitude. Both 2^exponent and its reciprocal are numbers of
 * the dtype. */
int qobs_search_prescale_exp(double magnitude, qobs_dtype dtype);
double qobs_search_error_unit(const struct search_norm *norm, int prescale_exp);

/* 2^prescale_exp; replaces a call of ldexp. */
static inline double qobs_search_prescale(int prescale_exp)
{
    const uint64_t bits = (uint64_t)(prescale_exp + 1023) << 52;
    double factor;
    memcpy(&factor, &bits, sizeof factor);
    return prescale_exp > -1023 ? factor : 0x1p-1023; /* subnormal */
}

/* The reciprocal of a candidate's scale and its rounding offset, as kernels read them. */
void qobs_search_candidate(bool integers, float scale, float zero_point, float *inverse, float *offset);

/* Adds to error[i] the error of candidate i over n floats at any address. weight: n floats; NULL: all 1. zero_point:
 * one for each candidate; NULL: all 0. quantizer: integers or a signed float format; not in_double. */
void qobs_search_errors(const struct kernel_table *kernels, const struct quantizer *quantizer,
                        const struct search_norm *norm, const float *x, const float *weight, size_t n,
                        size_t candidates, const float *scale, const float *zero_point, double *error);

/* ---- Upstream's own arithmetic ----------------------------------------------------------------------------------- */

/* On BF16 and F16 llm-compressor fake-quantizes in the dtype, one rounding for each operation. The mse observers also
 * round the error, its power and the sum of a qparam to the dtype, and the exponent itself: 2.4 is 2.40625 in BF16.
 * imatrix_mse computes these in float up to 0.14.0. */
struct native_search {
    bool active; /* false: the search is in float */
    bool is_bf16;
    struct native_norm norm;
    double exponent; /* norm as the dtype has it */
    double largest;  /* the error that the first candidate has to be below */
    double *table;   /* owned; NULL: none */
    float *fine;     /* owned; NULL: none */
};

/* Decides whether ranges of that dtype are searched in upstream's arithmetic, and makes the table of powers. */
int qobs_native_search_begin(struct native_search *n, const struct grid_params *params, qobs_dtype dtype,
                             const struct runtime *runtime, qobs_error *error);
void qobs_native_search_release(struct native_search *n, const struct runtime *runtime);

/* Rounds the sum of a qparam as upstream does. */
double qobs_native_error(const struct native_search *n, double sum);

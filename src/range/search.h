/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search for the range with the least quantization error: llm-compressor's mse observers, and for other searches the errors
 * of any scales and zero points.
 *
 * An error is sum |q - x|^norm over the elements of a qparam, weighted where there is an importance: q is x quantized and back,
 * as fake-quantize does, with float for the dtype of x, but unrounded: x * (1 / scale) stands for x / scale, and the difference
 * is rounded once. What can come of that is another choice between candidates whose errors are the same to about 2e-7. */
#ifndef QOBS_SEARCH_H
#define QOBS_SEARCH_H

#include <string.h>

#include "formula/formula.h"
#include "plan/plan.h"
#include "range/range_params.h"
#include "range/search_record.h"

/* Arguments of a grid search. */
struct grid_search {
    const struct runtime *runtime; /* its executor runs the search */
    const struct qobs_kernels *kernels;
    const struct grid_params *params;
    const struct formula *formula;
    enum nonfinite_mode nonfinite;
    const qobs_plan *plan;
    const unsigned char *data;
    const float *column_weight; /* one for each index of the last dimension, normalised; NULL: all 1 */
    const float *global_scale;  /* NULL: there is none */
    bool each_global_scale;     /* version 2025-10: every candidate has the global scale of its own range */
    bool find_ranges;           /* min and max are output only: the search finds the ranges first */
    void *min, *max;            /* in the plan's dtype: the range of each qparam, in; the best range, out */
    struct search_record *record; /* NULL, or with arrays that may be NULL; receives steps, stop_step and what the arrays hold */
};

/* Writes the range of the best step of every qparam, or the expanded range if no step improved on the largest finite float.
 * Elements that are not finite count as 0 with NONFINITE_IGNORE. Otherwise their qparams never improve; with find_ranges and
 * NONFINITE_REFUSE the search fails. F64 is searched as float. QOBS_ERROR_UNSUPPORTED: the norm is not 1, 2 or 3 and this build is
 * without SLEEF. */
int qobs_grid_search(const struct grid_search *search, qobs_error *error);

/* |q - x|^norm, prepared once. Kernels take magnitudes below 0.5: elements are multiplied by 2^shift, and a kernel's sum is in units
 * of 2^(-shift * norm - boost). */
enum { MOST_SHIFT = 1024, UNITS_FINE = 32, UNITS_COARSE = 2 * MOST_SHIFT / UNITS_FINE };

struct search_norm {
    struct qobs_error_norm errors;
    double boost;
    double fine[UNITS_FINE], outer[UNITS_COARSE];
};

/* QOBS_ERROR_UNSUPPORTED: value is not 1, 2 or 3, and this build is without SLEEF. */
int qobs_search_norm(struct search_norm *norm, double value, qobs_error *error);

/* The power of two to multiply elements of that dtype and that largest magnitude by, and the unit of sums for it. */
int qobs_search_shift(double magnitude, qobs_dtype dtype);
double qobs_search_unit(const struct search_norm *norm, int shift);

/* That power of two, without the call that ldexp is. */
static inline double qobs_search_factor(int shift)
{
    const uint64_t bits = (uint64_t)(shift + 1023) << 52;
    double factor;
    memcpy(&factor, &bits, sizeof factor);
    return shift > -1023 ? factor : 0x1p-1023; /* which is subnormal */
}

/* What kernels want of a candidate beside its scale. */
void qobs_search_candidate(bool integers, float scale, float zero_point, float *inverse, float *shift);

/* Adds to error[i] that of candidate i, for n floats at any address; zero_point NULL: all 0. weight: n floats or NULL. quantizer:
 * integers, or a float format with a sign, none that computes in double. */
void qobs_search_errors(const struct qobs_kernels *kernels, const struct qobs_quantizer *quantizer,
                        const struct search_norm *norm, const float *x, const float *weight, size_t n, size_t candidates,
                        const float *scale, const float *zero_point, double *error);

#endif

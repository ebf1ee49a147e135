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

#include "plan/plan.h"
#include "kernels/kernels.h"

struct search_settings {
    int steps; /* candidates p = 1 - i / grid for i < steps */
    double grid;
    int64_t patience; /* the search ends after that many steps in a row at which no qparam improved, after one if 0; < 0: never */
    double norm, expand;
    bool optimize_global_scale; /* 2025-10: the global scale is derived anew for every candidate */
};

/* One entry a qparam each, but for stop_step; any may be NULL. */
struct search_report {
    int32_t *best_step;   /* the step whose range was taken; -1: none improved on the largest finite float */
    double *error;        /* of the range taken; where there is none, of the range as it came in */
    double *error_before; /* of the range as it came in, neither shrunk nor expanded */
    int32_t stop_step;    /* how many steps were taken */
};

/* min and max hold the range of the elements of every qparam in the plan's dtype, or with `find` nothing yet, and receive the range
 * chosen, where none improved the expanded one. importance: one float a column (last dimension of the value), already normalised, or NULL. global_scale:
 * the one to be used, or NULL. Elements that are not finite are left out with nonfinite=ignore; otherwise their qparams
 * never improve, and with `find` nonfinite=refuse fails. f64 is searched as float. Runs on the runtime's executor. QOBS_ERROR_UNSUPPORTED: norm is not 1, 2 or 3, and
 * this build is without SLEEF. */
int qobs_search_ranges(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                       const qobs_plan *plan, const struct search_settings *settings, const unsigned char *data,
                       const float *importance, const float *global_scale, bool find, void *min, void *max,
                       struct search_report *report, qobs_error *error);

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

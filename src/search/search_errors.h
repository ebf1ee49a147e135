/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors |q - x|^norm for the search kernels. Kernels take elements of magnitude below 0.5, so elements and scales are
 * multiplied by 2^prescale_exp first. A kernel's sum is then an error in units of qobs_search_error_unit(). */
#pragma once

#include <float.h>

#include "stages/range_rule.h"
#include "measure/gram.h"
#include "number/number.h"
#include "search/search_record.h"

/* The unit 2^(-prescale_exp * norm - sum_exp) is a product of two table entries. */
enum { MAX_PRESCALE_EXP = 1024, FINE_UNITS = 32, COARSE_UNITS = 2 * MAX_PRESCALE_EXP / FINE_UNITS };

struct search_norm {
    double norm;
    struct error_norm errors; /* for kernels */
    double sum_exp;           /* kernels enlarge their sums by 2^sum_exp, to use all exponents of float */
    double fine_unit[FINE_UNITS], coarse_unit[COARSE_UNITS];
};

/* Computes the tables: of any norm with SLEEF, else of 1, 2 and 3. */
void qobs_compute_search_norm(struct search_norm *norm, double value);

/* Looks the norm up, or computes its tables. QOBS_ERROR_UNSUPPORTED: it is not 1, 2, 2.4 or 3, and this build is
 * without SLEEF. */
int qobs_search_norm(struct search_norm *norm, double value, qobs_error *error);

/* The exponent for elements of that dtype and that largest magnitude. Both 2^exponent and its reciprocal are numbers of
 * the dtype. */
int qobs_search_prescale_exp(double magnitude, qobs_dtype dtype);
double qobs_search_error_unit(const struct search_norm *norm, int prescale_exp);

/* 2^prescale_exp; replaces a call of ldexp. */
static inline double qobs_search_prescale(int prescale_exp)
{
    return prescale_exp > -1023 ? double_of_bits((uint64_t)(prescale_exp + 1023) << 52) : 0x1p-1023; /* subnormal */
}

/* The reciprocal of a candidate's scale and its rounding offset, as kernels read them. */
static inline void qobs_search_candidate(bool integers, float scale, float zero_point, float *inverse, float *offset)
{
    const float reciprocal = 1 / scale;
    *inverse = reciprocal > FLT_MAX ? FLT_MAX : reciprocal;
    *offset = integers ? 0x1.8p23f + zero_point : zero_point;
}

/* ---- Upstream's own arithmetic ----------------------------------------------------------------------------------- */

/* On BF16 and F16 llm-compressor fake-quantizes in the dtype, one rounding for each operation. The mse observers also
 * round the error, its power and the sum of a qparam to the dtype, and the exponent itself: 2.4 is 2.40625 in BF16.
 * imatrix_mse computes these in float up to 0.14.0, and later those of a qparam with more than 512 elements. */
struct native_search {
    bool active; /* false: the search is in float */
    bool is_bf16;
    struct native_norm norm;
    double largest; /* the error that the first candidate has to be below */
    void *powers;   /* owned: the table or the fine table of `norm`; NULL: none */
};

/* Decides whether ranges of that dtype are searched in upstream's arithmetic, and makes the table of powers. elements:
 * of a qparam. */
int qobs_native_search_begin(struct native_search *n, const struct grid_params *params, qobs_dtype dtype,
                             int64_t elements, const struct runtime *runtime, qobs_error *error);
void qobs_native_search_release(struct native_search *n, const struct runtime *runtime);

/* Rounds the sum of a qparam as upstream does. */
double qobs_native_error(const struct native_search *n, double sum);

/* Squared errors of candidate scales for every qparam of a plan. Quark's and Model-Optimizer's searches are callbacks
 * of it. Each batch is searched while it is in memory; no element is stored. */

enum { MAX_CANDIDATES = 512 };

/* Callbacks run on any thread, each once for a qparam. */
struct candidates {
    size_t count; /* 1 to MAX_CANDIDATES, the same for all qparams */
    void *argument;
    /* Writes the numbers that a qparam is quantized to and its candidate scales, in compressed-tensors' arithmetic
     * without zero points. Used if prepare_factors is NULL. */
    void (*prepare)(void *argument, size_t qparam, struct quantizer *quantizer, float *scale);
    /* Writes factors instead of scales: x is multiplied by `up` before rounding and by `down` after it. */
    void (*prepare_factors)(void *argument, size_t qparam, struct quantizer *quantizer, float *up, double *down);
    /* Receives sum weight * (quantized x - x)^2 over the qparam's elements for each candidate. If the batch has a gram,
     * receives e^T H e of all its blocks; scales are then those of e2m1. */
    void (*store)(void *argument, size_t qparam, const double *error);
};

/* The workspace in doubles: partial sums, if there are few qparams. hessian_block: columns of a block of the Hessian,
 * whose errors go together; 0: there is none. */
size_t qobs_candidates_workspace(const qobs_plan *plan, size_t count, int64_t hessian_block);

/* Runs on the batch's executor. Errors do not depend on the number of threads or on strides. With NONFINITE_IGNORE
 * elements that are not finite count as 0; else they make the errors of their qparam NaN. */
void qobs_candidates_search(const struct search_batch *batch, const struct search_state *state,
                            const struct candidates *candidates, double *workspace);

/* Errors e^T H e of candidate scales for a block of columns, as Model-Optimizer's local Hessian has them
 * (modelopt/torch/quantization/model_calib.py, 0.47). H is the mean of x x^T over the tokens of a gram. */

/* Elements of a block: a multiple of 8, at most HESSIAN_ERRORS. Matrices of that many doubles are on the stack. */
enum { HESSIAN_ERRORS = 512 };

/* The candidates of NVIDIA Model-Optimizer's MseCalibrator and NVFP4MSECalibrator
 * (modelopt/torch/quantization/calib/mse.py): one list of multipliers of an amax for all qparams. */

/* The most multipliers of an MseCalibrator; the settings are checked against it. NVFP4MSECalibrator has one for each
 * positive number of e4m3. */
enum { QOBS_MAX_MULTIPLIERS = 512, QOBS_E4M3_MULTIPLIERS = 126 };

/* Multiplier i of MseCalibrator, of a qparam's amax. */
float qobs_multiplier(const struct multiplier_params *params, size_t i);

/* Multiplier i of NVFP4MSECalibrator, of the tensor's amax: positive number i of e4m3, relative to the largest one. */
float qobs_e4m3_multiplier(size_t i);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The searches of NVIDIA Model-Optimizer's calibrators MseCalibrator and NVFP4MSECalibrator
 * (modelopt/torch/quantization/calib/mse.py): a list of candidates for amax, the same multiples of one magnitude for each
 * qparam. */
#ifndef QOBS_SEARCH_MODELOPT_H
#define QOBS_SEARCH_MODELOPT_H

#include "plan/plan.h"
#include "range/range_rule.h"

/* The most candidates there are: for MseCalibrator 1 + ceil((stop_multiplier - start_multiplier) / step_size), at most
 * QOBS_MOST_MULTIPLES (checked with the settings); for NVFP4MSECalibrator the positive numbers of e4m3. */
enum { QOBS_MOST_MULTIPLES = 512, NVFP4_SCALES = 126 };


/* The i-th multiplier of each of them; those of NVFP4MSECalibrator are of the whole tensor's amax. */
float qobs_multiple(const struct multiplier_params *params, size_t i);
float qobs_e4m3_multiple(size_t i);

/* How many doubles of room the search needs. */
size_t qobs_search_multiples_workspace(const qobs_plan *plan, const struct range_rule *rule);

/* Adds the errors of the batch for each multiple of its amax, in the arithmetic of `dtype`, to sums[qparam * qobs_multiples
 * + i]. weight: one float for each index of the value's last dimension, which is the elements of a qparam, or NULL. */
void qobs_search_multiples(const struct runtime *runtime, const struct qobs_kernels *kernels, const struct range_params *params,
                           const qobs_plan *plan, const unsigned char *data, const float *amax, qobs_dtype dtype,
                           const float *weight, double *workspace, double *sums);

/* The same for multiples of the one amax; of each qparam's errors only the least is kept, best[qparam] and error[qparam],
 * and that of the last multiple, error_before[qparam]. */
void qobs_search_scales(const struct runtime *runtime, const struct qobs_kernels *kernels, const struct range_params *params,
                        const qobs_plan *plan, const unsigned char *data, const float *amax, const float *weight,
                        double *workspace, int32_t *best, double *error, double *error_before);

/* The first of the least; NaN counts as the least, as in torch.argmin. */
size_t qobs_least_multiple(const double *error, size_t n);

#endif

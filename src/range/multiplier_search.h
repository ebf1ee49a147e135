/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The candidates of NVIDIA Model-Optimizer's MseCalibrator and NVFP4MSECalibrator
 * (modelopt/torch/quantization/calib/mse.py): one list of multipliers of an amax for all qparams. */
#pragma once

#include "range/range_params.h"

/* The most multipliers of an MseCalibrator; the settings are checked against it. */
enum { QOBS_MAX_MULTIPLIERS = 512 };

/* Multiplier i of MseCalibrator, of a qparam's amax. */
float qobs_multiplier(const struct multiplier_params *params, size_t i);

/* Multiplier i of NVFP4MSECalibrator, of the tensor's amax: positive number i of e4m3, relative to the largest one. */
float qobs_e4m3_multiplier(size_t i);

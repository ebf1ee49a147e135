/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* llm-compressor's mse observers (_grid_search_mse and _grid_search): every range shrinks in steps, and the step with
 * the smallest error wins. The error of a qparam is sum weight * |q - x|^norm over its elements. q is x after
 * fake-quantize with the scale and zero point of the step's range, in float. There are two differences to
 * fake-quantize: x * (1 / scale) stands for x / scale, and q is not rounded to the dtype of x. Between candidates whose
 * errors differ by less than about 2e-7, the choice may therefore differ from upstream. */
#pragma once

#include "range/range_rule.h"

/* Writes the range of the best step of every qparam, or the expanded range if no step improved on the largest finite
 * float. F64 is searched as float. Elements that are not finite count as 0 with NONFINITE_IGNORE; otherwise their
 * qparams never improve. With find_ranges and NONFINITE_REFUSE such elements make the search fail.
 * QOBS_ERROR_UNSUPPORTED: the norm is not 1, 2 or 3 and this build is without SLEEF. */
int qobs_grid_search(const struct grid_search *g, qobs_error *error);

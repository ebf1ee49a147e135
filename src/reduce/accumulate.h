/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The arithmetic of accumulators: a batch's ranges (lo, hi) update the accumulated ranges (min, max), n of each, all of
 * one dtype. */
#pragma once

#include "qobs/qobs.h"

/* min(min, lo), max(max, hi). NaN on either side stays, as in torch.min and torch.max. */
void qobs_update_running(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi);

/* (-m, m) for the largest magnitude m of (min, max) and (lo, hi). NaN stays. `first`: only (lo, hi) count, which may
 * then be the same memory as (min, max). */
void qobs_update_absmax(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, bool first);

/* llm-compressor's lerp: min * (1 - c) + lo * c in native arithmetic, 1 - c in double. */
void qobs_update_lerp(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, double c);

/* torch.ao's moving average: min + c * (lo - min) in native arithmetic. */
void qobs_update_moving_average(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi,
                                double c);

/* Converts n elements to f32, rounded once if they are wider. */
void qobs_convert_to_f32(qobs_dtype from, size_t n, const void *x, float *out);

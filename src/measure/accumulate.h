/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How a batch's range (lo, hi) enters the range observed so far (min, max): n elements of one dtype. */
#ifndef QOBS_STATISTIC_UPDATE_H
#define QOBS_STATISTIC_UPDATE_H

#include "qobs/qobs.h"

/* min(min, lo), max(max, hi); NaN on either side stays, as in torch.min and torch.max. */
void qobs_update_running(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi);

/* (-m, m) for the largest magnitude m of (min, max) and (lo, hi), or where that is `fresh` of (lo, hi), which may then be the
 * same memory; NaN stays. */
void qobs_update_absmax(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, bool fresh);

/* min * (1 - c) + lo * c in native arithmetic, 1 - c in double: llm-compressor's lerp. */
void qobs_update_lerp(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, double c);

/* min + c * (lo - min) in native arithmetic: torch.ao's moving average. */
void qobs_update_towards(qobs_dtype dtype, size_t n, void *min, void *max, const void *lo, const void *hi, double c);

/* n elements of dtype `from` as f32, rounded once if they are wider. */
void qobs_convert_to_f32(qobs_dtype from, size_t n, const void *x, float *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Block floating point as AMD Quark has it: 8-bit integers under one power of two for each block. */
#pragma once

#include "qobs/qobs.h"

enum { BFP_EMAX = 6 }; /* exponent of the largest element under a scale of 1 */

/* Accumulates the magnitudes of n blocks: max[i] becomes the larger of itself and of the batch lo[i] to hi[i], doubled
 * if an element of the batch does not fit the scale that follows; min[i] becomes -max[i]. Scales are rounded to
 * scale_dtype. `first`: max holds nothing yet. */
void qobs_update_absmax_bfp(qobs_dtype dtype, qobs_dtype scale_dtype, size_t n, void *min, void *max, const void *lo,
                            const void *hi, bool first);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The histogram, or the extrema, of one batch for every qparam of its plan. Work runs on the runtime's executor;
 * results do not depend on it. Memory is a few arrays of `bins` counters for each thread. */
#pragma once

#include "histogram/binning.h"
#include "measure/reduce.h"

/* A batch and what reads it. */
struct batch {
    const struct runtime *runtime;
    const struct kernel_table *kernels;
    const qobs_plan *plan;
    const unsigned char *data; /* of the plan's value */
};

/* Counts the elements of qparam q under binning[q] into counts[q * bins] and writes their extrema to extrema[q]. All
 * binnings have the same number of bins. Zeros that pad a block count. */
int qobs_collect(const struct batch *batch, const struct binning *binning, uint64_t *counts, struct extrema *extrema,
                 qobs_error *error);

/* The extrema without counts, which is faster. */
int qobs_scan_extrema(const struct batch *batch, bool magnitude, bool skip_zeros, struct extrema *extrema,
                      qobs_error *error);

/* Sums up the NaN and infinities of all qparams. Fails, and names the place of the first, if there are any that `mode`
 * does not allow. */
int qobs_check_extrema(const struct batch *batch, enum nonfinite_mode mode, const struct extrema *extrema,
                       struct nonfinite_count *nonfinite, qobs_error *error);

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Histograms: how elements become bins, the counts of one batch, and the mass kept of all batches. Which range a histogram has
 * and how it grows is up to the observer (struct histogram_growth); what range is best for quantization is up to the
 * range finders (statistic/range_*.c), which see bins and edges only. */
#ifndef QOBS_STATISTIC_HISTOGRAM_H
#define QOBS_STATISTIC_HISTOGRAM_H

#include "granularity/plan.h"

/* ---- One batch ---------------------------------------------------------------------------------------------------------- */

/* The rule for `bins` bins from lo to hi, which are finite, lo <= hi; of |x| if `magnitude`, of all but 0 if `skip_zeros`. A single point c becomes [c - 1, c + 1], as in torch.histc,
 * and where that is c again (upstream then divides 0 by 0) the numbers next to c. */
struct qobs_binning qobs_binning_of(float lo, float hi, size_t bins, bool magnitude, bool skip_zeros);

/* Before anything has been seen. */
struct qobs_seen qobs_seen_nothing(void);

/* Counts one batch: for qparam q its elements under binning[q] into counts[q * bins], and its extremes into seen[q]; both are
 * overwritten. All binnings have the same number of bins. Zeros that pad a block count. `data` is what the plan's value stands
 * for. Runs on the runtime's executor; the counts do not depend on it. Memory, given back: a few arrays of `bins` counters
 * for each thread. */
int qobs_collect(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_plan *plan,
                 const unsigned char *data, const struct qobs_binning *binning, uint64_t *counts, struct qobs_seen *seen,
                 qobs_error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum, or the largest magnitude, of one batch for every qparam of a plan. */
#pragma once

#include "plan/loops.h"
#include "stages/reduction.h"

/* Minimum and maximum of nested loops over memory: chooses the kernel for the innermost loops and walks the others. */

/* Merges everything the loops cover into min and max, which are indexed by qparam. The loops are normalised by input.
 * If min is NULL, the magnitudes are merged into max, which holds no sign. scratch: qobs_minmax_scratch bytes, where
 * `magnitudes` says that min is NULL; without scratch (NULL) some loops take longer. */
size_t qobs_minmax_scratch(const struct loops *loops, size_t element, bool magnitudes);
void qobs_minmax_loops(const struct loops *loops, const struct kernel_table *kernels, enum kernel_dtype dtype,
                       size_t element, void *scratch, unsigned char *min, unsigned char *max,
                       struct nonfinite_count *nonfinite);

/* Sets n ranges to what merging changes: infinity and -infinity, or, if min is NULL, magnitudes of 0. */
void qobs_fill_identities(enum kernel_dtype dtype, size_t element, size_t n, void *min, void *max);

/* Reductions of a batch to minimum and maximum, and to (-m, m) for the largest magnitude m, which is faster and whose
 * plan has no g_idx. */
reduce_fn qobs_reduce_minmax, qobs_reduce_absmax;

/* Fails with the counts and the position of the first NaN or, if `infinities`, of the first element that is not finite.
 */
int qobs_fail_nonfinite(const qobs_plan *plan, const unsigned char *data, const struct nonfinite_count *counted,
                        bool infinities, qobs_error *error);

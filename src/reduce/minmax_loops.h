/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum of nested loops over memory: chooses the kernel for the innermost loops and walks the others. */
#pragma once

#include "kernels/kernels.h"
#include "plan/loops.h"

/* Merges everything the loops cover into min and max, which are indexed by qparam. The loops are normalised by input.
 * If min is NULL, the magnitudes are merged into max, which holds no sign. scratch: qobs_minmax_scratch bytes, where
 * `magnitudes` says that min is NULL; without scratch (NULL) some loops take longer. */
size_t qobs_minmax_scratch(const struct loops *loops, size_t element, bool magnitudes);
void qobs_minmax_loops(const struct loops *loops, const struct kernel_table *kernels, enum kernel_dtype dtype,
                       size_t element, void *scratch, unsigned char *min, unsigned char *max,
                       struct nonfinite_count *nonfinite);

/* Sets n ranges to what merging changes: infinity and -infinity, or, if min is NULL, magnitudes of 0. */
void qobs_fill_identities(enum kernel_dtype dtype, size_t element, size_t n, void *min, void *max);
